"""Warns once of what tasks note, fields in no column and lost input, and remembers it for the job's readiness."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from volley.contracts.epoch import WriteResult
from volley.contracts.rows import LostInput, Note, NotesBox, UnknownField, taken_notes

__all__ = ["Notes"]

_log = logging.getLogger(__name__)
_MOST_FIELDS = 1_000
_LAST_LOST = 100


@dataclass
class Notes:
    """What the tasks of a run have noted.

    Args:
        job: The job's name.
        planning: Has what the sources note while they are asked for offsets.
        count_lost: Counts losses of input.
    """

    job: str
    planning: NotesBox = field(default_factory=NotesBox)
    count_lost: Callable[[int], object] = int
    _fields: dict[str, UnknownField] = field(default_factory=dict)
    _lost: deque[LostInput] = field(default_factory=lambda: deque(maxlen=_LAST_LOST))
    # The metrics endpoint asks in threads of its own.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, tasks: Iterable[Sequence[WriteResult]]) -> None:
        """Warn of what no earlier task has noted; of the first thousand fields, as input may have any."""
        told = (note for results in tasks for result in results for note in result.notes)
        with self._lock:
            for note in chain(told, taken_notes(), self.planning.take()):
                if self._is_new(note):
                    _log.warning("%s: %s: %s", self.job, note, note.hint)
                    self.count_lost(isinstance(note, LostInput))

    def _is_new(self, note: Note) -> bool:
        """Remember a note; return False if it is known, or there are too many."""
        if isinstance(note, LostInput):
            is_new = note not in self._lost
            if is_new:
                self._lost.append(note)
            return is_new
        return len(self._fields) < _MOST_FIELDS and self._fields.setdefault(note.name, note) is note

    @property
    def lines(self) -> Sequence[str]:
        """A line for each field, and for the last hundred losses, also while there is no epoch."""
        self.record(())
        return [str(note) for note in (*self._fields.values(), *self._lost)]

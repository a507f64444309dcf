"""What a job tells of its epochs: kept for a while, told to callbacks, plotted; what tasks note is warned of once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from volley.contracts.epoch import WriteResult
from volley.contracts.rows import LostInput, Note, NotesBox, UnknownField, UnmetExpectation, taken_notes
from volley.engine.listeners import Listener
from volley.engine.options import OnEpoch, OnError
from volley.errors import VolleyError
from volley.html_table import html_plot
from volley.metrics.figures import FinishedEpoch
from volley.registry import installed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["History", "Notes"]

_log = logging.getLogger(__name__)
_MOST_EPOCHS = 10_000
_PLOTTED = 200
_POLL_SECONDS = 0.05
_MOST_FIELDS = 1_000
_LAST_LOST = 100


class History(Listener):
    """Epochs in the order in which they ended; the last 10,000 are kept.

    Args:
        on_epoch: Called with each epoch, before the next one starts; None = nothing.
        on_error: Called with the error that the job fails with; None = nothing.
    """

    def __init__(self, job: str, on_epoch: OnEpoch | None = None, on_error: OnError | None = None) -> None:
        self._job = job
        self._on_epoch = on_epoch
        self._on_error = on_error
        self._epochs: deque[FinishedEpoch] = deque(maxlen=_MOST_EPOCHS)
        self._count = 0
        self._lock = threading.Lock()
        self._telling = threading.local()

    @property
    def is_telling(self) -> bool:
        """True in a callback: the epoch, or the job's end, waits for it."""
        return getattr(self._telling, "callback", False)

    def add(self, epoch: FinishedEpoch) -> None:
        """Keep an epoch, and tell of it."""
        with self._lock:
            self._epochs.append(epoch)
            self._count += 1
        self._tell(self._on_epoch, epoch)

    def latest(self) -> list[FinishedEpoch]:
        """Return the epochs that are kept, the last one first."""
        with self._lock:
            return list(reversed(self._epochs))

    def plot_html(self) -> str:
        """Return a small plot of the rows of the last epochs, for notebooks; without two of them an empty text."""
        epochs = self.latest()[_PLOTTED - 1 :: -1]
        if len(epochs) < 2:
            return ""
        ends = f"epoch {epochs[0].number}", f"epoch {epochs[-1].number}"
        return f"<div>{html_plot('rows of an epoch', {'': [(each.number, each.rows) for each in epochs]}, ends)}</div>"

    def failed(self, error: VolleyError) -> None:
        """Tell of the job's error."""
        self._tell(self._on_error, error)

    async def follow(self, has_ended: Callable[[], bool]) -> AsyncIterator[FinishedEpoch]:
        """Yield each epoch, those so far first, until the job has ended."""
        seen = 0
        while True:
            # Looked at first: an epoch that ends meanwhile is still in the list.
            ended = has_ended()
            with self._lock:
                kept, new = list(self._epochs), self._count - seen
            seen += new
            for epoch in kept[-new:] if new else ():
                yield epoch
            if ended:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def plot(self) -> Figure:
        """Return a figure of rows and seconds by epoch."""
        installed("matplotlib")
        from volley.engine.figure import NotebookFigure

        figure = NotebookFigure(figsize=(8, 4), layout="constrained")
        with self._lock:
            epochs = list(self._epochs)
        numbers = [epoch.number for epoch in epochs]
        for axes, figures, unit in zip(
            figure.subplots(2, sharex=True),
            ([epoch.rows for epoch in epochs], [epoch.seconds for epoch in epochs]),
            ("rows", "seconds"),
            strict=True,
        ):
            axes.plot(numbers, figures, marker=".")
            axes.set(ylabel=unit, ylim=(0, None), xlabel="epoch" if unit == "seconds" else "")
        figure.suptitle(self._job)
        return figure

    def _tell(self, callback: Callable[[Any], object] | None, what: object) -> None:
        if callback is None:
            return
        self._telling.callback = True
        try:
            callback(what)
        except (Exception, SystemExit):
            # What was committed stays committed, whatever a callback does; sys.exit() would end a thread of the job.
            _log.exception("%s: a callback failed", self._job)
        finally:
            self._telling.callback = False


@dataclass
class Notes:
    """What the tasks of a run have noted.

    Args:
        planning: Has what the sources note while they are asked for offsets.
        count_lost: Counts losses of input.
    """

    job: str
    planning: NotesBox = field(default_factory=NotesBox)
    count_lost: Callable[[int], object] = int
    _fields: dict[str, UnknownField] = field(default_factory=dict)
    _unmet: dict[str, UnmetExpectation] = field(default_factory=dict)
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
        if isinstance(note, UnmetExpectation):
            return self._unmet.setdefault(note.name, note) is note
        return len(self._fields) < _MOST_FIELDS and self._fields.setdefault(note.name, note) is note

    @property
    def lines(self) -> Sequence[str]:
        """A line for each field, and for the last hundred losses, also while there is no epoch."""
        self.record(())
        return [str(note) for note in (*self._fields.values(), *self._unmet.values(), *self._lost)]

    def unmet(self, name: str) -> str | None:
        """Return a row that does not meet an expectation; None if none is known."""
        note = self._unmet.get(name)
        return None if note is None else note.row

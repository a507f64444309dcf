"""What tasks note while they read, and the driver warns of: fields in no column, and input that is lost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["LostInput", "Note", "NotesBox", "UnknownField", "note_lost", "note_unknown", "taken_notes"]

_MOST = 100
_LONGEST = 100
_noted = threading.local()


@dataclass(frozen=True)
class UnknownField:
    """A field that is in no column.

    Args:
        name: Its name; with dots, if it is nested.
        position: Where it was seen first: a file, or a message.
        can_keep: True: its source takes ``on_unknown="keep"``.

    Example:
        >>> str(UnknownField("price", "in/2.json"))
        "field 'price' of in/2.json is in no column; its values are left out"
    """

    name: str
    position: str
    can_keep: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"field {self.name!r} of {self.position} is in no column; its values are left out"

    @property
    def subject(self) -> str:
        """What it is about; a task notes each once."""
        return self.name

    @property
    def hint(self) -> str:
        """What the user can do."""
        ways = '"keep" or "drop"' if self.can_keep else '"drop"'
        return f"declare it in the schema, or choose on_unknown={ways}"


@dataclass(frozen=True)
class LostInput:
    """Input that was deleted before the job has read it, and is passed over as its source was told to.

    Args:
        lost: What is lost, and where.
        hint: What the user can do.

    Example:
        >>> str(LostInput("events/0: 5 offsets from 2 on are lost, skipped", "let the topic keep its messages longer"))
        'events/0: 5 offsets from 2 on are lost, skipped'
    """

    lost: str
    hint: str

    def __str__(self) -> str:
        return self.lost

    @property
    def subject(self) -> str:
        """What it is about; a task notes each once."""
        return self.lost


Note = UnknownField | LostInput
"""What the driver warns of."""


class NotesBox:
    """Where one thread of a process leaves notes for another."""

    def __init__(self) -> None:
        self._left: deque[Note] = deque(maxlen=_MOST)

    def leave(self, notes: Iterable[Note]) -> None:
        """Leave notes."""
        self._left.extend(notes)

    def take(self) -> tuple[Note, ...]:
        """Return what was left since the last call."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._left.popleft())
        return tuple(taken)


def note_unknown(names: Iterable[str], position: str, can_keep: bool = False) -> None:
    """Note fields that this thread has seen, for the task that it runs; the first hundred names, as input has any.

    Args:
        names: The names of the fields.
        position: Where they were seen.
        can_keep: True: their source takes ``on_unknown="keep"``.
    """
    for name in names:
        _note(UnknownField(name[:_LONGEST], position, can_keep))


def note_lost(lost: str, hint: str) -> None:
    """Note that input was lost which this thread should have read.

    Args:
        lost: What is lost, and where.
        hint: What the user can do.
    """
    _note(LostInput(lost, hint))


def taken_notes() -> tuple[Note, ...]:
    """Return what this thread has noted since the last call."""
    return tuple(vars(_noted).pop("notes", {}).values())


def _note(note: Note) -> None:
    noted: dict[tuple[type, str], Note] = vars(_noted).setdefault("notes", {})
    if len(noted) < _MOST:
        noted.setdefault((type(note), note.subject), note)

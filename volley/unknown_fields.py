"""Fields that a source's rows have and its schema lacks: tasks note them while they read, the driver warns of each."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["UnknownField", "note_unknown", "taken_unknown"]

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
        "field 'price' of in/2.json is in no column"
    """

    name: str
    position: str
    can_keep: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"field {self.name!r} of {self.position} is in no column"


def note_unknown(names: Iterable[str], position: str, can_keep: bool = False) -> None:
    """Note fields that this thread has seen, for the task that it runs; the first hundred names, as input has any.

    Args:
        names: The names of the fields.
        position: Where they were seen.
        can_keep: True: their source takes ``on_unknown="keep"``.
    """
    noted: dict[str, UnknownField] = vars(_noted).setdefault("fields", {})
    for name in names:
        if len(noted) < _MOST:
            noted.setdefault(name[:_LONGEST], UnknownField(name[:_LONGEST], position, can_keep))


def taken_unknown() -> tuple[UnknownField, ...]:
    """Return what this thread has noted since the last call."""
    return tuple(vars(_noted).pop("fields", {}).values())

"""What readers tell of rows: bad ones, where each stands in its source, fields in no column, lost input."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    *("BadLetter", "BadRow", "LetterRows", "LostInput", "Note", "NotesBox", "PositionedBatch", "Tallies"),
    *("Seen", "SeenColumns", "UnknownField", "UnmetExpectation", "has_seen", "keep_letter", "note_lost", "note_seen"),
    *("note_unknown", "note_unmet", "numbered", "taken_letters", "taken_notes", "taken_seen", "taken_tallies", "tally"),
    "undoing",
]

Tallies = Mapping[str, int]
"""What a task has counted of its rows, by what it is."""

_MOST = 100
_LONGEST = 100
_LONGEST_ROW = 200
_LAST_LETTERS = 5
_noted = threading.local()


@dataclass(frozen=True)
class BadRow:
    """A row that can't be processed, as a dead letter stores it.

    Args:
        payload: The row: raw text from the source, or JSON if it was parsed already.
        error: Why it can't be processed.
        position: Its place in the source: file and line, or topic, partition and offset.
        format: What the payload is: ``"row"`` (the row's values as JSON), ``"json"`` or ``"csv"`` (the source's own
            text), or ``"text"`` (any other, of which bytes that are not UTF-8 are replaced).
        column: The column whose value is at fault; None = not known, or none alone.
    """

    payload: str
    error: str
    position: str
    format: str = "text"
    column: str | None = None


@dataclass(frozen=True)
class PositionedBatch:
    """A batch, and a function from row number to source position (file and line, topic and offset).

    Args:
        batch: The rows.
        position: Returns the position of the row with this number (from 0) in the batch. Called for bad rows only,
            once each, in ascending order.
    """

    batch: pa.RecordBatch
    position: Callable[[int], str]


@dataclass(frozen=True)
class LetterRows(PositionedBatch):
    """Rows of dead letters that are read again.

    Args:
        letters: The letters, one for each row.
        sinks: The labels of the sinks that lack the rows; others get none of them.
    """

    letters: pa.RecordBatch
    sinks: frozenset[str]


@dataclass(frozen=True)
class BadLetter(BadRow):
    """A dead letter that is read again, and can't be read.

    Args:
        letter: The letter, by its columns.
    """

    letter: Mapping[str, Any] = field(default_factory=dict)


def numbered(batches: Iterator[pa.RecordBatch], place: str, before: int = 0) -> Iterator[PositionedBatch]:
    """Yield consecutive batches of a place, such as a file or a split, with positions that number its rows from 1.

    Args:
        before: How many rows of the place come before the first batch.
    """
    for batch in batches:
        yield PositionedBatch(batch, _Numbered(place, before + 1))
        before += batch.num_rows


@dataclass(frozen=True)
class _Numbered:
    place: str
    first: int

    def __call__(self, row: int) -> str:
        return f"{self.place}, row {self.first + row}"


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
    """Input that the job does not read: deleted before, as its source was told to; or written to a file it has read.

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


@dataclass(frozen=True)
class UnmetExpectation:
    """A row that does not meet an expectation.

    Args:
        name: That of the expectation.
        row: The row as JSON, cut.

    Example:
        >>> print(UnmetExpectation("price is not negative", '{"price": -1}'))
        the row {"price": -1} does not meet 'price is not negative'
    """

    name: str
    row: str = field(compare=False)

    def __str__(self) -> str:
        return f"the row {self.row} does not meet {self.name!r}"

    @property
    def subject(self) -> str:
        """What it is about; a task notes each once."""
        return self.name

    @property
    def hint(self) -> str:
        """What the user can do."""
        return "the job's status and metrics count such rows; mend them at their source, or change the expectation"


class Seen(NamedTuple):
    """What was seen of a field that a schema lacks, or of a value for which a column is too narrow.

    Args:
        path: The names of the fields down to it; None = an item of a list.
        type: The name of its type, ``"long"``, say.
    """

    path: tuple[str | None, ...]
    type: str

    @property
    def column(self) -> str:
        """The outermost field."""
        return str(self.path[0])


class SeenColumns(NamedTuple):
    """What a task has seen of a source's rows, in their order: the job must be planned anew for them.

    Args:
        source: The folder below the job's checkpoint that keeps it.
    """

    source: str
    seen: tuple[Seen, ...]


Note = UnknownField | LostInput | UnmetExpectation
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
    """Note fields that this thread has seen, for the task that it runs; the first hundred names, as input has any."""
    for name in names:
        _note(UnknownField(name[:_LONGEST], position, can_keep))


def note_lost(lost: str, hint: str) -> None:
    """Note that input was lost which this thread should have read: what and where, and what the user can do."""
    _note(LostInput(lost, hint))


def taken_notes() -> tuple[Note, ...]:
    """Return what this thread has noted since the last call."""
    return tuple(vars(_noted).pop("notes", {}).values())


def note_unmet(name: str, row: str) -> None:
    """Note a row that does not meet an expectation; of a task, the first one of each."""
    _note(UnmetExpectation(name, row[:_LONGEST_ROW]))


def note_seen(source: str, seen: Iterable[Seen]) -> None:
    """Note what this thread has seen of a source's rows, for the task that it runs, whose rows are then not written."""
    noted: dict[str, dict[Seen, None]] = vars(_noted).setdefault("seen", {})
    noted.setdefault(source, {}).update(dict.fromkeys(seen))


def has_seen() -> bool:
    """Return True if this thread has noted something that `taken_seen` returns."""
    return bool(vars(_noted).get("seen"))


def taken_seen() -> tuple[SeenColumns, ...]:
    """Return what this thread has seen since the last call."""
    noted: dict[str, dict[Seen, None]] = vars(_noted).pop("seen", {})
    return tuple(SeenColumns(source, tuple(seen)) for source, seen in noted.items())


def keep_letter(letter: Mapping[str, Any]) -> None:
    """Keep a letter that this thread has written, as one of the last few, for the job's status."""
    vars(_noted).setdefault("letters", deque(maxlen=_LAST_LETTERS)).append(letter)


def taken_letters() -> tuple[Mapping[str, Any], ...]:
    """Return the last letters that this thread has kept since the last call."""
    return tuple(vars(_noted).pop("letters", ()))


def tally(name: str, rows: int) -> None:
    """Count rows for the task that this thread runs; its results tell the sums."""
    _tallies()[name] += rows


def taken_tallies() -> Tallies:
    """Return what this thread has counted since the last call."""
    counted: Counter[str] = vars(_noted).pop("tallies", Counter())
    return dict(counted)


@contextmanager
def undoing() -> Iterator[Tallies]:
    """Take back what the block has counted if it raises: its rows are processed again. Returns what it counts."""
    before, own = _tallies(), Counter[str]()
    vars(_noted)["tallies"] = own
    try:
        yield own
        before.update(own)
    finally:
        vars(_noted)["tallies"] = before


def _tallies() -> Counter[str]:
    counted: Counter[str] = vars(_noted).setdefault("tallies", Counter())
    return counted


def _note(note: Note) -> None:
    noted: dict[tuple[type, str], Note] = vars(_noted).setdefault("notes", {})
    if len(noted) < _MOST:
        noted.setdefault((type(note), note.subject), note)

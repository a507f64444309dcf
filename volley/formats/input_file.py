"""A file to read, with the columns that it can have: opens it, and names the file and line in errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from volley.columns.batches import conform
from volley.columns.unknown import unknown_columns
from volley.contracts.rows import note_unknown
from volley.errors import SourceError
from volley.formats.options import KEEPING

if TYPE_CHECKING:
    from volley.formats.json_seen import Sight

__all__ = ["LARGEST_VALUE", "Columns", "InputFile", "WholeFile", "case_of", "fault_at", "megabytes", "no_match"]

_SHOWN = 5
_LONGEST = 60
_UNKNOWN_HINT = 'declare it, or choose on_unknown="warn" or "drop" to leave it out'


@dataclass(frozen=True)
class Columns:
    """All columns that a file or message can have, and what to do with other fields.

    Args:
        schema: The columns, also those that are not read.
        on_unknown: ``"warn"``, ``"keep"``, ``"rescue"``, ``"fail"`` or ``"drop"``.
        kept_in: The name of the column that keeps other fields as JSON.
        seen: The names of other fields that were seen in texts so far: later ones are expected to have them, too.
        sight: What was seen of columns that are inferred; None = none is.
    """

    schema: pa.Schema
    on_unknown: str = "drop"
    kept_in: str | None = None
    seen: set[str] = dataclasses.field(default_factory=set, repr=False, compare=False)
    sight: Sight | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def keeps(self) -> bool:
        """True if other fields are kept."""
        return self.on_unknown in KEEPING

    @property
    def rescues(self) -> bool:
        """True if values that don't fit their column are kept, too."""
        return self.on_unknown == "rescue"

    def check_file(self, name: str, own: pa.Schema) -> None:
        """Check the columns of a file that tells them.

        Raises:
            SourceError: If it has none of the columns, or an unknown one and `on_unknown` is ``"fail"``.
        """
        if own.names and not set(own.names) & set(self.schema.names):
            raise SourceError(
                f"{name} {no_match(own.names, self.schema.names)}", hint="declare one of the file's columns"
            )
        self.check_unknown(name, own)

    def check_unknown(self, name: str, own: pa.Schema) -> None:
        """Check for unknown columns alone.

        Raises:
            SourceError: If there is one and `on_unknown` is ``"fail"``.
        """
        unknown = [] if self.on_unknown == "drop" else [*unknown_columns(own, self.schema)]
        if unknown and self.on_unknown == "fail":
            raise SourceError(f"{name}: column {unknown[0]!r} is not in the schema", hint=_UNKNOWN_HINT)
        note_unknown(unknown, name)


def no_match(fields: Collection[str], columns: Sequence[str]) -> str:
    """Return the fault of a file or row that has none of the columns.

    Example:
        >>> no_match(["ID"], ["id", "name"])
        "has none of the columns ['id', 'name']: it has ['ID']; names differ in upper and lower case"
    """
    return f"has none of the columns {_listed(columns)}: it has {_listed(fields)}{case_of(fields, columns)}"


def case_of(fields: Iterable[str], columns: Iterable[str]) -> str:
    """Return a clause if a field has the name of a column in other cases, else an empty text."""
    lowered = {column.lower() for column in columns}
    return "; names differ in upper and lower case" if any(name.lower() in lowered for name in fields) else ""


def _listed(names: Collection[str]) -> str:
    shown = [name[:_LONGEST] for name in islice(names, _SHOWN)]
    return f"{shown}" if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


LARGEST_VALUE = 64 << 20
"""The limit of one value or one line of text, in bytes; a larger one is treated as an attack or a mistake."""

_EXCERPT = 120
_REASON = 400
_MEND = "mend the file, or declare a schema that fits it"


def megabytes(size: float) -> str:
    """Return a size in bytes as messages have it.

    Example:
        >>> megabytes(64 << 20), megabytes(1 << 16)
        ('64 MB', '0.0625 MB')
    """
    number = size / (1 << 20)
    return f"{number:,.0f} MB" if number >= 10 else f"{number:.4g} MB"


@dataclass(frozen=True)
class WholeFile:
    """A whole file of a format without row groups, in place of one."""

    rows: int


@dataclass(frozen=True)
class InputFile:
    """A file, or a part of its lines.

    Args:
        size: Its size in the storage, in bytes.
        open: Opens it for reading bytes, from the start, decompressed.
        first_byte: The first byte of the part; 0 = the start of the file.
        lines_before: The number of header lines that are read in front of every part.
        lines_skipped: The number of lines at the start of the file that are not read.
        unit: What the file consists of, as errors count it.
        columns: All columns that it can have, and what to do with others; None = those that are read, others are left
            out.
    """

    name: str
    size: int
    open: Callable[[], AbstractContextManager[Any]]
    first_byte: int = 0
    lines_before: int = 0
    lines_skipped: int = 0
    unit: Literal["line", "element"] = "line"
    columns: Columns | None = None

    def place(self, number: int, unit: str | None = None) -> str:
        """Return a line number; in a later part of a file it counts from the part's first byte."""
        unit = unit or self.unit
        if not self.first_byte:
            return f"{unit} {number + (self.lines_skipped if unit == 'line' else 0)}"
        return f"{unit} {number - self.lines_before} from byte {self.first_byte} on"

    def position(self, number: int, unit: str | None = None) -> str:
        """Return the file's name and a line of it."""
        return f"{self.name}, {self.place(number, unit)}"

    def fault(self, reason: str, line: int | None = None, excerpt: str = "", hint: str = _MEND) -> SourceError:
        """Return the error for a fault in this file.

        Args:
            line: Its line, from 1; None = unknown.
        """
        return fault_at(self.name if line is None else self.position(line), reason, excerpt, hint)

    def columns_or(self, schema: pa.Schema) -> Columns:
        """Return all columns that the file can have; without any, those of the schema to read."""
        return self.columns or Columns(schema)

    def check_columns(self, own: pa.Schema, schema: pa.Schema) -> None:
        """Check the columns that the file has against those that it can have.

        Raises:
            SourceError: If it has none of them, or has others and must not.
        """
        self.columns_or(schema).check_file(self.name, own)

    def conform(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch in the source's schema.

        Raises:
            SourceError: If a value doesn't fit; names the file and the column.
        """
        try:
            return conform(batch, schema)
        except SourceError as error:
            raise error.within(self.name) from error


def fault_at(place: str, reason: str, excerpt: str = "", hint: str = _MEND) -> SourceError:
    """Return the error for a fault at a place of a file, with a reason and a text that are not too long to read."""
    shown = f": {excerpt[:_EXCERPT]}" if excerpt else ""
    # Arrow's messages quote the whole value, however long.
    return SourceError(f"{place}: {reason[:_REASON]}{shown}", hint=hint)

"""A file to read: opens it, and names the file and line in errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from volley.columns.batches import conform
from volley.errors import SourceError
from volley.formats.columns import Columns

__all__ = ["LARGEST_VALUE", "InputFile", "WholeFile", "fault_at", "megabytes"]

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
        name: The file's name in errors.
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
            reason: The fault.
            line: Its line, from 1; None = unknown.
            excerpt: The text of that line.
            hint: The way out.
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

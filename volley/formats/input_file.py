"""One file that is being read: how to open it, and where in it something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from volley.arrow.batches import conform
from volley.errors import SourceError

__all__ = ["LARGEST_VALUE", "InputFile"]

LARGEST_VALUE = 64 << 20
"""The most bytes of one value, or of one line of text: what is larger is taken for an attack or a mistake."""

_EXCERPT = 120
_REASON = 400
_MEND = "mend the file, or declare a schema that fits it"


@dataclass(frozen=True)
class InputFile:
    """A file by name, or a part of its lines.

    Args:
        name: What errors call it.
        size: Its bytes in the storage.
        open: Opens it for reading bytes, from the start, decompressed.
        first_byte: Where in the file the part begins; 0 = where the file does.
        lines_before: The lines in front of those of the part, which are read with every part.
    """

    name: str
    size: int
    open: Callable[[], AbstractContextManager[Any]]
    first_byte: int = 0
    lines_before: int = 0

    def place(self, number: int, unit: str = "line") -> str:
        """A line by its number; in a later part of a file by where it stands: lines before it are not counted."""
        if not self.first_byte:
            return f"{unit} {number}"
        return f"{unit} {number - self.lines_before} from byte {self.first_byte} on"

    def position(self, number: int, unit: str = "line") -> str:
        """The file and a line of it."""
        return f"{self.name}, {self.place(number, unit)}"

    def fault(self, reason: str, line: int | None = None, excerpt: str = "", hint: str = _MEND) -> SourceError:
        """The error that tells what is wrong in this file.

        Args:
            reason: What is wrong.
            line: Where, counted from 1; None = not known.
            excerpt: What stands there.
            hint: The way out.
        """
        place = self.name if line is None else self.position(line)
        shown = f": {excerpt[:_EXCERPT]}" if excerpt else ""
        # Arrow quotes a value whole, however long it is.
        return SourceError(f"{place}: {reason[:_REASON]}{shown}", hint=hint)

    def conform(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The batch in the source's schema.

        Raises:
            SourceError: If a value does not fit; names the file and the column.
        """
        try:
            return conform(batch, schema)
        except SourceError as error:
            raise error.within(self.name) from error

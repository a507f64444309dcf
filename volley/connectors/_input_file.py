"""One file that is being read: how to open it, and where in it something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley._types import conform
from volley.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LARGEST_VALUE", "InputFile"]

LARGEST_VALUE = 64 << 20
"""The most bytes of one value, or of one line of text: what is larger is taken for an attack or a mistake."""

_EXCERPT = 120
_REASON = 400
_MEND = "mend the file, or declare a schema that fits it"


@dataclass(frozen=True)
class InputFile:
    """A file by name.

    Args:
        name: What errors call it.
        open: Opens it for reading bytes, from the start, decompressed.
    """

    name: str
    open: Callable[[], AbstractContextManager[Any]]

    def fault(self, reason: str, line: int | None = None, excerpt: str = "", hint: str = _MEND) -> SourceError:
        """The error that tells what is wrong in this file.

        Args:
            reason: What is wrong.
            line: Where, counted from 1; None = not known.
            excerpt: What stands there.
            hint: The way out.
        """
        place = self.name if line is None else f"{self.name}, line {line}"
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
            raise SourceError(f"{self.name}: {error.message}", hint=error.hint) from error

"""Brings the rows of files that have types of their own into the source's schema, and tells those that don't fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from volley.arrow.batches import conform
from volley.arrow.bisect import process_or_bisect
from volley.arrow.python_values import bad_row
from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.input_file import InputFile

__all__ = ["fitting", "strict"]


def fitting(
    file: InputFile,
    batch: pa.RecordBatch,
    schema: pa.Schema,
    position: Callable[[int], str],
    dictionaries: bool = False,
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the rows of a batch in the source's schema, and a `BadRow` for each row that doesn't fit it.

    Args:
        file: The file.
        batch: Rows in the file's own types.
        schema: The source's schema.
        position: Returns the place of a row of the batch, from 0.
        dictionaries: True: columns that are dictionaries stay so.

    Raises:
        SourceError: If no value of a column's type fits: an error of the file, not of a row.
    """
    file.conform(batch.slice(0, 0), schema)

    def attempt(start: int, end: int) -> PositionedBatch | BadRow:
        rows = conform(batch.slice(start, end - start), schema, dictionaries)
        return PositionedBatch(rows, lambda row: position(start + row))

    def single(row: int, error: Exception) -> BadRow:
        assert isinstance(error, SourceError)
        return bad_row(batch, row, error.message, position(row))

    return process_or_bisect(batch.num_rows, attempt, single, (SourceError,))


def strict(rows: Iterator[PositionedBatch | BadRow]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise SourceError at the first bad row."""
    for item in rows:
        if isinstance(item, BadRow):
            hint = "mend the file, or declare a schema that fits it"
            raise SourceError(f"{item.position}: {item.error}", hint=hint)
        yield item.batch

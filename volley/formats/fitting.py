"""Brings the rows of files that have types of their own into the source's schema, and tells those that don't fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from volley.columns.batches import conform
from volley.columns.bisect import process_or_bisect
from volley.columns.misfits import misfits
from volley.columns.python_values import row_texts
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.input_file import InputFile
from volley.formats.sorted_rows import Sorted, joined

__all__ = ["fitting", "strict"]

# Rows that are sorted at once, if one of them does not fit.
_ROWS = 4_096


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
    try:
        rows = conform(batch, schema, dictionaries)
    except SourceError:
        for start in range(0, batch.num_rows, _ROWS):
            yield from _fitting(batch.slice(start, _ROWS), schema, partial(_behind, position, start), dictionaries)
    else:
        yield PositionedBatch(rows, position)


def _behind(position: Callable[[int], str], start: int, row: int) -> str:
    return position(start + row)


def _fitting(
    batch: pa.RecordBatch, schema: pa.Schema, position: Callable[[int], str], dictionaries: bool
) -> Iterator[PositionedBatch | BadRow]:
    try:
        fit = conform(batch, schema, dictionaries)
    except SourceError:
        rows = _sorted(batch, schema, dictionaries)
        yield from rows.items(position, _bad_rows(batch, [*rows.faults], position))
    else:
        yield PositionedBatch(fit, position)


def _sorted(batch: pa.RecordBatch, schema: pa.Schema, dictionaries: bool) -> Sorted:
    faults = misfits(batch, schema)
    numbers = [row for row in range(batch.num_rows) if row not in faults]
    good = batch.take(pa.array(numbers, pa.int64()))

    def attempt(start: int, end: int) -> Sorted:
        return Sorted([conform(good.slice(start, end - start), schema, dictionaries)], numbers[start:end], {})

    def single(row: int, error: Exception) -> Sorted:
        assert isinstance(error, SourceError)
        return Sorted([], [], {numbers[row]: error.message})

    pieces = process_or_bisect(len(numbers), attempt, single, (SourceError,)) if numbers else ()
    return joined([Sorted([], [], faults), *pieces])


def _bad_rows(
    batch: pa.RecordBatch, rows: Sequence[int], position: Callable[[int], str]
) -> Callable[[int, str], BadRow]:
    """Return what makes these rows of a batch bad rows."""
    texts = dict(zip(rows, row_texts(batch.take(pa.array(rows, pa.int64()))), strict=True))
    return lambda row, fault: BadRow(texts[row], fault, position(row))


def strict(rows: Iterator[PositionedBatch | BadRow]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise SourceError at the first bad row."""
    for item in rows:
        if isinstance(item, BadRow):
            hint = "mend the file, or declare a schema that fits it"
            raise SourceError(f"{item.position}: {item.error}", hint=hint)
        yield item.batch

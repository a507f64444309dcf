"""Rows of files and messages beside bad ones: sorted units, and rows that fit the source's schema or don't."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.columns.batches import conform, unfit_rows
from volley.columns.bisect import process_or_bisect
from volley.columns.letters import column_in
from volley.columns.readable import row_payloads
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError, message_of
from volley.formats.input_file import InputFile, fault_at

__all__ = ["Sorted", "fitting", "in_order", "sort_good", "strict"]

_SHORT_RUN = 16


@dataclass(frozen=True)
class Sorted:
    """What has become of numbered units, such as lines or messages.

    Args:
        numbers: For each row, the number of its unit; ascending.
        faults: Why the other units are bad, by their numbers; ascending.
    """

    batches: Sequence[pa.RecordBatch]
    numbers: Sequence[int]
    faults: Mapping[int, str]

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """The rows as one batch; there must be a batch."""
        return self.batches[0] if len(self.batches) == 1 else pa.concat_batches(self.batches)

    def items(
        self, position: Callable[[int], str], bad_row: Callable[[int, str], BadRow]
    ) -> Iterator[PositionedBatch | BadRow]:
        """Yield rows and bad rows in the order of the units.

        Args:
            bad_row: Returns a unit with a fault as a bad row.
        """
        start = 0
        for number, fault in self.faults.items():
            end = bisect_left(self.numbers, number, start)
            yield from self._rows(start, end, position)
            yield bad_row(number, fault)
            start = end
        yield from self._rows(start, len(self.numbers), position)

    def _rows(self, start: int, end: int, position: Callable[[int], str]) -> Iterator[PositionedBatch]:
        if end > start:
            rows = self.batch.slice(start, end - start)
            yield PositionedBatch(rows, lambda row: position(self.numbers[start + row]))


def sort_good(
    faults: Mapping[int, str],
    numbers: Sequence[int],
    convert: Callable[[int, int], Sorted],
    reason: Callable[[int, Exception], str],
    errors: tuple[type[Exception], ...],
) -> Sorted:
    """Return units of which some are bad, and others that seem good: these are converted many at once.

    Args:
        convert: Returns a range of the others as rows.
        reason: Returns why one of the others is bad, by its index and the error of its conversion.
        errors: The errors that mean that a unit is bad.
    """

    def bad(index: int, error: Exception) -> Sorted:
        return Sorted([], [], {numbers[index]: reason(index, error)})

    pieces = process_or_bisect(len(numbers), convert, bad, errors) if numbers else ()
    return joined([Sorted([], [], faults), *pieces])


def joined(pieces: Sequence[Sorted]) -> Sorted:
    """Return several as one; their rows are in order."""
    faults = {number: fault for piece in pieces for number, fault in piece.faults.items()}
    of_rows = [piece for piece in pieces if piece.numbers]
    return Sorted(
        [batch for piece in pieces for batch in piece.batches],
        of_rows[0].numbers if len(of_rows) == 1 else [number for piece in of_rows for number in piece.numbers],
        dict(sorted(faults.items())),
    )


def in_order(rows: pa.Table, order: npt.NDArray[np.int64]) -> pa.Table:
    """Return rows in another order; where most are next to the one before, runs of them are copied, which is faster."""
    starts = np.flatnonzero(np.diff(order, prepend=-2) != 1)
    if len(starts) * _SHORT_RUN > len(order):
        return rows.take(pa.array(order))
    lengths = np.diff(starts, append=len(order))
    return pa.concat_tables(map(rows.slice, order[starts].tolist(), lengths.tolist()))


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
            piece, behind = batch.slice(start, _ROWS), partial(_behind, position, start)
            items = _sorted(piece, schema, dictionaries)
            yield from items.items(behind, _bad_rows(piece, [*items.faults], behind))
    else:
        yield PositionedBatch(rows, position)


def _behind(position: Callable[[int], str], start: int, row: int) -> str:
    return position(start + row)


def _sorted(batch: pa.RecordBatch, schema: pa.Schema, dictionaries: bool) -> Sorted:
    # Most pieces have no bad row.
    with suppress(SourceError):
        return Sorted([conform(batch, schema, dictionaries)], range(batch.num_rows), {})
    faults = unfit_rows(batch, schema)
    numbers = [row for row in range(batch.num_rows) if row not in faults]
    good = batch.take(pa.array(numbers, pa.int64()))

    def convert(start: int, end: int) -> Sorted:
        return Sorted([conform(good.slice(start, end - start), schema, dictionaries)], numbers[start:end], {})

    return sort_good(faults, numbers, convert, lambda _, error: message_of(error), (SourceError,))


def _bad_rows(
    batch: pa.RecordBatch, rows: Sequence[int], position: Callable[[int], str]
) -> Callable[[int, str], BadRow]:
    """Return what makes these rows of a batch bad rows."""
    payloads = dict(zip(rows, row_payloads(batch.take(pa.array(rows, pa.int64()))), strict=True))

    def bad_row(row: int, fault: str) -> BadRow:
        text, format = payloads[row]
        return BadRow(text, fault, position(row), format, column_in(fault))

    return bad_row


def strict(rows: Iterable[PositionedBatch | BadRow], hint: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise SourceError at the first bad row."""
    for item in rows:
        if isinstance(item, BadRow):
            raise fault_at(item.position, item.error, item.payload, hint)
        yield item.batch

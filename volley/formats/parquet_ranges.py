"""Reads some rows of a Parquet row group: of each column, only the pages that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from volley.formats.input_file import InputFile
from volley.formats.parquet import OpenParquet, opened
from volley.formats.parquet_footer import Group, damaged
from volley.formats.parquet_index import PagedColumn, PagedFile

__all__ = ["read_ranges"]

_PIECE_BYTES = 32 << 20

_Read = Callable[[range], Iterator[pa.Array]]


def read_ranges(
    parquet: OpenParquet,
    paged: PagedFile,
    columns: Sequence[str],
    group: int,
    ranges: Sequence[range],
    encoded: pa.Schema | None,
    rows: int,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield some rows of a row group, each batch with the number of the file's rows before it.

    Nested columns, and those whose pages are not indexed, are decoded as wholes.

    Args:
        parquet: The open file.
        paged: Its page index.
        columns: The names of the top-level columns to read; at least one.
        group: The number of the row group.
        ranges: The rows in the row group, ascending.
        encoded: The types of columns that stay dictionary-encoded if their dictionary is small; None = none stays.
        rows: The most rows of a batch; long values make it smaller.
    """
    before = sum(each.rows for each in parquet.groups[:group])

    def read(name: str) -> _Read:
        column = paged.column(group, name)
        if column is not None:
            return lambda wanted: _paged(parquet, paged, column, wanted, encoded, rows)
        batches = parquet.batches([name], [group], encoded, rows)
        return _Values(parquet.file, (batch.column(0) for batch, _ in batches))

    reads = [read(name) for name in columns]
    most = _rows_of_a_piece(parquet.groups[group])
    for wanted in chain.from_iterable(_pieces(each, most) for each in ranges):
        first = before + wanted.start
        for arrays in _aligned([read(wanted) for read in reads]):
            yield pa.RecordBatch.from_arrays(arrays, list(columns)), first
            first += len(arrays[0])


def _rows_of_a_piece(group: Group) -> int:
    """Return how many rows are held in memory at a time, still encoded."""
    size = sum(chunk.size for chunk in group.chunks)
    return max(1, _PIECE_BYTES * group.rows // max(1, size))


def _pieces(rows: range, most: int) -> Iterator[range]:
    return (rows[start : start + most] for start in range(0, len(rows), most))


def _paged(
    parquet: OpenParquet,
    paged: PagedFile,
    column: PagedColumn,
    wanted: range,
    encoded: pa.Schema | None,
    rows: int,
) -> Iterator[pa.Array]:
    """Yield the values of some rows, from the pages that have them."""
    file, first = paged.cut(column, wanted, parquet.schema.field(column.name))
    with opened(file) as cut:
        arrays = (batch.column(0) for batch, _ in cut.batches([column.name], [0], encoded, rows))
        yield from _Values(file, arrays, first)(wanted)


class _Values:
    """Yields the values of some rows, range by range, from the values of all.

    Args:
        file: The file, for its name in errors.
        arrays: The values.
        first: The row of the first value.
    """

    def __init__(self, file: InputFile, arrays: Iterator[pa.Array], first: int = 0) -> None:
        self._file = file
        self._arrays = arrays
        self._at = first
        self._rest: pa.Array | None = None

    def __call__(self, wanted: range) -> Iterator[pa.Array]:
        while self._at < wanted.stop:
            values = _next(self._arrays) if self._rest is None else self._rest
            if values is None:
                raise damaged(self._file, f"it has no values from row {self._at} of a row group on")
            first, end = self._at, min(self._at + len(values), wanted.stop)
            self._at, self._rest = end, values.slice(end - first) if end - first < len(values) else None
            if end > wanted.start:
                start = max(wanted.start, first)
                yield values.slice(start - first, end - start)


def _aligned(columns: Sequence[Iterator[pa.Array]]) -> Iterator[list[pa.Array]]:
    """Yield arrays of one length, from arrays that are cut at other rows in each column."""
    heads = list(map(_next, columns))
    while heads[0] is not None:
        count = min(map(len, heads))
        yield [head.slice(0, count) for head in heads]
        heads = [
            head.slice(count) if len(head) > count else _next(column)
            for head, column in zip(heads, columns, strict=True)
        ]


def _next(column: Iterator[pa.Array]) -> Any:
    return next(column, None)

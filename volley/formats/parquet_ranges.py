"""Reads some rows of a Parquet row group: of each column only the pages, or the single values, that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from volley.formats.input_file import InputFile
from volley.formats.parquet import OpenParquet, opened
from volley.formats.parquet_footer import RowGroup, damaged
from volley.formats.parquet_index import PagedColumn, PagedFile

__all__ = ["plain_values", "read_ranges"]

# By the number of the physical type: INT32, INT64, FLOAT, DOUBLE.
_BYTES = {1: 4, 2: 8, 4: 4, 5: 8}
# The encodings of values and of levels that leave the values as they are: PLAIN, RLE.
_PLAIN = {0, 3}
_UNCOMPRESSED = 0

_Rows = np.ndarray[Any, np.dtype[np.int64]]


def plain_values(paged: PagedFile, column: PagedColumn, data_type: pa.DataType, rows: _Rows) -> pa.Array | None:
    """Return the values of some rows; None if the column has to be decoded.

    A page of numbers that are neither encoded nor compressed, and none of which is null, ends with one value a row.

    Args:
        column: A column of one of its row groups.
        data_type: The column's type, as Arrow reads it.
        rows: Rows of the row group; at least one.

    Raises:
        SourceError: If the page index is damaged.
    """
    width = _BYTES.get(column.physical_type)
    if width is None or not _is_stored_as_is(data_type, width) or not _is_plain(column):
        return None
    nulls = [page.nulls for page in paged.statistics(column)]
    starts = np.array([page[3] for page in column.pages])
    pages = np.searchsorted(starts, rows, "right") - 1
    if len(nulls) != len(starts) or any(nulls[page] != 0 for page in np.unique(pages)):
        return None
    ends = np.array([page[1] + page[2] for page in column.pages])
    stops = np.array([span.stop for span in column.rows_of_pages])
    first, last = column.pages[pages.min()][1], int(ends[pages.max()])
    at = ends[pages] - (stops[pages] - rows) * width - first
    if at.min() < 0:
        raise damaged(paged.file, f"the page index of column {column.name!r} does not fit its pages")
    content = _content(paged, first, last)
    values = content[at[:, None] + np.arange(width)]
    return pa.Array.from_buffers(data_type, len(rows), [None, pa.py_buffer(values)])


def _is_stored_as_is(data_type: pa.DataType, width: int) -> bool:
    t = pa.types
    if not (t.is_integer(data_type) or t.is_floating(data_type) or t.is_temporal(data_type)):
        return False
    return bool(data_type.bit_width == 8 * width)


def _is_plain(column: PagedColumn) -> bool:
    """Return True if no value is encoded or compressed."""
    metadata = column.chunk[3]
    return metadata[4] == _UNCOMPRESSED and not metadata.get(11) and _PLAIN.issuperset(metadata[2])


def _content(paged: PagedFile, start: int, end: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return bytes of a file; those of a local one are not copied."""
    content = paged.read_bytes(start, end) if paged.mapped is None else paged.mapped[start:end]
    return np.frombuffer(content, np.uint8)


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
        columns: The names of the top-level columns to read; at least one.
        ranges: The rows in the row group, ascending.
        encoded: The types of columns that stay dictionary-encoded if their dictionary is small; None = none stays.
        rows: The most rows of a batch; long values make it smaller.
    """
    before = sum(row_group.rows for row_group in parquet.groups[:group])

    def read(name: str) -> _Read:
        column = paged.column(group, name)
        if column is not None:
            return lambda rows_to_read: _paged(parquet, paged, column, rows_to_read, encoded, rows)
        batches = parquet.batches([name], [group], encoded, rows)
        return _Values(parquet.file, (batch.column(0) for batch, _ in batches))

    reads = [read(name) for name in columns]
    most = _rows_of_a_piece(parquet.groups[group])
    for rows_to_read in chain.from_iterable(_pieces(span, most) for span in ranges):
        first = before + rows_to_read.start
        for arrays in _aligned([read(rows_to_read) for read in reads]):
            yield pa.RecordBatch.from_arrays(arrays, list(columns)), first
            first += len(arrays[0])


def _rows_of_a_piece(group: RowGroup) -> int:
    """Return how many rows are held in memory at a time, still encoded."""
    size = sum(chunk.size for chunk in group.chunks)
    return max(1, _PIECE_BYTES * group.rows // max(1, size))


def _pieces(rows: range, most: int) -> Iterator[range]:
    return (rows[start : start + most] for start in range(0, len(rows), most))


def _paged(
    parquet: OpenParquet,
    paged: PagedFile,
    column: PagedColumn,
    rows_to_read: range,
    encoded: pa.Schema | None,
    rows: int,
) -> Iterator[pa.Array]:
    """Yield the values of some rows, from the pages that have them."""
    file, first = paged.cut(column, rows_to_read, parquet.schema.field(column.name))
    with opened(file) as cut:
        arrays = (batch.column(0) for batch, _ in cut.batches([column.name], [0], encoded, rows))
        yield from _Values(file, arrays, first)(rows_to_read)


class _Values:
    """Yields the values of some rows, range by range, from the values of all.

    Args:
        file: The file, for its name in errors.
    """

    def __init__(self, file: InputFile, arrays: Iterator[pa.Array], first: int = 0) -> None:
        self._file = file
        self._arrays = arrays
        self._at = first
        self._rest: pa.Array | None = None

    def __call__(self, rows_to_read: range) -> Iterator[pa.Array]:
        while self._at < rows_to_read.stop:
            values = _next(self._arrays) if self._rest is None else self._rest
            if values is None:
                raise damaged(self._file, f"it has no values from row {self._at} of a row group on")
            first, end = self._at, min(self._at + len(values), rows_to_read.stop)
            self._at, self._rest = end, values.slice(end - first) if end - first < len(values) else None
            if end > rows_to_read.start:
                start = max(rows_to_read.start, first)
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

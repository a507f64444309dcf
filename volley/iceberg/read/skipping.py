"""Leaves out row groups and pages of a Parquet file without rows that match a filter, by its statistics."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from volley.formats.parquet import OpenParquet
from volley.formats.parquet_index import PagedFile, PageStatistics
from volley.iceberg.layout.partitions import bounds
from volley.iceberg.read.entries import Content, EntryStatus, FileEntry
from volley.iceberg.read.projection import FileField
from volley.iceberg.read.pruning import Predicate

__all__ = ["Positions", "matching_groups", "matching_rows", "pages_with"]

Positions = np.ndarray[Any, np.dtype[np.int64]]
"""Row numbers in a data file, from 0."""

# The types of a file whose lowest and highest values have one meaning in all writers' footers.
_TYPES: Mapping[type, tuple[pa.DataType, ...]] = {
    IntegerType: (pa.int32(),),
    LongType: (pa.int32(), pa.int64()),
    DateType: (pa.date32(),),
    FloatType: (pa.float32(),),
    DoubleType: (pa.float32(), pa.float64()),
    StringType: (pa.string(), pa.large_string()),
    TimestampType: (pa.timestamp("us"),),
    TimestamptzType: (pa.timestamp("us", "UTC"),),
}

_PLAIN = {1: "<i", 2: "<q", 4: "<f", 5: "<d"}
# Reading single pages has a cost of its own: ranges with a small gap are read as one, and a row group of which most
# rows may match is read as a whole.
_GAP_ROWS = 8_192
_MOST = 0.5


def matching_groups(
    parquet: OpenParquet,
    fields: Sequence[FileField],
    groups: Iterable[int],
    schema: Schema,
    may_match: Predicate[FileEntry],
) -> list[int]:
    """Return the row groups that may have rows that match a filter.

    Args:
        may_match: Whether a file with some statistics may have matching rows.
    """
    columns = columns_with_statistics(parquet, fields, schema)
    return [group for group in groups if may_match(_as_file(parquet, group, columns))]


def columns_with_statistics(
    parquet: OpenParquet, fields: Sequence[FileField], schema: Schema
) -> dict[str, tuple[int, Any]]:
    """Return the field ids and types of columns whose statistics have one meaning in all writers' files."""
    types = {field.field_id: field.field_type for field in schema.fields}
    return {
        field.name: (field.field_id, types[field.field_id])
        for field in fields
        if field.field_id in types and _is_known(types[field.field_id], parquet.schema.field(field.name).type)
    }


def _is_known(data_type: IcebergType, in_file: pa.DataType) -> bool:
    return in_file in _TYPES.get(type(data_type), ())


def _as_file(parquet: OpenParquet, group: int, columns: Mapping[str, tuple[Any, Any]]) -> FileEntry:
    """Return a row group with its statistics as if it were a data file."""
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    for field_id, data_type, chunk in _chunks(parquet, group, columns):
        known = chunk.statistics if chunk.is_stats_set else None
        if known is None:
            continue
        if known.has_null_count:
            values[field_id], nulls[field_id] = chunk.num_values, known.null_count
        if known.has_min_max:
            low, high = bounds(data_type, known.min_raw, known.max_raw)
            lower |= {} if low is None else {field_id: low}
            upper |= {} if high is None else {field_id: high}
    rows = parquet.groups[group].rows
    return without_values(rows)._replace(lower=lower, upper=upper, values=values, nulls=nulls)


def without_values(rows: int) -> FileEntry:
    """Return a data file of which only the number of its rows is known."""
    return FileEntry(EntryStatus.EXISTING, 0, 0, 0, Content.DATA, "", "PARQUET", 0, (), rows, 0)


def _chunks(
    parquet: OpenParquet, group: int, columns: Mapping[str, tuple[Any, Any]]
) -> Iterator[tuple[int, PrimitiveType, pq.ColumnChunkMetaData]]:
    chunks = parquet.groups[group].chunks
    # The metadata of such columns is not asked for.
    if any(chunk.is_encrypted for chunk in chunks):
        return
    metadata = parquet.metadata.row_group(group)
    for number, chunk in enumerate(chunks):
        if chunk.leaf.path in columns:
            yield *columns[chunk.leaf.path], metadata.column(number)


def matching_rows(
    parquet: OpenParquet,
    paged: PagedFile,
    fields: Sequence[FileField],
    group: int,
    schema: Schema,
    filtered: Collection[int],
    may_match: Predicate[FileEntry],
) -> list[range] | None:
    """Return the rows of a row group that may match a filter; None if that leaves little out.

    Args:
        may_match: Whether a file with some statistics may have matching rows.
    """
    rows = parquet.groups[group].rows
    known = columns_with_statistics(parquet, fields, schema).items()
    columns = [
        _PagedColumn(field_id, data_type, column.physical_type, statistics)
        for name, (field_id, data_type) in known
        if field_id in filtered
        and (column := paged.column(group, name)) is not None
        and (statistics := paged.statistics(column))
    ]
    if not columns:
        return None
    borders = sorted({page.rows.start for column in columns for page in column.pages} | {rows})
    spans = (range(start, end) for start, end in pairwise(borders))
    ranges = list(_joined((span for span in spans if may_match(_span(columns, span))), _GAP_ROWS))
    return ranges if sum(map(len, ranges)) <= _MOST * rows else None


def pages_with(paged: PagedFile, names: Sequence[str], group: int, rows: Positions) -> list[range] | None:
    """Return the rows of the pages that have some rows of a row group; None if that leaves little out.

    The borders are those of the column with the largest pages, so that no page is decoded twice.

    Args:
        rows: Rows in the row group, ascending; at least one.
    """
    columns = [column for name in names if (column := paged.column(group, name)) is not None]
    if not columns:
        return None
    spans = min(columns, key=lambda column: len(column.pages)).rows_of_pages
    starts = [span.start for span in spans]
    pages = np.unique(np.searchsorted(starts, rows, "right") - 1)
    ranges = list(_joined((spans[page] for page in pages), 0))
    return ranges if sum(map(len, ranges)) <= _MOST * spans[-1].stop else None


class _PagedColumn:
    """The pages of a column of a row group."""

    def __init__(
        self, field_id: int, data_type: PrimitiveType, physical_type: int, pages: Sequence[PageStatistics]
    ) -> None:
        self.field_id = field_id
        self.pages = pages
        self._type = data_type
        self._form = _PLAIN.get(physical_type)
        self._starts = [page.rows.start for page in pages]

    def page(self, row: int) -> PageStatistics:
        return self.pages[bisect_right(self._starts, row) - 1]

    def bounds(self, page: PageStatistics) -> tuple[bytes | None, bytes | None]:
        if page.low is None or page.high is None:
            return None, None
        if self._form is None:
            return bounds(self._type, page.low, page.high)
        size = struct.calcsize(self._form)
        if len(page.low) != size or len(page.high) != size:
            return None, None
        return bounds(self._type, *struct.unpack(self._form, page.low), *struct.unpack(self._form, page.high))


def _span(columns: Sequence[_PagedColumn], span: range) -> FileEntry:
    """Return some rows, which are of one page in each column, with its statistics as if they were a data file."""
    entry = without_values(len(span))
    lower, upper, values, nulls = dict[int, bytes](), dict[int, bytes](), dict[int, int](), dict[int, int]()
    for column in columns:
        page = column.page(span.start)
        if page.nulls is not None:
            values[column.field_id], nulls[column.field_id] = len(page.rows), page.nulls
        low, high = column.bounds(page)
        lower |= {} if low is None else {column.field_id: low}
        upper |= {} if high is None else {column.field_id: high}
    return entry._replace(lower=lower, upper=upper, values=values, nulls=nulls)


def _joined(spans: Iterable[range], gap: int) -> Iterator[range]:
    """Yield the spans, those with a small gap as one."""
    joined: range | None = None
    for span in spans:
        if joined is not None and span.start > joined.stop + gap:
            yield joined
            joined = None
        joined = span if joined is None else range(joined.start, span.stop)
    if joined is not None:
        yield joined

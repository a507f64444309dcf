"""Leaves out row groups and pages of a Parquet file without rows that match a filter, by its statistics."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from volley.formats.parquet import OpenParquet
from volley.formats.parquet_index import PagedFile, PageStatistics
from volley.iceberg.layout.partitions import bounds
from volley.iceberg.read.entries import Content, EntryStatus, FileEntry
from volley.iceberg.read.projection import FileField
from volley.iceberg.read.pruning import Predicate

__all__ = ["Positions", "matching_parts", "pages_with"]

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
    TimestampNanoType: (pa.timestamp("ns"),),
    TimestamptzNanoType: (pa.timestamp("ns", "UTC"),),
}

_PLAIN = {1: "<i", 2: "<q", 4: "<f", 5: "<d"}
# Reading single pages has a cost of its own: ranges with a small gap are read as one, and a row group of which most
# rows may match is read as a whole.
_GAP_ROWS = 8_192
_MOST = 0.5


_Statistics = tuple[int, tuple[int, int] | None, tuple[bytes | None, bytes | None]]
"""A field's id, its numbers of values and of nulls, and its bounds."""


def matching_parts(
    parquet: OpenParquet,
    paged: PagedFile,
    fields: Sequence[FileField],
    groups: Iterable[int],
    schema: Schema,
    may_match: Predicate[FileEntry],
    filtered: Collection[int],
) -> tuple[list[int], dict[int, list[range]]]:
    """Return the row groups that may have rows that match a filter, and the rows of those of which most do not match.

    Args:
        groups: The numbers of the row groups to choose from.
        may_match: Whether a file with some statistics may have matching rows.
        filtered: The ids of the fields that the filter names.
    """
    known = _columns_with_statistics(parquet, fields, schema)
    matches = [
        group
        for group in groups
        if may_match(_as_file(parquet.groups[group].rows, _group_statistics(parquet, group, known)))
    ]
    known = {name: column for name, column in known.items() if column[0] in filtered}
    ranges = {}
    for group in matches:
        columns = list(_paged_columns(paged, group, known))
        if columns and (rows := _matching_ranges(columns, parquet.groups[group].rows, may_match)) is not None:
            ranges[group] = rows
    return matches, ranges


def _columns_with_statistics(
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


def _as_file(rows: int, statistics: Iterable[_Statistics]) -> FileEntry:
    """Return a part of a file as if it were a data file with these statistics."""
    lower, upper, values, nulls = dict[int, bytes](), dict[int, bytes](), dict[int, int](), dict[int, int]()
    for field_id, counts, (low, high) in statistics:
        if counts is not None:
            values[field_id], nulls[field_id] = counts
        if low is not None:
            lower[field_id] = low
        if high is not None:
            upper[field_id] = high
    nothing = FileEntry(EntryStatus.EXISTING, 0, 0, 0, Content.DATA, "", "PARQUET", 0, (), rows, 0)
    return nothing._replace(lower=lower, upper=upper, values=values, nulls=nulls)


def _group_statistics(
    parquet: OpenParquet, group: int, columns: Mapping[str, tuple[int, Any]]
) -> Iterator[_Statistics]:
    """Yield the statistics of a row group's columns."""
    chunks = parquet.groups[group].chunks
    # The metadata of such columns is not asked for.
    if any(chunk.is_encrypted for chunk in chunks):
        return
    metadata = parquet.metadata.row_group(group)
    for number in (number for number, chunk in enumerate(chunks) if chunk.leaf.path in columns):
        field_id, data_type = columns[chunks[number].leaf.path]
        chunk = metadata.column(number)
        known = chunk.statistics if chunk.is_stats_set else None
        if known is not None:
            counts = (chunk.num_values, known.null_count) if known.has_null_count else None
            limits = bounds(data_type, known.min_raw, known.max_raw) if known.has_min_max else (None, None)
            yield field_id, counts, limits


def _paged_columns(paged: PagedFile, group: int, columns: Mapping[str, tuple[int, Any]]) -> Iterator[_PagedColumn]:
    for name, (field_id, data_type) in columns.items():
        column = paged.column(group, name)
        pages = None if column is None else paged.statistics(column)
        if column is not None and pages:
            yield _PagedColumn(field_id, data_type, column.physical_type, pages)


def _matching_ranges(columns: Sequence[_PagedColumn], rows: int, may_match: Predicate[FileEntry]) -> list[range] | None:
    """Return the rows whose pages may have matching rows; None if that leaves little out."""
    borders = sorted({page.rows.start for column in columns for page in column.pages} | {rows})
    spans = (range(start, end) for start, end in pairwise(borders))
    matches = (
        span for span in spans if may_match(_as_file(len(span), (column.statistics(span) for column in columns)))
    )
    ranges = list(_joined(matches, _GAP_ROWS))
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

    def statistics(self, span: range) -> _Statistics:
        """Return the statistics of the page that has some rows."""
        page = self.pages[bisect_right(self._starts, span.start) - 1]
        return self.field_id, None if page.nulls is None else (len(page.rows), page.nulls), self._bounds(page)

    def _bounds(self, page: PageStatistics) -> tuple[bytes | None, bytes | None]:
        if page.low is None or page.high is None:
            return None, None
        if self._form is None:
            return bounds(self._type, page.low, page.high)
        size = struct.calcsize(self._form)
        if len(page.low) != size or len(page.high) != size:
            return None, None
        return bounds(self._type, *struct.unpack(self._form, page.low), *struct.unpack(self._form, page.high))


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

"""Chooses the rows of a row group whose pages may have matches of a filter, or some positions, by its page index."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from volley.formats.parquet import OpenParquet
from volley.formats.parquet_index import PagedFile, PageStatistics
from volley.iceberg.layout.bounds import bounds
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.position_deletes import Positions
from volley.iceberg.read.projection import FileField
from volley.iceberg.read.pruning import Predicate
from volley.iceberg.read.row_groups import columns_with_statistics, without_values

__all__ = ["matching_rows", "pages_with"]

_PLAIN = {1: "<i", 2: "<q", 4: "<f", 5: "<d"}
# Reading single pages has a cost of its own: ranges with a small gap are read as one, and a row group of which most
# rows may match is read as a whole.
_GAP_ROWS = 8_192
_MOST = 0.5


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
        parquet: The open file.
        paged: Its page index.
        fields: Its columns.
        group: The number of the row group.
        schema: The table's schema.
        filtered: The ids of the fields that the filter names.
        may_match: Whether a file with some statistics may have matching rows.
    """
    rows = parquet.groups[group].rows
    known = columns_with_statistics(parquet, fields, schema).items()
    columns = [
        _Column(field_id, data_type, column.physical_type, statistics)
        for name, (field_id, data_type) in known
        if field_id in filtered
        and (column := paged.column(group, name)) is not None
        and (statistics := paged.statistics(column))
    ]
    if not columns:
        return None
    borders = sorted({page.rows.start for column in columns for page in column.pages} | {rows})
    spans = (range(start, end) for start, end in pairwise(borders))
    ranges = list(_joined((span for span in spans if may_match(_as_file(columns, span))), _GAP_ROWS))
    return ranges if sum(map(len, ranges)) <= _MOST * rows else None


def pages_with(paged: PagedFile, names: Sequence[str], group: int, rows: Positions) -> list[range] | None:
    """Return the rows of the pages that have some rows of a row group; None if that leaves little out.

    The borders are those of the column with the largest pages, so that no page is decoded twice.

    Args:
        paged: The file's page index.
        names: The columns to read.
        group: The number of the row group.
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


class _Column:
    """The pages of a column of a row group.

    Args:
        field_id: The column's field.
        data_type: Its type.
        physical_type: The number of the type it is stored with.
        pages: Its pages, in the order of their rows.
    """

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


def _as_file(columns: Sequence[_Column], span: range) -> FileEntry:
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

"""Takes single values out of a Parquet column without decoding its pages: those that are stored one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from volley.formats.parquet_footer import damaged
from volley.formats.parquet_index import PagedColumn, PagedFile

__all__ = ["plain_values"]

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
        paged: The file.
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

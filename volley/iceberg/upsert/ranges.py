"""The ranges of an epoch's keys, and whether a file, a row group or a page may have one of them, by its bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.types import NestedField, PrimitiveType

from volley.columns.keys.search import whole_numbers
from volley.iceberg.read.entries import FileEntry

__all__ = ["KeyRange", "SearchedKey", "may_have", "ranges_of", "union"]

KeyRange = tuple[Any, Any]
"""A lowest and a highest value, in the form of Iceberg's bounds."""
SearchedKey = tuple[NestedField, Sequence[KeyRange] | None]
"""A key column, and sorted ranges without overlaps that contain the values to find; None = any value."""

# So many keys are known one by one: scattered over as many files, they leave a third of these out. Of more keys, so
# many ranges are known.
_FEW, _PIECES = 1_024, 32


def ranges_of(column: pa.Array | pa.ChunkedArray) -> list[KeyRange] | None:
    """Return ranges that contain all values; several for numbers, so that gaps between them are known.

    Example:
        >>> ranges_of(pa.array([5, 1, 5]))
        [(1, 1), (5, 5)]
    """
    numbers = whole_numbers(column)
    if numbers is not None:
        distinct = np.unique(numbers)
        pieces = np.array_split(distinct, max(1, len(distinct)) if len(distinct) <= _FEW else _PIECES)
        return [(int(piece[0]), int(piece[-1])) for piece in pieces if len(piece)]
    try:
        limits = pc.min_max(column).as_py()
    except pa.ArrowNotImplementedError:
        return None
    return [(limits["min"], limits["max"])]


def union(parts: Iterable[Sequence[KeyRange] | None]) -> list[KeyRange] | None:
    """Return the ranges of all parts, sorted and without overlaps; None if one is unknown."""
    known = list(parts)
    if any(part is None for part in known):
        return None
    joined: list[KeyRange] = []
    for low, high in sorted(chain.from_iterable(part for part in known if part is not None)):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def may_have(keys: Iterable[SearchedKey], file: FileEntry) -> bool:
    """Return True if each key column of a file, or of a part of one, may have a value to find."""
    return all(ranges is None or _may_meet(ranges, _bounds(file, field)) for field, ranges in keys)


def _bounds(file: FileEntry, field: NestedField) -> KeyRange | None:
    low, high = file.lower.get(field.field_id), file.upper.get(field.field_id)
    data_type = field.field_type
    if low is None or high is None or not isinstance(data_type, PrimitiveType):
        return None
    return from_bytes(data_type, low), from_bytes(data_type, high)


def _may_meet(ranges: Sequence[KeyRange], bounds: KeyRange | None) -> bool:
    """Return True if one of the ranges overlaps the bounds."""
    if bounds is None:
        return True
    low, high = bounds
    first = bisect_left(ranges, low, key=lambda key_range: key_range[1])
    return first < len(ranges) and bool(ranges[first][0] <= high)

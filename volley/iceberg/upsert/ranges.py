"""The ranges of an epoch's keys, and whether a file, a row group or a page may have one of them, by its bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from volley.columns.keys.search import distinct_numbers, whole_numbers
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.pruning import decoded_bounds

__all__ = ["KeyRange", "SearchedKey", "may_have", "ranges_of", "union"]

KeyRange = tuple[Any, Any]
"""A lowest and a highest value, in the form of Iceberg's bounds."""
SearchedKey = tuple[NestedField, Sequence[KeyRange] | None]
"""A key column, and sorted ranges without overlaps that contain the values to find; None = any value."""

# So many keys are known one by one: scattered over as many files, they leave a third of these out. Of more keys, so
# many ranges are known; of more texts, whose bounds may be long, one.
_FEW, _PIECES = 1_024, 32
_FEW_BYTES = 64 << 10


def ranges_of(column: pa.Array | pa.ChunkedArray) -> list[KeyRange] | None:
    """Return sorted ranges that contain all values, so that gaps between these are known; None = unknown.

    Args:
        column: Keys in their normal form, without nulls.

    Example:
        >>> ranges_of(pa.array([5, 1, 5]))
        [(1, 1), (5, 5)]
    """
    numbers = whole_numbers(column)
    if numbers is not None:
        distinct = distinct_numbers(numbers)
        pieces = np.array_split(distinct, max(1, len(distinct)) if len(distinct) <= _FEW else _PIECES)
        return [(int(piece[0]), int(piece[-1])) for piece in pieces if len(piece)]
    if len(column) <= _FEW and column.nbytes <= _FEW_BYTES:
        return [(value, value) for value in sorted(set(column.to_pylist()))]
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
    return all(
        ranges is None or _may_meet(ranges, decoded_bounds(field.field_type, *_bounds(file, field.field_id)))
        for field, ranges in keys
    )


def _bounds(file: FileEntry, field_id: int) -> tuple[bytes | None, bytes | None]:
    return file.lower.get(field_id), file.upper.get(field_id)


def _may_meet(ranges: Sequence[KeyRange], bounds: KeyRange) -> bool:
    """Return True if one of the ranges overlaps the bounds; a bound of None is unknown."""
    low, high = bounds
    first = 0 if low is None else bisect_left(ranges, low, key=lambda key_range: key_range[1])
    return first < len(ranges) and (high is None or bool(ranges[first][0] <= high))

"""Hashes of rows that are the same in every process, and the buckets that keys belong to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.arrow.murmur3 import first_halves
from volley.arrow.value_bytes import value_bytes

__all__ = ["buckets_of", "hashes_of"]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(31)


def hashes_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """Return a hash of each row.

    Args:
        columns: At least one column of values that are not nested; equal numbers have equal bytes.
    """
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        hashes = hashes * _FACTOR + _of_column(column)
    return hashes


def buckets_of(columns: Sequence[pa.Array], buckets: int, rows: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each row, from 0; without a column all rows are in the first.

    Args:
        columns: The keys.
        buckets: The number of buckets.
        rows: The number of rows.
    """
    if not columns:
        return np.zeros(rows, np.int64)
    return (hashes_of(columns) % np.uint64(buckets)).astype(np.int64)


def _of_column(column: pa.Array) -> npt.NDArray[np.uint64]:
    hashes = first_halves(*value_bytes(column), seed=0)
    if column.null_count:
        hashes[~column.is_valid().to_numpy(zero_copy_only=False)] = _NULL
    return hashes

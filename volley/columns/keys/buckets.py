"""Buckets of keys: shares of rows by a hash, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from volley.columns.keys.equality import Hashes, Indices, hashes
from volley.columns.keys.murmur3 import first_halves, value_bytes
from volley.columns.keys.normal import comparable, normal, numbered

__all__ = ["Divided", "bucket_bounds", "buckets_of", "divided", "kept_buckets", "kept_hashes", "key_hashes"]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(31)
_SMALL = 1 << 16


def key_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Return a hash of each key of one side of a join: equal keys of the other side have the same one."""
    return hashes(comparable(columns))


def buckets_of(columns: Sequence[pa.Array], buckets: int, rows: int) -> Indices:
    """Return the bucket of each row, from 0; without a column all rows are in the first.

    No later version of Volley may read what is in these buckets: see `kept_buckets`.

    Example:
        >>> first, second, third = buckets_of([pa.array([-0.0, 1.5, 0.0])], 1 << 30, 3).tolist()
        >>> first == third, first == second
        (True, False)
    """
    if not columns:
        return np.zeros(rows, np.int64)
    return _buckets(hashes(numbered([normal(column) for column in columns])), buckets)


def kept_buckets(columns: Sequence[pa.Array], buckets: int, rows: int) -> Indices:
    """Return the bucket of each row in a job's state; without a column all rows are in the first.

    Args:
        columns: The keys in their normal form, not nested.
    """
    return _buckets(kept_hashes(columns), buckets) if columns else np.zeros(rows, np.int64)


def kept_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Return a hash of each row that no version of Volley changes, as states and sketches keep it.

    Args:
        columns: At least one column in normal form, not nested.
    """
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = mixed * _FACTOR + _kept_hashes(column)
    return mixed


def _kept_hashes(column: pa.Array) -> Hashes:
    hashed = first_halves(*value_bytes(column), seed=0)
    if column.null_count:
        hashed[~column.is_valid().to_numpy(zero_copy_only=False)] = _NULL
    return hashed


def _buckets(hashed: Hashes, buckets: int) -> Indices:
    return (hashed % np.uint64(buckets)).astype(np.int64)


class Divided(NamedTuple):
    """Rows in the order of their buckets.

    Args:
        bounds: Where each bucket starts, and where the last one ends.
    """

    rows: Any
    buckets: Sequence[int]
    bounds: Sequence[int]

    def parts(self) -> Iterator[tuple[int, Any]]:
        """Yield each bucket with its rows."""
        for bucket, (start, end) in zip(self.buckets, pairwise(self.bounds), strict=True):
            yield bucket, self.rows.slice(start, end - start)


def divided(rows: pa.RecordBatch | pa.Table, buckets: Indices) -> Divided:
    """Return rows in the order of their buckets; those of a bucket keep theirs.

    Example:
        >>> rows = divided(pa.record_batch({"id": [1, 2, 3]}), np.array([7, 5, 7]))
        >>> [(bucket, part.column("id").to_pylist()) for bucket, part in rows.parts()]
        [(5, [2]), (7, [1, 3])]
    """
    # NumPy sorts numbers of 16 bits by their digits, in a tenth of the time.
    order = np.argsort(buckets.astype(np.uint16) if buckets.max(initial=0) < _SMALL else buckets, kind="stable")
    buckets = buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    return Divided(rows.take(pa.array(order)), buckets[starts].tolist(), [*starts.tolist(), len(order)])


def bucket_bounds(hashed: Hashes, bits: int) -> Indices:
    """Return where each of ``2 ** bits`` buckets begins among sorted hashes, and where the last one ends.

    Args:
        hashed: The hashes of keys, in ascending order.
        bits: The first bits of a hash are its bucket's number.
    """
    firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(1, np.uint64)
    return np.append(np.searchsorted(hashed, firsts), len(hashed))

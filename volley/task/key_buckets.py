"""Divides the rows of a table into buckets by the hash of their key, also more rows than fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from volley.arrow.keys.buckets import Divided, bucket_bounds, key_hashes
from volley.arrow.keys.normal import are_valid
from volley.store.rows import RowStore, one_bucket

__all__ = ["KeyBuckets"]

# A bucket has an eighth of the bytes that memory is meant for, at most: a task goes from one to the next.
_SHARE = 8
_MOST_BITS = 12

_HASH = "_volley_hash"


class KeyBuckets:
    """Collects rows, then returns them by bucket, in their order; those with a null key are left out.

    Rows beyond `max_bytes` wait on local disk, in runs that are sorted by the hash of the key.

    Args:
        schema: The rows' columns.
        keys: The key columns.
        max_bytes: The most bytes of rows in memory; up to this size all rows are one bucket.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], max_bytes: int) -> None:
        self._schema = schema
        self._keys = keys
        self._max_bytes = max_bytes
        self._rows = RowStore(max_bytes, self._by_hash)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            StorageError: If the local disk is full.
        """
        keys = rows.select(list(self._keys)).columns
        if any(key.null_count for key in keys):
            rows = rows.filter(pa.array(are_valid(keys)))
        self._rows.append(rows)

    @property
    def bits(self) -> int:
        """The number of bits of a hash that number its bucket: there are ``2 ** bits`` buckets."""
        size = self._rows.size
        wanted = _SHARE * size // self._max_bytes if size > self._max_bytes else 0
        return min(wanted.bit_length(), _MOST_BITS)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each bucket.

        Raises:
            StorageError: If the local disk is full.
        """
        bits = self.bits
        if not bits:
            yield pa.Table.from_batches(self._rows.waiting, self._schema)
            return
        hashed = self._rows.read(0)
        bounds = [bucket_bounds(run.column(_HASH).to_numpy(), bits) for run in hashed]
        runs = [run.drop_columns([_HASH]) for run in hashed]
        for bucket in range(1 << bits):
            places = [(run, *at[bucket : bucket + 2].tolist()) for run, at in zip(runs, bounds, strict=True)]
            yield pa.Table.from_batches([run.slice(start, end - start) for run, start, end in places], self._schema)

    def _by_hash(self, rows: pa.RecordBatch) -> Divided:
        hashed = key_hashes(rows.select(list(self._keys)).columns)
        order = np.argsort(hashed, kind="stable")
        return one_bucket(rows.take(pa.array(order)).append_column(_HASH, pa.array(hashed[order])))

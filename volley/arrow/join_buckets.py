"""A joined table's rows in buckets by the hash of their key, for tables that are larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from volley.arrow.join_index import Hashes, Indices, JoinIndex

__all__ = ["JoinBuckets", "bucket_bounds"]


def bucket_bounds(hashed: Hashes, bits: int) -> Indices:
    """Return where each bucket begins among sorted hashes, and where the last one ends.

    Args:
        hashed: The hashes of keys, in ascending order.
        bits: The table has ``2 ** bits`` buckets: the first bits of a hash are the bucket's number.
    """
    firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(1, np.uint64)
    return np.append(np.searchsorted(hashed, firsts), len(hashed))


@dataclass(frozen=True)
class JoinBuckets:
    """The rows of a table: an index for each bucket.

    Args:
        bits: The table has ``2 ** bits`` buckets.
        load: Returns the index of a bucket, by its number.
        is_loaded: Tells whether the index of a bucket is at hand.
    """

    bits: int
    load: Callable[[int], JoinIndex]
    is_loaded: Callable[[int], bool] = lambda _: True

    def divide(self, hashed: Hashes) -> Iterator[tuple[slice, JoinIndex]]:
        """Yield where the keys of one bucket are, with its index; each bucket once.

        Those that are loaded come first: what is loaded later may push them out.

        Args:
            hashed: The hashes of a stream's keys, in ascending order.
        """
        bounds = bucket_bounds(hashed, self.bits)
        for bucket in sorted(np.flatnonzero(np.diff(bounds)).tolist(), key=self.is_loaded, reverse=True):
            yield slice(bounds[bucket], bounds[bucket + 1]), self.load(bucket)

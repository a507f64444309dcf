"""Theta sketches: they estimate how many distinct values there are, and can be joined.

The hash, and the form of the bytes, are those of Apache DataSketches ("Theta Sketch Framework", serial version 3).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.columns.keys.murmur3 import first_halves, value_bytes

__all__ = ["ThetaSketch"]

_SEED = 9001
_MOST = 4096
_ALL = 1 << 63
_SERIAL_VERSION, _COMPACT_FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 2, 4, 8, 16


@dataclass(frozen=True, eq=False)
class ThetaSketch:
    """The smallest hashes of a set of values.

    Args:
        hashes: Distinct hashes below `theta`, in ascending order.
        theta: The upper end of the hashes that are kept, of 2⁶³ that are possible.

    Example:
        >>> import pyarrow as pa
        >>> a, b = ThetaSketch.of(pa.array([1, 2, None])), ThetaSketch.of(pa.array([2, 3]))
        >>> a.union(b).estimate
        3
    """

    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    theta: int = _ALL

    @classmethod
    def of(cls, values: pa.Array) -> ThetaSketch:
        """Return the sketch of the values of an array that are neither null nor empty."""
        data, starts, lengths = value_bytes(values.drop_null())
        filled = lengths > 0
        hashes = first_halves(data, starts[filled], lengths[filled], _SEED) >> np.uint64(1)
        return _joined(cls(), hashes[hashes > 0])

    def union(self, other: ThetaSketch) -> ThetaSketch:
        """Return the sketch of the values of both."""
        smaller, larger = sorted((self, other), key=lambda sketch: sketch.theta)
        return _joined(smaller, larger.hashes)

    @property
    def estimate(self) -> int:
        """The number of distinct values; exact up to 4,096, then with a relative standard error of 1.6 %."""
        return int(len(self.hashes) / (self.theta / _ALL))

    def to_bytes(self) -> bytes:
        """Return the compact, ordered form."""
        flags = _READ_ONLY | _COMPACT | _ORDERED | (0 if len(self.hashes) else _EMPTY)
        # A single hash needs no count.
        longs = 3 if self.theta < _ALL else 2 if len(self.hashes) > 1 else 1
        head = struct.pack("<BBBBBBH", longs, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, flags, _seed_hash())
        count = struct.pack("<Q", len(self.hashes)) if longs > 1 else b""
        theta = struct.pack("<Q", self.theta) if longs > 2 else b""
        return head + count + theta + self.hashes.astype("<u8").tobytes()


def _joined(sketch: ThetaSketch, hashes: npt.NDArray[np.uint64]) -> ThetaSketch:
    kept = np.union1d(sketch.hashes, hashes[hashes < sketch.theta])
    if len(kept) <= _MOST:
        return ThetaSketch(kept, sketch.theta)
    return ThetaSketch(kept[:_MOST], int(kept[_MOST]))


@cache
def _seed_hash() -> int:
    first, _ = mmh3.hash64(struct.pack("<q", _SEED), 0, signed=False)
    return int(first) & 0xFFFF

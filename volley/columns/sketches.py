"""Sketches of Apache DataSketches as states: few values are kept as they are, more of them as a sketch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from volley.columns.exact import doubles
from volley.columns.groups import GroupBounds, StateColumns, as_lists, items_of
from volley.columns.keys.buckets import kept_hashes
from volley.columns.keys.search import distinct_numbers
from volley.registry import installed

__all__ = ["DIGEST", "HYPERLOGLOG", "Sketch"]

_FEW = 256
# 2^11 registers: a standard error of 1.6 %.
_REGISTERS = 11
_CENTROIDS = 200


class Sketch(ABC):
    """A kind of sketch. A state is a list of items, and a sketch of those that were too many for the list."""

    item: pa.DataType

    def check(self) -> None:
        """Raise MissingDependencyError if the package is not installed."""
        installed("datasketches")

    @abstractmethod
    def items(self, values: pa.Array) -> pa.Array:
        """Return the item of each value; null = none."""

    @abstractmethod
    def fold(self, sketches: list[bytes], items: Any) -> bytes:
        """Return one sketch of sketches and of a NumPy array of items."""

    @abstractmethod
    def result(self, parameter: float | None, sketch: bytes | None, items: Any) -> float | None:
        """Return the result of a state."""

    def merge(self, state: StateColumns, offsets: GroupBounds) -> StateColumns:
        """Return one state for each group."""
        items, ends = items_of(state[0], offsets)
        numbers, present = items.to_numpy(zero_copy_only=False), state[1].is_valid().to_numpy(zero_copy_only=False)
        has_sketch = np.logical_or.reduceat(present, offsets[:-1])
        folded = np.flatnonzero(has_sketch | (np.diff(ends) > _FEW))
        merged: list[bytes | None] = [None] * (len(offsets) - 1)
        remains = np.ones(len(numbers), bool)
        for group in folded:
            before = state[1].slice(offsets[group], offsets[group + 1] - offsets[group]).drop_null().to_pylist()
            merged[group] = self.fold(before, numbers[ends[group] : ends[group + 1]])
            remains[ends[group] : ends[group + 1]] = False
        sizes = np.diff(ends)
        sizes[folded] = 0
        rest = as_lists(np.concatenate([[0], np.cumsum(sizes)]), pa.array(numbers[remains], self.item))
        return [rest, pa.array(merged, pa.large_binary())]

    def results(self, parameter: float | None, state: StateColumns) -> pa.Array:
        """Return the result of each state."""
        items, ends = items_of(state[0], np.arange(len(state[0]) + 1))
        numbers = items.to_numpy(zero_copy_only=False)
        results = [
            self.result(parameter, sketch, numbers[start:end])
            for sketch, start, end in zip(state[1].to_pylist(), ends[:-1], ends[1:], strict=True)
        ]
        return pa.array(results, self.result_type)

    result_type: pa.DataType


class _HyperLogLog(Sketch):
    """Counts different values; the items are hashes."""

    item = pa.int64()
    result_type = pa.int64()

    def items(self, values: pa.Array) -> pa.Array:
        hashes = pa.array(kept_hashes([values]).view(np.int64))
        return pa.compute.if_else(values.is_valid(), hashes, pa.scalar(None, pa.int64()))

    def fold(self, sketches: list[bytes], items: Any) -> bytes:
        library = _library()
        union = library.hll_union(_REGISTERS)
        for sketch in sketches:
            union.update(library.hll_sketch.deserialize(sketch))
        for item in distinct_numbers(items).tolist():
            union.update(item)
        serialized: bytes = union.get_result(library.tgt_hll_type.HLL_8).serialize_compact()
        return serialized

    def result(self, parameter: float | None, sketch: bytes | None, items: Any) -> int:
        if sketch is None:
            return len(distinct_numbers(items))
        estimate: float = _library().hll_sketch.deserialize(sketch).get_estimate()
        return round(estimate)


class _Digest(Sketch):
    """Estimates quantiles."""

    item = pa.float64()
    result_type = pa.float64()

    def items(self, values: pa.Array) -> pa.Array:
        numbers = doubles(values)
        return pa.compute.if_else(pa.compute.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)

    def fold(self, sketches: list[bytes], items: Any) -> bytes:
        library = _library()
        digest = library.tdigest_double(_CENTROIDS)
        for sketch in sketches:
            digest.merge(library.tdigest_double.deserialize(sketch))
        if len(items):
            digest.update(items)
        serialized: bytes = digest.serialize()
        return serialized

    def result(self, parameter: float | None, sketch: bytes | None, items: Any) -> float | None:
        assert parameter is not None
        if sketch is None:
            return _exact_quantile(items, parameter) if len(items) else None
        return float(_library().tdigest_double.deserialize(sketch).get_quantile(parameter))


def _exact_quantile(items: Any, parameter: float) -> float:
    """Return the quantile of a few values, interpolated between two of them as in SQL."""
    if np.isinf(items).any():
        # NumPy's interpolation subtracts an infinity from itself.
        lower, higher = (float(np.quantile(items, parameter, method=end)) for end in ("lower", "higher"))
        if np.isinf([lower, higher]).any():
            return lower + higher
    return float(np.quantile(items, parameter))


def _library() -> Any:
    return installed("datasketches")


HYPERLOGLOG: Sketch = _HyperLogLog()
DIGEST: Sketch = _Digest()

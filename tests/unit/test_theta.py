"""Theta sketches and their hash are those of Apache DataSketches."""

from __future__ import annotations

import datasketches
import mmh3
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.columns.keys.murmur3 import first_halves, value_bytes
from volley.iceberg.statistics.compute import ThetaSketch


@given(st.lists(st.binary(max_size=200)), st.integers(0, 2**32 - 1))
def test_hashes_are_those_of_murmur3(values: list[bytes], seed: int) -> None:
    expected = [mmh3.hash64(value, seed, signed=False)[0] for value in values]
    assert first_halves(*value_bytes(pa.array(values, pa.binary())), seed).tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 2, 4_000])
@pytest.mark.parametrize("kind", [int, str, float])
def test_small_sketches_have_the_bytes_of_datasketches(count: int, kind: type) -> None:
    values = [kind(number) for number in range(count)]
    theirs = datasketches.update_theta_sketch()
    for value in values:
        theirs.update(value)
    ours = ThetaSketch.of(pa.array(values, {int: pa.int64(), str: pa.string(), float: pa.float64()}[kind]))
    # They hash 0.0 with another bit pattern than -0.0, but not-a-number and zero each as one value.
    assert ours.to_bytes() == theirs.compact().serialize()
    assert ours.estimate == count


def test_a_large_sketch_is_read_by_datasketches_and_joined() -> None:
    first, second = (pa.array(range(start, start + 60_000)) for start in (0, 40_000))
    ours = ThetaSketch.of(first).union(ThetaSketch.of(second))
    theirs = datasketches.compact_theta_sketch.deserialize(ours.to_bytes())
    assert theirs.get_estimate() == pytest.approx(ours.estimate, abs=1)
    assert theirs.get_lower_bound(3) <= 100_000 <= theirs.get_upper_bound(3)
    assert ours.to_bytes() == ThetaSketch.of(second).union(ThetaSketch.of(first)).to_bytes()
    assert ours.to_bytes() == ours.union(ThetaSketch.of(first)).to_bytes()


def test_nulls_and_empty_values_do_not_count() -> None:
    assert ThetaSketch.of(pa.array(["", None, "a", "a"])).estimate == 1
    assert ThetaSketch.of(pa.array([None, None], pa.int32())).estimate == 0


def test_a_slice_has_its_own_values() -> None:
    values = pa.array(["a", "b", None, "c", "b"])
    assert ThetaSketch.of(values[1:4]).to_bytes() == ThetaSketch.of(pa.array(["b", "c"])).to_bytes()
    flags = pa.array([True, False, True])
    assert ThetaSketch.of(flags[:1]).to_bytes() == ThetaSketch.of(flags[2:]).to_bytes()

"""Keys are equal, ordered and hashed as in plain Python, whatever type and encoding a column has."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.columns.keys.buckets import bucket_bounds, buckets_of, divided, kept_buckets, kept_hashes, key_hashes
from volley.columns.keys.equality import differing
from volley.columns.keys.normal import comparable, comparable_type, normal, numbered
from volley.columns.keys.order import from_ordered, ordered, ranks, sort_indices

MANY = 1 << 40
FLOATS = st.one_of(st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf]), st.floats(width=32))
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-3, 3),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): FLOATS,
    pa.float64(): st.one_of(FLOATS, st.floats()),
    pa.string(): st.sampled_from(["", "a", "ab", "ä", "\0"]),
    pa.binary(): st.sampled_from([b"", b"\0", b"\xff"]),
    pa.decimal128(12, 2): st.integers(-5, 5).map(lambda number: Decimal(number).scaleb(-2)),
    pa.timestamp("us"): st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2)),
    pa.timestamp("us", "UTC"): st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2), timezones=st.just(UTC)),
    pa.uuid(): st.integers(0, 3).map(lambda number: UUID(int=number << 62).bytes),
}
EQUAL_TYPES = [
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(12, 2), pa.decimal128(30, 2)),
    (pa.string(), pa.dictionary(pa.int32(), pa.string())),
    (pa.string(), pa.large_string()),
    (pa.string(), pa.string_view()),
    (pa.binary(), pa.binary_view()),
]


def columns(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(st.none(), values), min_size=1, max_size=20)


def key(value: Any) -> Any:
    """What tells a key from others."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    return value


def place(value: Any) -> tuple[Any, ...]:
    """The place of a value in Iceberg's order, nulls first."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value, math.copysign(1, value))
    return (1, value)


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@given(data=st.data())
def test_equal_keys_have_equal_bytes_hashes_and_buckets(data_type: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(columns(TYPES[data_type]))
    column = normal(pa.array(values, data_type))
    numbers = np.arange(len(values))
    ours, theirs = (
        pa.table({"key": column.take(pa.array(each))})
        for each in (np.repeat(numbers, len(values)), np.tile(numbers, len(values)))
    )
    equal = [key(one) == key(other) for one in map(key, values) for other in map(key, values)]
    assert (~differing(ours, theirs)).tolist() == equal
    assert pa.table({"key": column}).group_by("key").aggregate([]).num_rows == len({*map(key, values)})
    for numbers in (buckets_of([column], MANY, len(column)), kept_buckets([column], MANY, len(column))):
        assert [one == other for one in numbers for other in numbers] == equal


@pytest.mark.parametrize(("data_type", "other"), EQUAL_TYPES, ids=str)
@given(data=st.data())
def test_keys_of_two_sides_are_equal_by_value(data_type: pa.DataType, other: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(columns(TYPES[data_type]))
    ours, theirs = pa.array(values, data_type), pa.array(values, data_type).cast(other)
    assert not differing(comparable([ours]), comparable([theirs])).any()
    assert key_hashes([ours]).tolist() == key_hashes([theirs]).tolist()


def test_keys_of_other_types_are_not_compared() -> None:
    assert comparable_type(pa.list_(pa.int64())) is None
    for other in (pa.decimal128(12, 3), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.int64()):
        assert comparable_type(other) != comparable_type(pa.decimal128(12, 2))
    assert comparable_type(pa.timestamp("us")) != comparable_type(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@pytest.mark.parametrize("direction", ["ascending", "descending"])
@given(data=st.data())
def test_rows_are_sorted_as_in_python(data_type: pa.DataType, direction: str, data: st.DataObject) -> None:
    values = data.draw(columns(TYPES[data_type]))
    rows = pa.record_batch({"key": pa.array(values, data_type)})
    order = sort_indices(rows, [("key", direction)]).to_pylist()
    # Rows with equal keys keep their order.
    expected = sorted(range(len(values)), key=lambda row: place(values[row]), reverse=direction == "descending")
    assert order == expected


@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()], ids=str)
@given(data=st.data())
def test_ordered_numbers_are_those_of_floats(data_type: pa.DataType, data: st.DataObject) -> None:
    values = pa.array(data.draw(columns(TYPES[data_type])), data_type)
    numbers = ordered(values)
    assert numbers.null_count == values.null_count
    assert not differing(numbered([from_ordered(numbers, data_type)]), numbered([values])).any()


@given(values=columns(st.tuples(FLOATS, st.sampled_from(["", "a"]))))
def test_structs_are_ranked_by_their_fields(values: list[Any]) -> None:
    structs = pa.array(
        [value and {"a": value[0], "b": value[1]} for value in values], pa.struct({"a": pa.float32(), "b": pa.string()})
    )
    by = numbered(ranks(structs))
    order = pa.compute.sort_indices(by, [(name, "ascending") for name in by.schema.names]).to_pylist()
    places = [((0,),) if value is None else (place(value[0] + 0.0), place(value[1])) for value in values]
    assert order == sorted(range(len(values)), key=places.__getitem__)


@given(numbers=st.lists(st.integers(0, 5), max_size=20))
def test_rows_are_divided_by_bucket(numbers: list[int]) -> None:
    rows = pa.record_batch({"row": pa.array(range(len(numbers)), pa.int64())})
    parts = {bucket: part.column("row").to_pylist() for bucket, part in divided(rows, np.array(numbers, int)).parts()}
    assert list(parts) == sorted({*numbers})
    assert parts == {one: [row for row, number in enumerate(numbers) if number == one] for one in parts}


@given(hashes=st.lists(st.integers(0, 2**64 - 1), max_size=20), bits=st.integers(0, 4))
def test_bounds_are_those_of_the_first_bits(hashes: list[int], bits: int) -> None:
    bounds = bucket_bounds(np.array(sorted(hashes), np.uint64), bits)
    assert np.diff(bounds).tolist() == [
        sum(number >> (64 - bits) == bucket for number in hashes) for bucket in range(1 << bits)
    ]


def test_hashes_of_kept_rows_never_change() -> None:
    """State of 0.2.0 lies in buckets by these."""
    key = [pa.array([1, None, -1], pa.int64()), pa.array(["a", "", "é" * 100]), pa.array([0.5, None, math.nan])]
    assert kept_hashes(key).tolist() == [11167218280405625271, 10121676405443282666, 15886366236609242107]
    uuids = pa.array([bytes(range(16))], pa.binary(16))
    assert kept_hashes([uuids, pa.array([Decimal("-1.50")]), pa.array([True])]).tolist() == [10754453780031148885]
    assert kept_buckets([], 8, 2).tolist() == [0, 0]

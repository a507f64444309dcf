"""`KeySearch` finds the rows that a set of Python's values finds, whatever the type of the keys and their number."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from volley.columns.keys.search import KeySearch, distinct_numbers

ROWS = 3_000
TYPES: dict[str, pa.DataType] = {
    **{"long": pa.int64(), "int": pa.int32(), "time": pa.time64("us"), "timestamp": pa.timestamp("us", "UTC")},
    **{"date": pa.date32(), "text": pa.string(), "bytes": pa.binary(), "fixed": pa.binary(4)},
    **{"decimal": pa.decimal128(9, 2), "boolean": pa.bool_()},
}


def values(data_type: pa.DataType, numbers: np.ndarray[Any, Any]) -> pa.Array:
    """A value of a type for each number; different numbers have different ones, if the type has so many."""
    if pa.types.is_string(data_type):
        return pa.array([f"key {number}" for number in numbers])
    if pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return pa.array([int(number).to_bytes(4, "big") for number in numbers], data_type)
    if pa.types.is_decimal(data_type):
        return pa.array([Decimal(int(number)) / 100 for number in numbers], data_type)
    if pa.types.is_date32(data_type):
        return pa.array([date(1970, 1, 1) + timedelta(int(number)) for number in numbers])
    if pa.types.is_boolean(data_type):
        return pa.array([bool(number % 2) for number in numbers])
    return pa.array(numbers).cast(data_type)


def expected(rows: pa.Table, keys: pa.Table) -> list[int]:
    known = {tuple(row.values()) for row in keys.to_pylist()}
    return [
        number
        for number, row in enumerate(rows.to_pylist())
        if tuple(row.values()) in known and None not in row.values()
    ]


def found(rows: pa.Table, keys: pa.Table) -> list[int]:
    search = KeySearch(keys)
    places = search.rows(rows)
    matches, numbers = search.matches(rows)
    assert matches.tolist() == places.tolist()
    assert rows.take(pa.array(matches)).to_pylist() == keys.take(pa.array(numbers, pa.int64())).to_pylist()
    return [*map(int, places)]


@pytest.mark.parametrize("count", [1, 8, 9, 500])
@pytest.mark.parametrize("data_type", TYPES.values(), ids=TYPES)
def test_rows_of_any_type(data_type: pa.DataType, count: int) -> None:
    random = np.random.default_rng(count)
    rows = pa.table({"k": values(data_type, random.integers(0, ROWS, ROWS))})
    keys = pa.table({"k": values(data_type, random.integers(0, ROWS, count))})
    assert found(rows, keys) == expected(rows, keys)
    # In pieces, as batches come.
    pieces = pa.concat_tables([rows.slice(0, 7), rows.slice(7, 0), rows.slice(7)])
    assert found(pieces, keys) == expected(rows, keys)
    assert found(rows.slice(0, 0), keys) == found(rows, keys.slice(0, 0)) == []


def test_numbers_at_the_ends_of_their_range_and_below_zero() -> None:
    ends = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
    rows = pa.table({"k": pa.array([*ends, *range(-20, 20)])})
    for keys in ([2**63 - 1, -(2**63)], [-1], [*ends, *range(5, 15)], [50, 60]):
        table = pa.table({"k": pa.array(keys, pa.int64())})
        assert found(rows, table) == expected(rows, table)


def test_more_keys_than_are_looked_up_in_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.columns.keys.search._MANY", 100)
    random = np.random.default_rng(5)
    rows = pa.table({"k": random.integers(0, ROWS, ROWS)})
    keys = pa.table({"k": random.permutation(ROWS)[:1_000]})
    assert found(rows, keys) == expected(rows, keys)


def test_a_null_equals_nothing() -> None:
    rows, keys = pa.table({"k": pa.array([1, None, 2, None, 3])}), pa.table({"k": pa.array([3, 1])})
    assert found(rows, keys) == [0, 4]


@pytest.mark.parametrize("second", ["long", "text"])
def test_all_columns_of_a_key_are_compared(second: str) -> None:
    random = np.random.default_rng(6)

    def table(count: int) -> pa.Table:
        numbers = random.integers(0, 40, (2, count))
        return pa.table({"a": numbers[0], "b": values(TYPES[second], numbers[1])})

    rows, keys = table(ROWS), table(300)
    assert found(rows, keys) == expected(rows, keys)
    # The pairs cross, so that each column alone has each value.
    crossed = pa.table({"a": [1, 2], "b": values(TYPES[second], np.array([2, 1]))})
    keys = pa.table({"a": [1, 2], "b": values(TYPES[second], np.array([1, 2]))})
    assert found(crossed, keys) == []


@pytest.mark.parametrize("numbers", [[], [7], [2**63 - 1, -(2**63), 0, -(2**63)], [*range(50), *range(50)]])
def test_numbers_each_once(numbers: list[int]) -> None:
    assert distinct_numbers(np.array(numbers, np.int64)).tolist() == sorted({*numbers})

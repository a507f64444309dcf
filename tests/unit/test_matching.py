"""Equal rows are matched whatever their types; different ones never are."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.columns.keys.equality import differing, hashes, matching_rows

NESTED = pa.struct({"a": pa.list_(pa.int64()), "b": pa.map_(pa.string(), pa.struct({"c": pa.float64()}))})
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, None],
    pa.int32(): [0, -1, 2**31 - 1, None],
    pa.int64(): [0, -1, 2**40, None],
    pa.float32(): [0.0, -0.0, 1.5, math.nan, math.inf, None],
    pa.float64(): [0.0, -0.0, 1.5, math.nan, -math.inf, None],
    pa.string(): ["", "a", "b", "ab", "ba", "\0", "\0\0", "ä", "x" * 100_000, "x" * 99_999 + "y", None],
    pa.binary(): [b"", b"\0", b"\xff", b"ab", None],
    pa.binary(3): [b"abc", b"acb", b"\0\0\0", None],
    pa.binary(16): [b"a" * 16, b"b" * 16, None],
    pa.uuid(): [UUID(int=1).bytes, UUID(int=2**64).bytes, None],
    pa.decimal128(38, 2): [Decimal("0.01"), Decimal("-0.01"), Decimal(2**64), None],
    pa.date32(): [date(1969, 1, 1), date(2024, 2, 29), None],
    pa.time64("us"): [time(1), time(2), None],
    pa.timestamp("us"): [datetime(1969, 1, 1), datetime(3000, 1, 1), None],
    pa.timestamp("us", "UTC"): [datetime(1969, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC), None],
    pa.list_(pa.int64()): [[], [None], [0], [0, 0], [0, None], [1, 2], [2, 1], None],
    pa.list_(pa.list_(pa.string())): [[], [[]], [None], [["a", "b"]], [["a"], ["b"]], [["a"], None, ["b"]], None],
    pa.map_(pa.string(), pa.int64()): [[], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], [("ab", 1)], None],
    pa.struct({"a": pa.int64(), "b": pa.string()}): [
        {"a": None, "b": None},
        {"a": 1, "b": None},
        {"a": 1, "b": ""},
        None,
    ],
    NESTED: [
        {"a": [1], "b": [("k", {"c": math.nan})]},
        {"a": [1], "b": [("k", {"c": 0.0})]},
        {"a": [1], "b": [("k", {"c": -0.0})]},
        {"a": [1], "b": [("k", None)]},
        {"a": [1], "b": None},
        {"a": None, "b": None},
        None,
    ],
}


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_each_value_equals_itself_alone(data_type: pa.DataType) -> None:
    values = pa.array(VALUES[data_type], data_type)
    # Slices have offsets; values under nulls may be anything.
    one = pa.table({"x": pa.concat_arrays([values, values])}).slice(1, len(values))
    for shift in range(len(values)):
        other = pa.table({"x": pa.chunked_array([values, values, values])}).slice(1 + shift, len(values))
        assert differing(one, other).tolist() == [shift != 0] * len(values)
    ours, theirs = matching_rows(one, other, ["x"])
    assert sorted(ours) == sorted(theirs) == list(range(len(values)))
    assert not differing(one.take(ours), other.take(theirs)).any()
    (batch,) = pa.table({"x": values}).to_batches()
    assert len(set(hashes(batch).tolist())) == len(values)


def test_rows_under_null_structs_are_equal_whatever_lies_there() -> None:
    fields = [pa.field("a", pa.int64())]
    one, other = (
        pa.StructArray.from_arrays([pa.array([1, value])], fields=fields, mask=pa.array([False, True]))
        for value in (5, 6)
    )
    left, right = pa.table({"x": one}), pa.table({"x": other})
    assert not differing(left, right).any()
    assert len(matching_rows(left, right, ["x"])[0]) == 2


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "", "a", "b"])), max_size=30)


@given(left=ROWS, right=ROWS)
def test_rows_match_as_in_a_multiset(left: list[Any], right: list[Any]) -> None:
    one, other = (
        pa.table(
            {"a": pa.array([row[0] for row in rows], pa.int64()), "b": pa.array([row[1] for row in rows], pa.string())}
        )
        for rows in (left, right)
    )
    ours, theirs = matching_rows(one, other, ["a", "b"])
    assert [left[i] for i in ours] == [right[i] for i in theirs]
    assert Counter(left[i] for i in ours) == Counter(left) & Counter(right)
    assert len(set(ours.tolist())) == len(ours)
    assert len(set(theirs.tolist())) == len(theirs)
    # Few columns find fewer equal rows, but never different ones.
    ours, theirs = matching_rows(one, other, ["a"])
    assert [left[i] for i in ours] == [right[i] for i in theirs]
    assert not Counter(left[i] for i in ours) - (Counter(left) & Counter(right))


def test_hashes_of_many_texts_differ() -> None:
    texts = pa.array([f"{number}" for number in range(100_000)])
    assert len(np.unique(hashes(pa.record_batch({"x": texts})))) == 100_000

"""Rows sorted within a task: in the order that DuckDB gives them, from memory and from runs on disk."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from volley import DataStream, Environment, ExpressionError, MemorySource, PlanError, WriteResult, col
from volley.columns.keys.order import sort_keys
from volley.contracts.sink import TaskWriter
from volley.task.writers import SortedRows

SCHEMA = pa.schema([("s", pa.string()), ("x", pa.float64()), ("m", pa.decimal128(5, 2)), ("n", pa.int64())])
values = st.fixed_dictionaries(
    {
        "s": st.none() | st.sampled_from(["", "a", "b", "ü"]),
        "x": st.none() | st.sampled_from([0.0, -1.5, 2.0, math.inf, -math.inf, math.nan, -math.nan]),
        "m": st.none() | st.sampled_from([Decimal("1.50"), Decimal("-2.00")]),
    }
)


class Kept(TaskWriter):
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def close(self) -> WriteResult:
        return WriteResult(rows=sum(batch.num_rows for batch in self.batches))


@given(
    batches=st.lists(st.lists(values, min_size=1, max_size=6), min_size=1, max_size=5),
    run_bytes=st.sampled_from([1, 200, 1 << 20]),
    directions=st.tuples(*[st.sampled_from(["", " asc", " desc", " DESC"])] * 3),
)
def test_the_order_is_that_of_a_database(
    batches: list[list[dict[str, Any]]], run_bytes: int, directions: tuple[str, str, str]
) -> None:
    rows = [row for batch in batches for row in batch]
    for number, row in enumerate(rows):
        row["n"] = number
    kept = Kept()
    order = [f"{name}{direction}" for name, direction in zip("sxm", directions, strict=True)]
    writer = SortedRows(kept, sort_keys(order, SCHEMA), 4, run_bytes)
    for batch in batches:
        writer.write(pa.RecordBatch.from_pylist(batch, SCHEMA))
    assert writer.close().rows == len(rows)
    assert all(batch.num_rows <= 4 for batch in kept.batches)
    nulls = [" nulls last" if "desc" in direction.lower() else " nulls first" for direction in directions]
    by = ", ".join(f"{text}{null}" for text, null in zip(order, nulls, strict=True))
    expected = query(f"select n from rows order by {by}, n", rows=pa.Table.from_pylist(rows, SCHEMA)).fetchall()
    assert [n for batch in kept.batches for n in batch["n"].to_pylist()] == [row[0] for row in expected]


def stream(*rows: dict[str, Any]) -> DataStream:
    return Environment().from_source(MemorySource(list(rows)))


def test_rows_are_sorted_before_a_job_runs() -> None:
    rows = stream({"a": 2, "b c": "x"}, {"a": 1, "b c": "y"}, {"a": 1, "b c": "z"})
    assert rows.sort_within_epoch("a", "b c desc").to_arrow()["b c"].to_pylist() == ["z", "y", "x"]
    assert rows.filter(col("a") > 1).sort_within_epoch("a").head().num_rows == 1


def test_what_can_not_be_sorted() -> None:
    with pytest.raises(ExpressionError, match="no column 'c' to sort by"):
        stream({"a": 1}).sort_within_epoch("c desc").schema  # noqa: B018
    with pytest.raises(ExpressionError, match="can't be sorted by 'a', which is array<long>"):
        stream({"a": [1]}).sort_within_epoch("a").schema  # noqa: B018
    with pytest.raises(ExpressionError, match="without columns"):
        stream({"a": 1}).sort_within_epoch()
    with pytest.raises(PlanError, match="a step behind sort_within_epoch by 'a'"):
        stream({"a": 1}).sort_within_epoch("a").drop("a")
    with pytest.raises(PlanError, match="a step behind sort_within_epoch"):
        stream({"a": 1}).union(stream({"a": 1}).sort_within_epoch("a"))
    with pytest.raises(PlanError, match=r'here orderBy is sort_within_epoch\("id"\)'):
        stream({"a": 1}).orderBy("a")  # type: ignore[attr-defined]

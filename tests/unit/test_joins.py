"""Joins with a table, in this process: case by case; tests/properties compares random rows with DuckDB."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    IcebergStorage,
    MemorySink,
    MemorySource,
    PlanError,
    SourceError,
    col,
    testing,
)
from volley.columns.exact import array_of
from volley.columns.join_index import JoinBuckets, JoinIndex, build_index
from volley.columns.keys.buckets import key_hashes
from volley.iceberg import IcebergTable, TableRef
from volley.stream.stream import DataStream

ORDERS: list[dict[str, Any]] = [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}, {"id": 3, "item": None}]
ITEMS: list[dict[str, Any]] = [
    {"item": "a", "name": "Apple"},
    {"item": "a", "name": "Ananas"},
    {"item": None, "name": "?"},
]
TAGGED = [{**item, "tags": ["x"]} for item in ITEMS]


def stream(table: pa.Table) -> DataStream:
    return Environment().from_source(MemorySource(table))


def orders(rows: list[dict[str, Any]] = ORDERS) -> DataStream:
    return Environment().from_source(MemorySource(rows))


def test_several_matches_come_several_times_and_nulls_match_nothing() -> None:
    inner = orders().join(MemorySource(ITEMS), on="item")
    assert sorted(row["name"] for row in inner.to_arrow().to_pylist()) == ["Ananas", "Apple"]
    left = orders().join(MemorySource(ITEMS), on="item", how="left").to_arrow().to_pylist()
    assert [(row["id"], row["name"]) for row in left if row["id"] > 1] == [(2, None), (3, None)]


def test_columns_are_chosen_and_renamed() -> None:
    items = MemorySource([{"code": "a", "id": 7, "name": "Apple"}])
    joined = orders().join(items, on={"item": "code"}, columns=["name", "id"], suffix="_item")
    assert joined.columns == ["id", "item", "name_item", "id_item"]
    assert joined.head().to_pylist() == [{"id": 1, "item": "a", "name_item": "Apple", "id_item": 7}]
    assert orders().join(items, on={"item": "code"}, columns=["code"]).columns == ["id", "item", "code"]


def test_numbers_of_two_widths_match() -> None:
    left = pa.table({"i": pa.array([1, 2], pa.int32()), "f": pa.array([0.5, -0.0], pa.float32())})
    right = pa.table({"i": pa.array([2], pa.int64()), "f": pa.array([0.0], pa.float64()), "ok": [True]})
    assert stream(left).join(MemorySource(right), on=["i", "f"]).to_arrow()["ok"].to_pylist() == [True]


def test_ties_of_an_as_of_join_go_to_the_greater_row() -> None:
    prices = [{"item": "a", "since": 5, "price": price} for price in (7, None, 9, 8)]
    rows = [{"item": "a", "at": at} for at in (4, 5, 6)]
    for order in (prices, prices[::-1]):
        joined = orders(rows).join(MemorySource(order), on="item", how="left", as_of=("at", "since"))
        assert [row["price"] for row in joined.to_arrow().to_pylist()] == [None, 9, 9]


@pytest.mark.parametrize(
    ("data_type", "values", "greatest"),
    [
        (pa.float64(), [1.0, math.nan, None], math.nan),
        (pa.uuid(), [UUID(int=1), UUID(int=2), None], UUID(int=2)),
        (pa.bool_(), [False, True, None], True),
        (pa.struct({"a": pa.float64()}), [{"a": math.nan}, {"a": 1.0}, {"a": None}, None], {"a": math.nan}),
        (
            pa.struct({"a": pa.struct({"b": pa.uuid()})}),
            [{"a": None}, {"a": {"b": UUID(int=3).bytes}}],
            {"a": {"b": UUID(int=3)}},
        ),
        (
            pa.struct({"a": pa.list_(pa.int64()), "b": pa.int64()}),
            [{"a": [2], "b": 1}, {"a": [1], "b": 2}],
            {"a": [1], "b": 2},
        ),
    ],
    ids=str,
)
def test_the_greater_row_is_the_same_in_every_order(data_type: pa.DataType, values: list[Any], greatest: Any) -> None:
    assert [str(winner) for winner in _winners(array_of(values, data_type))] == [str(greatest)] * 2


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[2], [1], None]),
        pa.array([[("a", 1)], [("a", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array([{"a": [{"x": 0.0}]}, {"a": [{"x": -0.0}]}]),
    ],
    ids=["lists", "maps", "nested"],
)
def test_of_values_without_an_order_always_the_same_one_counts(values: pa.Array) -> None:
    one, other = _winners(values)
    assert str(one) == str(other)


def _winners(values: pa.Array) -> list[Any]:
    """Return the value that counts of a key's rows of one time, for both orders of the rows."""
    left = stream(pa.table({"id": [1], "at": [5]}))
    places = pa.array(range(len(values)))
    orders = [values.take(order) for order in (places, places[::-1])]
    tables = [pa.table({"id": [1] * len(rows), "since": [5] * len(rows), "v": rows}) for rows in orders]
    joins = [left.join(MemorySource(table), on="id", as_of=("at", "since"), columns=["v"]) for table in tables]
    return [joined.to_arrow()["v"][0].as_py() for joined in joins]


def test_a_uuid_is_a_key_of_an_as_of_join() -> None:
    ids = [UUID(int=number) for number in (1, 1, 2)]
    types = {"id": pa.uuid(), "since": pa.int64(), "v": pa.int64()}
    table = pa.Table.from_pylist(
        [{"id": id, "since": 5, "v": v} for id, v in zip(ids, (1, 2, 3), strict=True)], pa.schema(types)
    )
    left = table.select(["id", "since"]).rename_columns(["id", "at"]).slice(1)
    joined = stream(left).join(MemorySource(table), on="id", as_of=("at", "since"), columns=["v"])
    assert [(row["id"], row["v"]) for row in joined.to_arrow().to_pylist()] == [(ids[1], 2), (ids[2], 3)]


def test_steps_before_and_behind() -> None:
    joined = orders().filter(col("id") < 3).join(MemorySource(ITEMS), on="item", how="left")
    rows = joined.filter(col("name").is_null()).select("id").to_arrow().to_pylist()
    assert rows == [{"id": 2}]
    twice = orders().join(MemorySource(ITEMS), on="item").join(MemorySource(ITEMS), on="item", suffix="_2")
    assert twice.to_arrow().num_rows == 4


def test_an_empty_table() -> None:
    nothing = MemorySource([], "item string, name string")
    assert orders().join(nothing, on="item").to_arrow().num_rows == 0
    assert orders().join(nothing, on="item", how="left").to_arrow()["name"].null_count == 3


def test_the_plan_is_a_value_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    joined = orders().join(MemorySource(ITEMS), on={"item": "item", "id": "n"}, how="left", as_of=("at", "since"))
    assert str(joined).splitlines()[0] == ("left join MemorySource(3 rows) on 'item', 'id' = 'n' as of 'at' >= 'since'")
    assert joined == orders().join(
        MemorySource(ITEMS), on={"item": "item", "id": "n"}, how="left", as_of=("at", "since")
    )
    joined.explain()
    assert str(joined).splitlines()[0] in capsys.readouterr().out


def test_run_takes_rows_for_joined_tables() -> None:
    pipeline = orders().join(MemorySource(ITEMS), on="item").to_sink(MemorySink())
    assert testing.run(pipeline, [{"item": "x"}], [{"item": "x", "name": "y"}]) == [{"item": "x", "name": "y"}]
    with pytest.raises(PlanError, match="1 sources and 1 joined tables, and rows for 1"):
        testing.run(pipeline, [])


def test_given_rows_have_the_types_of_the_table() -> None:
    table = MemorySource([], schema="k long, v decimal(10,2), d date, since timestamp")
    rows = Environment().from_source(MemorySource([], schema="k long, at timestamp"))
    joined = rows.join(table, on="k", how="left")
    nothing = {"v": None, "d": None, "since": None}
    assert testing.run(joined, [{"k": 2}], []) == [{"k": 2, "at": None, **nothing}]
    assert testing.run(joined, [{"k": 2}], [{"k": 2}]) == [{"k": 2, "at": None, **nothing}]
    with pytest.raises(SourceError, match="'d'"):
        testing.run(joined, [{"k": 2}], [{"k": 2, "d": "yesterday"}])
    # A time without a zone is one in UTC, as in the table.
    new_year = datetime(2026, 1, 1)
    as_of = rows.join(table, on="k", as_of=("at", "since"), columns=["v"])
    (row,) = testing.run(as_of, [{"k": 2, "at": new_year}], [{"k": 2, "v": 1, "since": new_year}])
    assert (row["v"], str(row["v"])) == (Decimal(1), "1.00")
    # A column that the schema lacks: the types are those of the values.
    (row,) = testing.run(joined, [{"k": 2}], [{"k": 2, "d": "yesterday", "more": 1}])
    assert (row["d"], row["more"]) == ("yesterday", 1)


def test_given_rows_of_an_iceberg_table_have_their_own_types(tmp_path: Path) -> None:
    table = IcebergTable(TableRef("db", "items", IcebergStorage.Local(str(tmp_path / "lake"))))
    joined = orders().join(table, on="item", how="left")
    assert testing.run(joined, [{"item": "a"}], [{"item": "a", "n": 1}]) == [{"item": "a", "n": 1}]
    nothing = pa.schema({"item": pa.string(), "n": pa.int64()}).empty_table()
    assert testing.run(joined, [{"item": "a"}], nothing) == [{"item": "a", "n": None}]
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "itm"}, "the stream has no column 'itm'\n.*did you mean 'item'"),
        ({"on": {"item": "itm"}}, r"MemorySource\(3 rows\) has no column 'itm'\n.*did you mean 'item'"),
        ({"on": {"id": "item"}}, "the stream's 'id' is long, the other side's 'item' string\n.*cast"),
        ({"on": {"id": "name"}, "columns": ["item"]}, "the stream's 'id' is long"),
        ({"on": "item", "columns": ["nam"]}, "has no column 'nam'"),
        ({"on": "item", "as_of": ("id", "since")}, "has no column 'since'\n.*'name'"),
        ({"on": {"id": "tags"}}, "the stream's 'id' is long, the other side's 'tags' array<string>"),
        ({"on": {"item": "name"}}, "both have a column 'item'\n.*suffix="),
        ({"on": "item", "as_of": ("item", "name")}, "as of: the stream's 'item' is string"),
        ({"on": "item", "as_of": ("id", "name")}, "as of: the stream's 'id' is long, the table's 'name' string"),
        (
            {"on": "item", "as_of": ("id", "tags")},
            r"as of: the stream's 'id' is long, the table's 'tags' array<string>",
        ),
    ],
)
@pytest.mark.parametrize(
    "draw",
    [
        lambda joined: joined.schema,
        lambda joined: joined.to_arrow(),
        lambda joined: joined.show(),
        lambda joined: testing.run(joined, ORDERS, TAGGED),
    ],
    ids=["schema", "to_arrow", "show", "run"],
)
def test_what_does_not_fit_is_named(draw: Callable[[DataStream], Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        draw(orders().join(MemorySource(TAGGED), **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": []}, "join on"),
        ({"on": {"id": 1}}, "join on"),
        ({"how": "right"}, "a right join with a table"),
        ({"how": "outer"}, "how"),
        ({"as_of": ("at",)}, "as_of is"),
        ({"columns": []}, "columns are"),
        ({"columns": ["a", "a"]}, "columns are"),
        ({"suffix": 1}, "suffix"),
        ({"max_bytes": 1 << 31}, "max_bytes"),
        ({"other": [1]}, "not with list"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        orders().join(**{"other": MemorySource(ITEMS), "on": "item", **options})


def test_a_table_that_is_too_large_is_refused() -> None:
    with pytest.raises(PlanError, match="take more than 8 bytes"):
        orders().join(MemorySource(ITEMS), on="item", max_bytes=8).to_arrow()


def test_buckets_at_hand_come_first() -> None:
    index = JoinIndex.of(build_index(pa.table({"id": [1]}), ["id"], None, ["id"]))
    loaded: list[int] = []

    def load(bucket: int) -> JoinIndex:
        loaded.append(bucket)
        return index

    buckets = JoinBuckets(3, load, {5, 6}.__contains__)
    hashed = np.sort(key_hashes([pa.array(range(1_000))]))
    divided = [part for part, _ in buckets.divide(hashed)]
    assert loaded == [5, 6, 0, 1, 2, 3, 4, 7]
    assert sorted(number for part in divided for number in range(1_000)[part]) == list(range(1_000))
    assert {int(one) >> 61 for one in hashed[divided[0]]} == {5}

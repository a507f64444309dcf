"""Joins with a table, in this process: against DuckDB over random rows, and case by case."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from volley import ConfigError, Environment, ExpressionError, MemorySink, MemorySource, PlanError, col, testing
from volley.arrow import join_index
from volley.plan.joins import How
from volley.stream import DataStream

START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-2, 2) | st.sampled_from([2**63 - 1, -(2**63)])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ab", "ü", "a\0"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"a", b"\0"])),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(20, 2), st.sampled_from([Decimal("1.00"), Decimal("-0.01"), Decimal(10) ** 15])),
    "date": (pa.date32(), st.sampled_from([date(1969, 12, 31), date(2026, 1, 1)])),
    "timestamp": (pa.timestamp("us", "UTC"), st.sampled_from([START, datetime(1900, 1, 1, tzinfo=UTC)])),
}
times = st.none() | st.integers(-3, 3).map(lambda hours: START + timedelta(hours=hours, microseconds=hours))


@st.composite
def joins(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, list[str]]:
    """Rows of a stream and of a table, and the keys of both."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))
    columns = {name: st.none() | KEYS[name][1] for name in keys} | {"at": times}
    types = [(name, KEYS[name][0]) for name in keys] + [("at", pa.timestamp("us", "UTC")), ("n", pa.int64())]
    sides = []
    for _ in range(2):
        rows = draw(st.lists(st.fixed_dictionaries(columns), max_size=12))
        sides.append(pa.Table.from_pylist([row | {"n": n} for n, row in enumerate(rows)], pa.schema(types)))
    return sides[0], sides[1].rename_columns([*keys, "valid_from", "m"]), keys


def stream(table: pa.Table) -> DataStream:
    return Environment().from_source(MemorySource(table))


def counted(table: pa.Table) -> Counter[str]:
    """Rows as texts, so that NaN equals NaN; the sign of a zero counts."""
    return Counter(map(repr, table.to_pylist()))


def sql(keys: list[str], how: str, as_of: bool) -> str:
    """The same join in DuckDB's words, whose joins tell -0.0 from 0.0, and take any of several rows of one time."""
    zero = {"double": " + 0.0"}
    on = " and ".join(f'l."{key}"{zero.get(key, "")} = r."{key}"{zero.get(key, "")}' for key in keys)
    left = ", ".join(f'l."{key}"' for key in keys)
    last = ", ".join(f'"{key}"{zero.get(key, "")} as "{key}"' for key in keys)
    right = f"(select {last}, valid_from, max(m) as m from r group by all)" if as_of else "r"
    verb = f"asof {how}" if as_of else how
    validity = ' and l."at" >= r.valid_from' if as_of else ""
    return f'select {left}, l."at", l.n, r.valid_from, r.m from l {verb} join {right} r on {on}{validity}'


@given(joins(), st.sampled_from(["inner", "left"]), st.booleans())
def test_random_joins_are_those_of_duckdb(drawn: tuple[pa.Table, pa.Table, list[str]], how: How, as_of: bool) -> None:
    left, right, keys = drawn
    joined = stream(left).join(MemorySource(right), on=keys, how=how, as_of=("at", "valid_from") if as_of else None)
    expected = query(sql(keys, how, as_of), l=left, r=right).to_arrow_table()
    assert counted(joined.to_arrow()) == counted(expected.cast(joined.schema))


@given(joins(), st.sampled_from(["inner", "left"]))
def test_keys_with_one_hash_are_told_apart(drawn: tuple[pa.Table, pa.Table, list[str]], how: How) -> None:
    left, right, keys = drawn
    as_of = ("at", "valid_from")
    expected = stream(left).join(MemorySource(right), on=keys, how=how, as_of=as_of).to_arrow()
    with patch.object(join_index, "hashes", lambda batch: np.zeros(batch.num_rows, np.uint64)):
        found = stream(left).join(MemorySource(right), on=keys, how=how, as_of=as_of).to_arrow()
    assert counted(found) == counted(expected)


ORDERS: list[dict[str, Any]] = [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}, {"id": 3, "item": None}]
ITEMS = [{"item": "a", "name": "Apple"}, {"item": "a", "name": "Ananas"}, {"item": None, "name": "?"}]


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
    assert "path: Arrow-native" in capsys.readouterr().out


def test_run_takes_rows_for_joined_tables() -> None:
    pipeline = orders().join(MemorySource(ITEMS), on="item").to_sink(MemorySink())
    assert testing.run(pipeline, [{"item": "x"}], [{"item": "x", "name": "y"}]) == [{"item": "x", "name": "y"}]
    with pytest.raises(PlanError, match="1 sources and 1 joined tables, and rows for 1"):
        testing.run(pipeline, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "itm"}, "the stream has no column 'itm'\n.*did you mean 'item'"),
        ({"on": {"item": "itm"}}, r"MemorySource\(3 rows\) has no column 'itm'\n.*did you mean 'item'"),
        ({"on": {"id": "item"}}, "the stream's 'id' is long, the other side's 'item' string\n.*cast"),
        ({"on": {"id": "name"}, "columns": ["item"]}, "the stream's 'id' is long"),
        ({"on": "item", "columns": ["nam"]}, "has no column 'nam'"),
        ({"on": {"item": "name"}}, "both have a column 'item'\n.*suffix="),
        ({"on": "item", "as_of": ("item", "name")}, "as of: the stream's 'item' is string"),
        ({"on": "item", "as_of": ("id", "name")}, "as of: the stream's 'id' is long, the table's 'name' string"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        orders().join(MemorySource(ITEMS), **options).schema  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": []}, "join on"),
        ({"on": {"id": 1}}, "join on"),
        ({"how": "right"}, "how"),
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

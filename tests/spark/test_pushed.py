"""What is pushed into Spark's readers keeps the rows that Arrow's filter keeps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tests.tiers import examples
from volley import Environment, Expr, MemorySource, col, lit
from volley.plan.expression_nodes import column_names
from volley.spark.pushed import condition, pushed

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int32(), st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)),
    "l": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "s": (pa.string(), st.text(max_size=3) | st.sampled_from(["", "a", "ab", "ü", "A", "a "])),
    "y": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "n": (pa.timestamp("us"), st.datetimes()),
    "d": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan])),
    "m": (pa.decimal128(8, 2), st.decimals(-999, 999, places=2)),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
PUSHED = "ilsytn"

rows = st.lists(
    st.fixed_dictionaries({name: st.none() | of for name, (_, of) in VALUES.items()}), min_size=3, max_size=10
)


@st.composite
def conditions(draw: st.DrawFn, names: str = PUSHED, depth: int = 2) -> Expr:
    """A random condition of the kinds that can be pushed."""
    kind = draw(st.sampled_from(["compare", "null", "in", "prefix", *(["and", "or", "not"] if depth else [])]))
    name = draw(st.sampled_from(names))
    match kind:
        case "compare":
            op = draw(st.sampled_from(["eq", "ne", "gt", "gt_eq", "lt", "lt_eq"]))
            return getattr(col(name), op)(lit(draw(VALUES[name][1])))  # type: ignore[no-any-return]
        case "null":
            return col(name).is_null() if draw(st.booleans()) else col(name).is_not_null()
        case "in":
            return col(name).is_in(draw(st.lists(VALUES[name][1], min_size=1, max_size=12)))
        case "prefix":
            return col("s").starts_with(draw(st.sampled_from(["", "a", "ü", "%", "_"])))
        case "not":
            return ~draw(conditions(names, depth - 1))
    left, right = draw(conditions(names, depth - 1)), draw(conditions(names, depth - 1))
    return left & right if kind == "and" else left | right


def frame_of(session: SparkSession, table: pa.Table) -> DataFrame:
    numbered = table.append_column("number", pa.array(range(table.num_rows), pa.int64()))
    return session.createDataFrame(numbered, from_arrow_schema(numbered.schema, prefer_timestamp_ntz=True))


def kept_by_spark(frame: DataFrame) -> list[int]:
    return sorted(row.number for row in frame.select("number").collect())


def kept_by_arrow(table: pa.Table, predicate: Expr) -> list[int]:
    numbered = table.append_column("number", pa.array(range(table.num_rows), pa.int64()))
    kept = Environment().from_source(MemorySource(numbered)).filter(predicate)
    return sorted(kept.to_arrow()["number"].to_pylist())


@settings(max_examples=examples(1), suppress_health_check=list(HealthCheck))
@given(rows, st.lists(conditions(), min_size=4, max_size=4))
def test_a_pushed_condition_means_the_same(
    job_session: SparkSession, data: list[dict[str, Any]], predicates: list[Expr]
) -> None:
    """True, false and null for the same rows: a filter below `not` or `or` would drop others."""
    table = pa.Table.from_pylist(data, SCHEMA)
    frame = frame_of(job_session, table)
    types = {field.name: field.dataType for field in frame.schema}
    columns = [condition(predicate.node, types) for predicate in predicates]
    known = [column for column in columns if column is not None]
    assert len(known) == len(predicates)
    found = frame.orderBy("number").select(*(column.alias(f"c{n}") for n, column in enumerate(known))).collect()
    stream = Environment().from_source(MemorySource(table))
    ours = stream.select(**{f"c{n}": predicate for n, predicate in enumerate(predicates)}).to_arrow().to_pylist()
    assert [row.asDict() for row in found] == ours


@settings(max_examples=examples(1), suppress_health_check=list(HealthCheck))
@given(rows, conditions("ilsytndm"))
def test_no_row_is_lost(job_session: SparkSession, data: list[dict[str, Any]], predicate: Expr) -> None:
    """Of conditions that are pushed in part, or not at all."""
    table = pa.Table.from_pylist(data, SCHEMA)
    kept = kept_by_spark(pushed(frame_of(job_session, table), predicate.node, None))
    event("all kept" if len(kept) == len(data) else "some dropped")
    assert {*kept_by_arrow(table, predicate)} <= {*kept}


@pytest.mark.parametrize(
    "value",
    [
        datetime(2020, 7, 1, 12, 30, 0, 5),
        datetime(2020, 3, 8, 2, 30),  # skipped by New York's clocks
        datetime(1500, 2, 28),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1880, 1, 1, tzinfo=UTC),
        datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=20))),
        date(1, 1, 1),
        date(1582, 10, 10),
    ],
    ids=str,
)
def test_a_constant_time_is_that_time_in_every_time_zone(
    job_session: SparkSession, in_new_york: None, value: date
) -> None:
    frame = frame_of(job_session, Environment().from_source(MemorySource([{"at": value}])).to_arrow())
    kept = pushed(frame, (col("at") == value).node, None)
    assert kept_by_spark(kept) == [0]
    assert kept_by_spark(pushed(frame, (col("at") != value).node, None)) == []


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process keeps New York's time, as on a user's laptop."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


NOT_PUSHED = {
    "a float": col("d") == 1.5,
    "a decimal": col("m") > Decimal("1.50"),
    "text against a number": col("s") == lit("1").cast("int"),
    "two columns": col("i") == col("l"),
    "a constant null": col("i") == lit(None),
    "one of with null": col("i").is_in([1, None]),
    "a computed value": col("i") + 1 > 2,
    "an unknown column": col("other") == 1,
    "or with a float": (col("i") == 1) | (col("d") == 1.5),
    "not of a float": ~(col("d") == 1.5),
}


@pytest.mark.parametrize("why", NOT_PUSHED)
def test_what_spark_may_decide_otherwise_is_not_pushed(job_session: SparkSession, why: str) -> None:
    types = {field.name: field.dataType for field in frame_of(job_session, SCHEMA.empty_table()).schema}
    assert condition(NOT_PUSHED[why].node, types) is None


def test_text_with_a_collation_is_not_compared_by_spark(job_session: SparkSession) -> None:
    table = pa.table({"s": ["a", "A", "b"]})
    frame = frame_of(job_session, table).withColumn("s", F.expr("s collate UTF8_LCASE"))
    assert kept_by_spark(pushed(frame, (col("s") != "a").node, None)) == [0, 1, 2]


def test_a_part_of_a_condition_is_pushed_and_columns_are_dropped(job_session: SparkSession) -> None:
    frame = frame_of(job_session, pa.Table.from_pylist([{"i": 1, "d": 1.5}, {"i": 2, "d": 1.5}], SCHEMA))
    predicate = (col("i") == 1) & (col("d") == 1.5)
    kept = pushed(frame, predicate.node, frozenset({*column_names(predicate.node), "number"}))
    assert (kept.columns, kept_by_spark(kept)) == (["i", "d", "number"], [0])
    assert pushed(frame, None, frozenset()).columns == ["i"]


@pytest.mark.parametrize("name", ["a.b", "`", "a``b", "a b", "ä.", "*", "a\nb", "'\""])
def test_columns_of_any_name(job_session: SparkSession, name: str) -> None:
    frame = job_session.createDataFrame(pa.table({name: [1, 2], "number": [0, 1]}))
    assert kept_by_spark(pushed(frame, (col(name) == 2).node, frozenset({name, "number"}))) == [1]

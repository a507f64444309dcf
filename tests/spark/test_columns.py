"""Spark Columns give exactly what the expression says, wherever PySpark's own way would bend it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from volley import Environment, Expr, MemorySource, col, lit
from volley.arrow.batches import conform
from volley.arrow.nodes import lower
from volley.plan.graph import walk
from volley.spark.expressions import to_spark_schema
from volley.spark.nodes import apply
from volley.spark.session import session_for_job
from volley.stream import DataStream

WIDE = Decimal("12345678901234567890.123456789012345678")


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process keeps New York's time, as on a user's laptop."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def stream_of(batch: pa.RecordBatch) -> DataStream:
    return Environment().from_source(MemorySource(batch))


def on_spark(session: SparkSession, stream: DataStream, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    frame = session.createDataFrame(pa.Table.from_batches([batch]), to_spark_schema(batch.schema))
    schema = batch.schema
    for node in list(walk([stream._node]))[1:]:
        frame, schema = apply(frame, node, schema), lower([node], schema).schema
    table = frame.toArrow()
    assert table.schema.names == schema.names
    return [row for part in table.to_batches() for row in conform(part, schema).to_pylist()]


def on_arrow(stream: DataStream, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lower(list(walk([stream._node]))[1:], batch.schema)(batch).to_pylist()
    return rows


def value_of(session: SparkSession, expression: Expr, batch: pa.RecordBatch) -> list[Any]:
    return [row["v"] for row in on_spark(session, stream_of(batch).select(expression.alias("v")), batch)]


ONE = pa.record_batch([pa.array([1])], names=["id"])


@pytest.mark.parametrize(
    "value",
    [
        datetime(2020, 7, 1, 12, 30, 0, 5),
        datetime(2020, 3, 8, 2, 30),  # skipped by New York's clocks
        datetime(1850, 1, 1),
        datetime(1500, 2, 28),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1880, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=20))),
        date(1, 1, 1),
        date(1582, 10, 10),
    ],
    ids=str,
)
def test_a_constant_time_is_that_time_in_every_time_zone(
    job_session: SparkSession, in_new_york: None, value: date
) -> None:
    assert value_of(job_session, lit(value), ONE) == [value]


def test_a_naive_constant_does_not_shift_with_the_sessions_time_zone(spark: SparkSession) -> None:
    session = session_for_job(spark, "/checkpoint")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    noon = datetime(2020, 7, 1, 12)
    batch = pa.record_batch([pa.array([noon], pa.timestamp("us"))], names=["n"])
    assert value_of(session, col("n") == noon, batch) == [True]
    batch = pa.record_batch([pa.array([noon], pa.timestamp("us", "UTC"))], names=["t"])
    assert value_of(session, col("t") == noon.replace(tzinfo=UTC), batch) == [True]


def test_a_long_times_a_decimal_keeps_every_digit(job_session: SparkSession) -> None:
    batch = pa.record_batch(
        [pa.array([2**62, 3]), pa.array([Decimal("12345678.1234567891"), Decimal("1E-10")], pa.decimal128(18, 10))],
        names=["l", "m"],
    )
    wanted = [Decimal("56934391189950545616287654.1280190464"), Decimal("3E-10")]
    assert value_of(job_session, col("l") * col("m"), batch) == wanted
    assert value_of(job_session, col("m") * col("l"), batch) == wanted


def test_the_negative_of_a_wide_decimal_keeps_every_digit(job_session: SparkSession) -> None:
    values = [WIDE, -WIDE, Decimal("1E-18"), Decimal(0), None]
    batch = pa.record_batch([pa.array(values, pa.decimal128(38, 18))], names=["w"])
    # copy_negate, as minus rounds in Python too.
    wanted = [None if value is None else value.copy_negate() for value in values]
    assert value_of(job_session, -col("w"), batch) == wanted


def test_a_condition_that_is_always_null_keeps_no_row(job_session: SparkSession) -> None:
    assert on_spark(job_session, stream_of(ONE).filter_expr(lit(None)), ONE) == []


def test_with_column_leaves_a_column_of_another_case_alone(job_session: SparkSession) -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([3])], names=["a", "b"])
    assert on_spark(job_session, stream_of(batch).with_column("A", col("b") * 10), batch) == [{"a": 1, "b": 3, "A": 30}]


@pytest.mark.parametrize("name", ["a.b", "`", "a``b", "a b", "ä.", "*", "a\nb", "\U0001f600", "'\""])
def test_with_column_takes_any_name(job_session: SparkSession, name: str) -> None:
    batch = pa.record_batch([pa.array([1, 2])], names=["id"])
    made = stream_of(batch).with_column(name, col("id") * 10).with_column(name, col(name) + 1)
    stream = made.filter_expr(col(name) > 11).drop("id").rename({name: name + "."})
    assert on_spark(job_session, stream, batch) == [{name + ".": 21}]


def test_the_right_side_is_not_computed_where_the_left_decides(job_session: SparkSession) -> None:
    batch = pa.record_batch([pa.array([0, 1, None], pa.int32()), pa.array([5, 6, 7])], names=["n", "x"])
    quotient = col("x") / col("n") > 1
    assert value_of(job_session, (col("n") != 0) & quotient, batch) == [False, True, None]
    assert value_of(job_session, (col("n") == 0) | quotient, batch) == [True, True, None]


def test_a_value_may_be_one_of_hundreds(job_session: SparkSession) -> None:
    batch = pa.record_batch([pa.array([1.5, 7.0, math.nan, -0.0, None])], names=["d"])
    constants = [*map(float, range(600)), math.nan]
    assert value_of(job_session, col("d").is_in(constants), batch) == [False, True, True, True, None]
    assert value_of(job_session, col("d").is_in([*constants, None]), batch) == [None, True, True, True, None]


NUMBERS = col("x").str.matches("^[0-9]+$")
AFTER_A_FILTER_IN_ARROW = {
    "a filter in Spark": lambda stream: stream.filter(col("x").cast("int") > 5),
    "a filter in Arrow": lambda stream: stream.filter(col("x").cast("decimal(10,2)") > 5),
    "a filter on a column in Spark": lambda stream: stream.with_column("n", col("x").cast("int")).filter(col("n") > 5),
    "a filter on a column in Arrow": lambda stream: (
        stream.with_column("n", col("x").cast("decimal(10,2)")).select("x", "n").filter(col("n") > 5)
    ),
    "the rest of a split": lambda stream: stream.split(col("x").cast("int") <= 5)[1],
}


@pytest.mark.parametrize("step", AFTER_A_FILTER_IN_ARROW)
@pytest.mark.parametrize("is_rest", [False, True], ids=["filter", "rest"])
def test_a_filter_comes_before_a_later_step_that_fails_without_it(
    job_session: SparkSession, step: str, is_rest: bool
) -> None:
    batch = pa.record_batch([pa.array(["12", "abc", "3", None])], names=["x"])
    start = stream_of(batch)
    filtered = start.split(~NUMBERS | col("x").is_null())[1] if is_rest else start.filter(NUMBERS)
    stream = AFTER_A_FILTER_IN_ARROW[step](filtered)
    found = on_spark(job_session, stream, batch)
    assert [row["x"] for row in found] == ["12"]
    assert found == on_arrow(stream, batch)


def test_columns_of_every_type_pass_through(job_session: SparkSession) -> None:
    kinds: dict[pa.DataType, Any] = {
        pa.binary(): b"\x00\xff",
        pa.binary(2): b"ab",
        pa.time64("us"): datetime.max.time(),
        pa.list_(pa.int32()): [1, None],
        pa.map_(pa.string(), pa.int64()): [("a", 1)],
        pa.struct([("x.y", pa.int64()), ("at", pa.timestamp("us", "UTC"))]): {"x.y": None, "at": datetime.now(UTC)},
    }
    names = [f"c{i}" for i in range(len(kinds))]
    batch = pa.record_batch([pa.array([value, None], kind) for kind, value in kinds.items()], names=names)
    stream = stream_of(batch).select(*names).rename({"c0": "z"}).with_column("z", col("z"))
    assert on_spark(job_session, stream, batch) == on_arrow(stream, batch)


ROWS = pa.record_batch([pa.array([1, 2, 3]), pa.array(["a", None, "ü"])], names=["id", "name"])
FUNCTIONS = {
    "map": lambda stream: stream.map(lambda row: {"id": row["id"] + 1, "name": row["name"]}),
    "map with a schema": lambda stream: stream.map(
        lambda row: {
            "at": datetime(1500, 1, row["id"], tzinfo=UTC),
            "m": Decimal("1.5"),
            "tags": [row["name"]],
            "clock": datetime.max.time(),
            "shifts": {"first": [datetime.min.time(), None]},
        },
        schema="at timestamp, m decimal(5,2), tags array<string>, more long, "
        "clock time, shifts map<string, array<time>>",
    ),
    "flat_map": lambda stream: stream.flat_map(lambda row: [row] * (row["id"] - 1)),
    "map_batches": lambda stream: stream.map_batches(
        lambda batch: pa.record_batch({"n": batch["id"]}), schema={"n": "double"}
    ),
    "between expressions": lambda stream: (
        stream.filter_expr(col("id") > 1).map(lambda row: row).select((col("id") * 2).alias("n"))
    ),
}


@pytest.mark.parametrize("how", FUNCTIONS)
def test_functions_give_the_same_rows_as_on_arrow(job_session: SparkSession, how: str) -> None:
    stream = FUNCTIONS[how](stream_of(ROWS))
    found = on_spark(job_session, stream, ROWS)
    assert found
    assert sorted(map(repr, found)) == sorted(map(repr, on_arrow(stream, ROWS)))

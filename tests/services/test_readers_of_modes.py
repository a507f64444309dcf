"""Partitioned, sorted, overwritten and upserted tables are read back, row by row, by pyiceberg, DuckDB and Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.every_type import in_order
from tests.services.readers import Lake, by_duckdb, by_pyiceberg, spark_sql
from volley import Environment, IcebergSink, MemorySource
from volley.iceberg import Overwrite, Partitioning, Upsert

Row = dict[str, Any]

TEXTS = ["naïve", "na", "", None, "☃☃☃", "Zulu"]
COUNTRIES = ["NO", "SE", None]


def row(number: int, epoch: int) -> Row:
    """Times before 1970 too, negative numbers, nulls in what is partitioned by."""
    at = dt.datetime(1969, 12, 31, 22, tzinfo=dt.UTC) + dt.timedelta(hours=number)
    return {
        "id": number - 6,
        "epoch": epoch,
        "country": COUNTRIES[number % 3],
        "text": TEXTS[number % 6],
        "born": dt.date(1969, 1, 1) + dt.timedelta(days=90 * number),
        "at": at,
        "seen": at + dt.timedelta(days=30 * number),
        "made": at.replace(tzinfo=None) if number % 4 else None,
    }


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "epoch": pa.int64(),
        "country": pa.string(),
        "text": pa.string(),
        "born": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "seen": pa.timestamp("us", "UTC"),
        "made": pa.timestamp("us"),
    }
)
FIRST = [row(number, 0) for number in range(12)]
# Some of the same ids; nobody of Norway.
SECOND = [row(number, 1) for number in range(6, 18) if number % 3]
BOTH = FIRST + SECOND

EVERY_TRANSFORM = [
    Partitioning.identity("country"),
    Partitioning.bucket("id", n=3),
    Partitioning.truncate("text", width=2),
    Partitioning.time("born", granularity="year"),
    Partitioning.time("seen", granularity="month"),
    Partitioning.time("made", granularity="day"),
    Partitioning.time("at", granularity="hour"),
]
# What finds rows only if the partitions that Spark leaves out are those that Iceberg would leave out.
FILTERS: dict[str, Callable[[Row], bool]] = {
    "country = 'SE'": lambda row: row["country"] == "SE",
    "country is null": lambda row: row["country"] is None,
    "id = -5": lambda row: row["id"] == -5,
    "text = 'naïve'": lambda row: row["text"] == "naïve",
    "born < date '1970-01-01'": lambda row: row["born"] < dt.date(1970, 1, 1),
    "seen < timestamp '1970-03-01 00:00:00'": lambda row: row["seen"] < dt.datetime(1970, 3, 1, tzinfo=dt.UTC),
    "made = timestamp_ntz '1969-12-31 23:00:00'": lambda row: row["made"] == dt.datetime(1969, 12, 31, 23),
    "at < timestamp '1970-01-01 00:00:00'": lambda row: row["at"] < dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
}


def upserted() -> list[Row]:
    return list({each["id"]: each for each in BOTH}.values())


MODES: dict[str, tuple[Any, Partitioning | list[Partitioning], list[Row]]] = {
    "partitioned": ("append", EVERY_TRANSFORM, BOTH),
    "sorted": ("append", Partitioning.table_default(), [{"id": r["id"], "text": r["text"]} for r in BOTH]),
    "whole": (Overwrite(), Partitioning.none(), SECOND),
    "dynamic": (
        Overwrite.dynamic(),
        Partitioning.identity("country"),
        [each for each in FIRST if each["country"] == "NO"] + SECOND,
    ),
    "named": (
        Overwrite.partitions({"country": "NO"}, {"country": "SE"}, {"country": None}),
        Partitioning.identity("country"),
        SECOND,
    ),
    "merge_on_read": (Upsert("id", strategy="merge_on_read"), Partitioning.bucket("id", n=2), upserted()),
    "copy_on_write": (Upsert("id", strategy="copy_on_write"), Partitioning.none(), upserted()),
}


TABLES = [*MODES]


def expected(table: str) -> list[Row]:
    return MODES[table][2]


def _make_sorted(lake: Lake, table: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
    by_text = SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)
    lake.catalog().create_table(f"db.{table}", schema, sort_order=SortOrder(by_text))


def _write(lake: Lake, environment: Environment, table: str) -> None:
    """An epoch of the first rows, then one of the second; of overwrites a run for each."""
    mode, partitions, _ = MODES[table]
    if table == "sorted":
        _make_sorted(lake, table)
    config = lake.config(table).with_commit_mode(mode).with_partitioning(partitions)
    runs = {f"{table}-1": FIRST, f"{table}-2": SECOND} if isinstance(mode, Overwrite) else {table: BOTH}
    for job, rows in runs.items():
        stream = environment.from_source(MemorySource(pa.Table.from_pylist(rows, SCHEMA), rows_per_epoch=len(FIRST)))
        stream = stream.select("id", "text") if table == "sorted" else stream
        stream.to_sink(IcebergSink(config)).execute(job)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table of each mode."""
    folder = tmp_path_factory.mktemp("modes")
    made = Lake(folder / "lake", iceberg_spark)
    (folder / "lake").mkdir()
    made.catalog().create_namespace("db")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    for name in MODES:
        _write(made, environment, name)
    return made


@pytest.mark.parametrize("read", [by_pyiceberg, by_duckdb])
def test_rows_are_read_back(lake: Lake, read: Callable[[Lake, str], list[Row]]) -> None:
    for table in TABLES:
        assert _ordered(read(lake, table)) == _ordered(expected(table)), table


def test_rows_are_read_back_by_spark_also_where_it_leaves_partitions_out(lake: Lake) -> None:
    asked = [(f"from volley.db.{table}", expected(table)) for table in TABLES]
    for condition, fits in FILTERS.items():
        rows = [each for each in BOTH if fits(each)]
        assert rows
        asked.append((f"select * from volley.db.partitioned where {condition}", rows))
    found = spark_sql(lake, *(query for query, _ in asked))
    for (query, rows), got in zip(asked, found, strict=True):
        assert _ordered(got) == _ordered(rows), query


def test_the_tables_are_what_their_modes_say(lake: Lake) -> None:
    assert 1 in _contents(lake, "merge_on_read")
    assert _contents(lake, "copy_on_write") == {0}
    assert len(lake.table("partitioned").spec().fields) == len(EVERY_TRANSFORM)
    ordered = lake.table("sorted")
    written = {task.file.sort_order_id for task in ordered.scan().plan_files()}
    assert written == {ordered.sort_order().order_id}


def _contents(lake: Lake, table: str) -> set[int]:
    """0 = there are data files, 1 = there are files of position deletes."""
    return set(lake.table(table).inspect.files()["content"].to_pylist())


def _ordered(rows: list[Row]) -> list[Row]:
    return sorted(in_order(rows), key=lambda row: (row["id"], row.get("epoch", 0)))

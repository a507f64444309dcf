"""Jobs whose streams fork and join: each sink gets its rows, and what streams share is computed once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from volley import (
    ConfigError,
    DataStream,
    Environment,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    MemorySource,
    PlanError,
    Sink,
    SourceError,
    col,
    lit,
)

Table = Callable[[str], IcebergSink]
ROWS: list[dict[str, Any]] = [{"id": number, "price": None if number % 5 == 4 else number % 3} for number in range(20)]
SCHEMA = "id long, price long"


@pytest.fixture
def table(config: IcebergSinkConfig) -> Table:
    """Sinks that write to tables of one lake."""
    return lambda name: IcebergSink(IcebergSinkConfig(namespace=config.namespace, table=name, storage=config.storage))


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a table by DuckDB, ordered by all columns."""

    def rows(name: str) -> list[dict[str, Any]]:
        metadata = max((tmp_path / "lake" / "db" / name / "metadata").glob("*.metadata.json"))
        with duckdb.connect() as connection:
            connection.execute("load iceberg")
            found: list[dict[str, Any]] = (
                connection.sql(f"from iceberg_scan('{metadata}') order by all").to_arrow_table().to_pylist()
            )
            return found

    return rows


def by_id(sink: MemorySink) -> list[Any]:
    return sorted(row["id"] for row in sink.rows())


def test_a_stream_is_split_into_two_tables_and_read_once(
    environment: Environment, table: Table, read: Callable[[str], list[dict[str, Any]]], tmp_path: Path
) -> None:
    calls = tmp_path / "calls"

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        with calls.open("a") as file:
            file.write("x")
        return row

    stream = environment.from_source(MemorySource(ROWS, SCHEMA, rows_per_epoch=7)).map(counted)
    good, bad = stream.split(col("price") > 0)
    job = environment.execute("prices", good.to_sink(table("good")), bad.drop("price").to_sink(table("bad")))
    assert read("good") == [row for row in ROWS if row["price"] is not None and row["price"] > 0]
    assert read("bad") == [{"id": row["id"]} for row in ROWS if not row["price"]]
    assert len(calls.read_text()) == job.progress.rows == len(ROWS)
    assert job.progress.epochs == 3


def test_several_sources_feed_several_sinks_in_one_job(environment: Environment) -> None:
    first = environment.from_source(MemorySource([{"id": number} for number in range(5)], rows_per_epoch=2, name="a"))
    second = environment.from_source(MemorySource([{"id": 10 + number} for number in range(3)], name="b"))
    sinks = MemorySink("first"), MemorySink("second"), MemorySink("both")
    both = first.filter_expr(col("id") > 0).union(second)
    job = environment.execute(
        "several", first.to_sink(sinks[0]), second.to_sink(sinks[1]), both.with_column("n", lit(1)).to_sink(sinks[2])
    )
    assert [by_id(sink) for sink in sinks] == [[0, 1, 2, 3, 4], [10, 11, 12], [1, 2, 3, 4, 10, 11, 12]]
    assert job.progress.epochs == 3


def test_a_union_brings_columns_into_one_order(environment: Environment) -> None:
    left = environment.from_source(MemorySource([{"id": 1, "name": "a"}], "id long, name string", name="left"))
    right = environment.from_source(MemorySource([{"name": "b", "id": 2}], "name string, id long", name="right"))
    out = MemorySink("out")
    left.union(right).to_sink(out).execute("union")
    assert sorted(out.rows(), key=str) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert out.table().schema.names == ["id", "name"]


def test_a_union_of_branches_of_one_stream_has_the_rows_of_each(environment: Environment) -> None:
    stream = environment.from_source(MemorySource(ROWS, SCHEMA))
    out = MemorySink("out")
    good, bad = stream.split(col("price") > 0)
    good.union(bad, good).to_sink(out).execute("again")
    expected = [row["id"] for row in ROWS for _ in range(2 if row["price"] else 1)]
    assert by_id(out) == sorted(expected)


def test_sinks_before_and_behind_a_step_that_only_spark_can_run(environment: Environment) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = [{"id": number % 4, "at": at, "tags": [str(number)]} for number in range(10)]
    stream = environment.from_source(MemorySource(rows, "id long, at timestamp, tags array<string>", rows_per_epoch=5))
    first = stream.deduplicate("id")
    sinks = MemorySink("raw"), MemorySink("first"), MemorySink("some"), MemorySink("ids")
    environment.execute(
        "both",
        stream.to_sink(sinks[0]),
        first.to_sink(sinks[1]),
        first.filter_expr(col("id") < 2).to_sink(sinks[2]),
        stream.select("id").to_sink(sinks[3]),
    )
    assert sorted(sinks[0].rows(), key=str) == sorted(rows, key=str)
    assert by_id(sinks[1]) == [0, 1, 2, 3]
    assert {row["at"] for row in sinks[1].rows()} == {at}
    assert by_id(sinks[2]) == [0, 1]
    assert by_id(sinks[3]) == sorted(row["id"] for row in rows)


def test_a_new_branch_of_a_known_job_is_refused_then_filled(
    native: Environment, table: Table, read: Callable[[str], list[dict[str, Any]]], tmp_path: Path
) -> None:
    def stream(count: int) -> DataStream:
        return native.from_source(MemorySource(ROWS[:count], SCHEMA, rows_per_epoch=4))

    stream(8).to_sink(table("all")).execute("grows")
    more = stream(12)
    pipelines = more.to_sink(table("all")), more.filter_expr(col("id") % 2 == 0).to_sink(table("even"))
    with pytest.raises(PlanError, match=r"writes to .*db\.even now"):
        native.execute("grows", *pipelines)
    native.execute("grows", *pipelines, backfill=True)
    assert [row["id"] for row in read("all")] == list(range(12))
    assert [row["id"] for row in read("even")] == list(range(0, 12, 2))


def test_each_pipeline_has_a_dead_letter_of_its_own(native: Environment, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": "no"}\n{"id": 30}\n')
    stream = native.from_source(FileSource(tmp_path / "in.json", schema="id long"))
    out, dead = MemorySink("out"), MemorySink("dead")
    stream.to_sink(out, dead_letter=dead).execute("letters")
    assert by_id(out) == [1, 30]
    assert [row["payload"] for row in dead.rows()] == ['{"id": "no"}']


def test_a_bad_row_of_a_source_whose_sinks_have_no_dead_letter_stops_the_job(
    native: Environment, tmp_path: Path
) -> None:
    (tmp_path / "in.json").write_text('{"id": "no"}\n')
    strict = native.from_source(FileSource(tmp_path / "in.json", schema="id long"))
    tolerant = native.from_source(MemorySource([{"id": 1}]))
    sinks = MemorySink("out"), MemorySink("dead")
    with pytest.raises(SourceError, match=r"in\.json, line 1"):
        native.execute("mixed", strict.to_sink(FileSink(tmp_path / "out")), tolerant.to_sink(sinks[0], sinks[1]))
    assert sinks[1].rows() == []


def test_a_dead_letter_by_name_is_a_table_beside_the_sink(
    native: Environment, table: Table, read: Callable[[str], list[dict[str, Any]]], tmp_path: Path
) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": "no"}\n')
    stream = native.from_source(FileSource(tmp_path / "in.json", schema="id long"))
    stream.to_sink(table("events"), dead_letter="bad_events").execute("named")
    assert read("events") == [{"id": 1}]
    assert [row["payload"] for row in read("bad_events")] == ['{"id": "no"}']


@pytest.mark.parametrize(("sink", "letters"), [(MemorySink("out"), "bad"), (FileSink("out"), 5)])
def test_a_dead_letter_that_a_sink_can_not_have(native: Environment, sink: Sink, letters: Any) -> None:
    stream = native.from_source(MemorySource([{"id": 1}]))
    with pytest.raises(ConfigError, match="dead_letter") as caught:
        stream.to_sink(sink, dead_letter=letters)
    assert "FileSink" in str(caught.value)

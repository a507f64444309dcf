"""Jobs over sources that Spark reads itself: every step works on their rows as on those of other sources."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.files import SparkFiles
from volley import (
    DataStream,
    Environment,
    FileSink,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    MemorySource,
    PlanError,
    VolleyError,
    col,
    count,
    tumbling,
)
from volley.spark.log import SparkLog

START = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = "id long, user string, at timestamp"


def write(folder: Path, number: int, ids: Sequence[int], **more: Any) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"id": i, "user": f"u{i % 3}", "at": START + timedelta(seconds=10 * i)} for i in ids]
    table = pa.Table.from_pylist(rows).cast(
        pa.schema([("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    )
    for name, column in more.items():
        table = table.append_column(name, column)
    path = folder / f"{number}.parquet"
    pq.write_table(table, path)
    # Spark reads files in the order in which they were changed.
    os.utime(path, (START.timestamp() + number,) * 2)


@pytest.fixture
def stream(environment: Environment, tmp_path: Path) -> DataStream:
    """Three files of ten rows, one an epoch."""
    for number in range(3):
        write(tmp_path / "in", number, range(10 * number, 10 * number + 10))
    return environment.from_source(SparkFiles(tmp_path / "in", SCHEMA))


def ids(sink: MemorySink, name: str = "id") -> list[int]:
    return sorted(row[name] for row in sink.rows())


def test_several_sinks_and_a_union_with_another_source(
    environment: Environment, stream: DataStream, tmp_path: Path
) -> None:
    """Each source has one line in the offset log, though three sinks get its rows."""
    memory = environment.from_source(MemorySource([{"id": n} for n in range(100, 108)], "id long", rows_per_epoch=4))
    both, even, plain = MemorySink("both"), MemorySink("even"), MemorySink("plain")
    job = environment.execute(
        "mixed",
        stream.select("id").union(memory).to_sink(both),
        stream.filter(col("id") % 2 == 0).to_sink(even),
        stream.to_sink(plain),
    )
    assert ids(both) == [*range(30), *range(100, 108)]
    assert ids(even) == [*range(0, 30, 2)]
    assert plain.rows()[0]["at"].tzinfo is not None
    assert dict(job.metrics.by_source) == {f"spark-files:{tmp_path / 'in'}": 30, "memory:memory": 8}
    lines = SparkLog(str(tmp_path / "checkpoints" / "mixed")).offsets(0)
    assert [next(iter(json.loads(line))) for line in lines] == ["logOffset", "rows"]


def test_two_sources_of_spark_and_a_restart(environment: Environment, stream: DataStream, tmp_path: Path) -> None:
    write(tmp_path / "more", 0, range(50, 55))
    more = environment.from_source(SparkFiles(tmp_path / "more", SCHEMA))
    out = MemorySink("two")
    pipeline = stream.union(more).to_sink(out)
    pipeline.execute("two")
    assert ids(out) == [*range(30), *range(50, 55)]
    write(tmp_path / "in", 9, range(90, 93))
    assert pipeline.execute("two").progress.rows == 3
    assert ids(out) == [*range(30), *range(50, 55), *range(90, 93)]


def test_steps_that_keep_state(environment: Environment, stream: DataStream, tmp_path: Path) -> None:
    write(tmp_path / "in", 3, [0, 5, 29, 30])
    per_minute, first, some = MemorySink("per_minute"), MemorySink("first"), MemorySink("some")
    windows = stream.deduplicate("id").key_by("user").window(tumbling("1m"), on="at", lateness="10m")
    environment.execute(
        "state",
        windows.aggregate(n=count()).to_sink(per_minute),
        stream.deduplicate("id").to_sink(first),
        stream.limit(12).to_sink(some),
    )
    assert ids(first) == [*range(31)]
    assert len({row["id"] for row in some.rows()}) == len(some.rows()) == 12
    # The last windows are open: Spark does not say that its source ends.
    closed = {row["window_start"] for row in per_minute.rows()}
    assert closed == set()


def test_windows_close_behind_the_watermark(environment: Environment, stream: DataStream) -> None:
    sink = MemorySink("minutes")
    users = stream.key_by("user").window(tumbling("1m"), on="at", emit="final")
    users.aggregate(n=count()).to_sink(sink).execute("minutes")
    # The watermark is the time of the last row, 4:50.
    found = {(row["window_start"], row["user"]): row["n"] for row in sink.rows()}
    minutes = [START + timedelta(minutes=minute) for minute in range(4)]
    assert found == {(minute, user): 2 for minute in minutes for user in ("u0", "u1", "u2")}


def test_bad_rows_go_to_the_dead_letter(stream: DataStream) -> None:
    good, bad = MemorySink("good"), MemorySink("bad")
    job = stream.with_column("n", (col("id") * 2**60) / 1).select("id", n=col("id") * 2**60).to_sink(good, bad)
    progress = job.execute("letters").progress
    assert ids(good) == [*range(8)]
    assert sorted(json.loads(row["payload"])["id"] for row in bad.rows()) == [*range(8, 30)]
    assert all("row" in row["position"] for row in bad.rows())
    assert (progress.rows, progress.rejected) == (8, 22)


def test_without_a_dead_letter_the_row_is_named(stream: DataStream) -> None:
    with pytest.raises(VolleyError, match=r"the row \{.*\"id\": ?8"):
        stream.select("id", n=col("id") * 2**60).to_sink(MemorySink("strict")).execute("strict")


def test_a_join_and_functions(environment: Environment, stream: DataStream) -> None:
    names = MemorySource([{"user": "u0", "name": "Ada"}, {"user": "u1", "name": "Bob"}])
    sink = MemorySink("joined")
    joined = stream.join(names, on="user").map(
        lambda row: {"id": row["id"], "name": row["name"]}, "id long, name string"
    )
    joined.to_sink(sink).execute("joined")
    assert {row["id"]: row["name"] for row in sink.rows()} == {i: ("Ada", "Bob")[i % 3] for i in range(30) if i % 3 < 2}


def test_repartition(stream: DataStream, environment: Environment, tmp_path: Path) -> None:
    other = environment.from_source(MemorySource([{"id": 100}, {"id": 101}]))
    folder = tmp_path / "out"
    rows = stream.select("id").union(other).repartition(1).sort_within_epoch("id desc")
    rows.to_sink(FileSink(str(folder))).execute("one")
    tables = [pq.read_table(path)["id"].to_pylist() for path in folder.glob("*.parquet")]
    # One file an epoch, of the rows of both sources.
    assert len(tables) == 3
    assert all(table == sorted(table, reverse=True) for table in tables)
    assert sorted(number for table in tables for number in table) == [*range(30), 100, 101]


def test_filters_and_columns_are_pushed_into_spark_s_reader(
    stream: DataStream, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    """The rows that Spark leaves out don't count as read; what it can't decide, Arrow does."""
    job = (
        stream.filter((col("id") >= 28) & (col("id") * 2 != 56))
        .select("id")
        .to_sink(IcebergSink(config))
        .execute("pushed")
    )
    assert job.metrics.records_read == 2
    assert IcebergSink(config).to_arrow()["id"].to_pylist() == [29]


def test_columns_of_every_type_and_name(environment: Environment, tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "a.b": pa.array([b"\x00\xff"]),
        "`": pa.array([[1, None]], pa.list_(pa.int32())),
        "m p": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "ä": pa.array([{"x": None, "at": START}], pa.struct([("x", pa.int64()), ("at", pa.timestamp("us", "UTC"))])),
        "naïve": pa.array([START.replace(tzinfo=None)], pa.timestamp("us")),
    }
    write(tmp_path / "in", 0, [1], **columns)
    schema = (
        f"{SCHEMA}, `a.b` binary, ```` array<int>, `m p` map<string, bigint>, `ä` struct<x bigint, at timestamp>, "
        "`naïve` timestamp_ntz"
    )
    sink = MemorySink("types")
    rows = environment.from_source(SparkFiles(tmp_path / "in", schema)).with_column("ID", col("id") + 1)
    rows.to_sink(sink).execute("types")
    (found,) = sink.rows()
    assert (found["id"], found["ID"]) == (1, 2)
    assert {name: found[name] for name in columns} == {name: column.to_pylist()[0] for name, column in columns.items()}


def test_a_new_sink_can_t_be_filled(stream: DataStream, environment: Environment, tmp_path: Path) -> None:
    first = FileSink(str(tmp_path / "first"))
    stream.to_sink(first).execute("grows")
    pipelines = stream.to_sink(first), stream.to_sink(FileSink(str(tmp_path / "second")))
    with pytest.raises(PlanError, match="a source that Spark reads") as caught:
        environment.execute("grows", *pipelines, backfill=True)
    assert caught.value.hint

"""Events become rows of an Iceberg table: what goes in comes out, read back by engines we did not write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from volley import EOF, Environment, FileSource, IcebergSink, IcebergSinkConfig, MemorySink, MemorySource, col, lit
from volley.iceberg.settings import Compression

Load = Callable[[], Table]
Rows = Callable[[], list[dict[str, Any]]]


def test_the_example_of_the_spec(environment: Environment, config: IcebergSinkConfig, rows: Rows) -> None:
    source = MemorySource([{"id": i, "status": "active" if i % 2 else "gone"} for i in range(100)])
    job = (
        environment.from_source(source)
        .filter_expr(col("status").eq(lit("active")))
        .to_sink(IcebergSink(config.with_max_records(20)))
        .execute("iceberg-writer")
    )
    assert rows() == [{"id": i, "status": "active"} for i in range(1, 100, 2)]
    assert job.progress.rows == job.metrics.records_written == 50
    assert job.metrics.commits_success == 1
    assert job.metrics.files_created >= 3


def test_every_type_survives(environment: Environment, config: IcebergSinkConfig, load: Load) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "small": pa.array([1, None, -3], pa.int32()),
            "real": pa.array([1.5, float("nan"), None], pa.float64()),
            "single": pa.array([1.5, None, -0.0], pa.float32()),
            "yes": pa.array([True, None, False]),
            "text": pa.array(["ä ✓", "", None]),
            "raw": pa.array([b"\x00\xff", None, b""], pa.binary()),
            "money": pa.array([Decimal("1.25"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
            "day": pa.array([date(1900, 1, 1), None, date(2024, 2, 29)]),
            "at": pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None, datetime(2024, 1, 1, tzinfo=UTC)]),
            "local": pa.array([datetime(1969, 1, 1), None, datetime(2024, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")),
            "clock": pa.array([time(23, 59, 59, 999999), None, time(0)]),
            "shifts": pa.array([[time(6), None], [], None], pa.list_(pa.time64("us"))),
            "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
            "point": pa.array(
                [{"x": 1, "y": None}, None, {"x": None, "y": 2.5}], pa.struct({"x": pa.int32(), "y": pa.float64()})
            ),
            "counts": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    environment.from_source(MemorySource(table)).to_sink(IcebergSink(config)).execute("types")
    found = load().scan().to_arrow().sort_by("id")
    assert repr(found.to_pylist()) == repr(table.to_pylist())
    files = [task.file.file_path for task in load().scan().plan_files()]
    assert duckdb.sql(f"select count(*), sum(money), max(day) from read_parquet({files})").fetchall() == [
        (3, Decimal("-99999998.74"), date(2024, 2, 29))
    ]


def test_one_snapshot_per_epoch_with_its_marks(
    environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    source = MemorySource([{"id": i} for i in range(30)], rows_per_epoch=10)
    environment.from_source(source).to_sink(IcebergSink(config)).execute("marks")
    table = load()
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    assert [(s["volley.job"], s["volley.epoch"], s["added-records"]) for s in summaries if s] == [
        ("marks", "0", "10"),
        ("marks", "1", "10"),
        ("marks", "2", "10"),
    ]
    (query_id,) = {s["volley.query-id"] for s in summaries if s}
    assert table.properties[f"volley.epoch.{query_id}"] == "2"
    assert rows() == [{"id": i} for i in range(30)]


def test_an_epoch_without_rows_makes_no_snapshot(
    environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    source = MemorySource([{"id": i} for i in range(30)], rows_per_epoch=10)
    stream = environment.from_source(source).filter_expr((col("id") < 10) | (col("id") >= 20))
    stream.to_sink(IcebergSink(config)).execute("empty")
    assert [s.summary["volley.epoch"] for s in load().snapshots() if s.summary] == ["0", "2"]
    assert len(rows()) == 20


def test_a_second_run_goes_on_where_the_first_ended(
    environment: Environment, config: IcebergSinkConfig, rows: Rows
) -> None:
    events: list[Any] = [*({"id": i} for i in range(5)), EOF, *({"id": i} for i in range(5, 8))]
    stream = environment.from_source(MemorySource(events)).to_sink(IcebergSink(config))
    stream.execute("again")
    assert len(rows()) == 5
    stream.execute("again")
    assert rows() == [{"id": i} for i in range(8)]
    stream.execute("again")
    assert len(rows()) == 8


def test_new_files_are_picked_up_by_the_next_run(
    environment: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "a.parquet")
    source = FileSource(str(tmp_path / "in"), format="parquet", schema="id long")
    stream = environment.from_source(source).to_sink(IcebergSink(config))
    stream.execute("files")
    pq.write_table(pa.table({"id": [3]}), tmp_path / "in" / "0-sorts-before-a.parquet")
    stream.execute("files")
    assert rows() == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_one_large_json_file_is_read_by_several_tasks(
    native: Environment, config: IcebergSinkConfig, tmp_path: Path, load: Load
) -> None:
    count, text = 60_000, "ä✓" * 30
    with (tmp_path / "in.json").open("w") as file:
        file.writelines(f'{{"id": {number}, "text": "{text}"}}\n' for number in range(count))
    job = native.from_source(FileSource(tmp_path / "in.json", schema="id long, text string")).to_sink(
        IcebergSink(config)
    )
    assert job.execute("large").metrics.files_created >= 2
    found = load().scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(count))
    assert found["text"].unique().to_pylist() == [text]


def test_several_sinks_are_fed_from_one_computation(
    environment: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        with calls.open("a") as file:
            file.write("x")
        return row

    memory = MemorySink("all")
    stream = environment.from_source(MemorySource([{"id": i} for i in range(10)])).map(counted)
    some = stream.filter_expr(col("id") >= 5)
    environment.execute("two", stream.to_sink(memory), some.to_sink(IcebergSink(config)))
    assert sorted(row["id"] for row in memory.rows()) == list(range(10))
    assert rows() == [{"id": i} for i in range(5, 10)]
    assert len(calls.read_text()) == 10


def test_columns_are_matched_by_name(environment: Environment, config: IcebergSinkConfig, rows: Rows) -> None:
    environment.from_source(MemorySource([{"id": 1, "a": "x", "b": 1.0}])).to_sink(IcebergSink(config)).execute("one")
    environment.from_source(MemorySource([{"b": 2.0, "id": 2}])).to_sink(IcebergSink(config)).execute("two")
    assert rows() == [{"id": 1, "a": "x", "b": 1.0}, {"id": 2, "a": None, "b": 2.0}]


def test_new_columns_are_added(native: Environment, config: IcebergSinkConfig, rows: Rows) -> None:
    native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("one")
    native.from_source(MemorySource([{"id": 2, "name": "new"}])).to_sink(IcebergSink(config)).execute("two")
    assert rows() == [{"id": 1, "name": None}, {"id": 2, "name": "new"}]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "lz4", "zstd", "brotli"])
def test_compressions(
    native: Environment, config: IcebergSinkConfig, load: Load, rows: Rows, compression: Compression
) -> None:
    stream = native.from_source(MemorySource([{"id": i, "text": "t" * 50} for i in range(1000)]))
    stream.to_sink(IcebergSink(config.with_compression(compression))).execute("compressed")
    (task,) = load().scan().plan_files()
    written = pq.ParquetFile(task.file.file_path.removeprefix("file://")).metadata.row_group(0).column(0).compression
    assert written == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert len(rows()) == 1000

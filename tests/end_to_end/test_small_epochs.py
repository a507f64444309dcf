"""On one machine the driver runs the tasks of a small epoch itself, and Spark those of any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from tests.duck import query
from volley import (
    DataStream,
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySink,
    MemorySource,
    SourceError,
    col,
)
from volley.iceberg import Upsert
from volley.spark.session import runs_once_locally

LARGE = [{"id": number, "text": "x" * 1_000} for number in range(1_100)]


def takes_spark(spark: SparkSession, work: Callable[[], object]) -> bool:
    """Return True if a piece of work gives Spark something to do: Spark numbers what its jobs compute."""
    context: Any = spark.sparkContext._jsc.sc()
    before = context.newRddId()
    work()
    return bool(context.newRddId() != before + 1)


def files(folder: Path, count: int) -> FileSource:
    for number in range(count):
        folder.mkdir(exist_ok=True)
        rows = (json.dumps({"id": 10 * number + row}) for row in range(10))
        (folder / f"{number}.json").write_text("\n".join(rows))
    return FileSource(folder, format="json", schema="id long", max_files_per_epoch=1)


def test_small_epochs_take_no_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=tmp_path / "checkpoints")
    config = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(tmp_path)))
    sink = IcebergSink(config.with_dead_letter(str(tmp_path / "dead")))

    def run(count: int) -> None:
        stream = environment.from_source(files(tmp_path / "in", count))
        stream.filter_expr(col("id") % 7 != 0).to_sink(sink).execute("small")

    expected = {number for number in range(50) if number % 7}
    # The first job of a session has workers import what it may need.
    run(3)
    assert not takes_spark(spark, lambda: run(5))
    rows = query(f"select id from iceberg_scan('{sink.table().metadata_location}')").fetchall()
    assert sorted(row[0] for row in rows) == sorted(expected)
    summaries = (snapshot.summary for snapshot in sink.table().metadata.snapshots)
    assert [summary and summary["volley.epoch"] for summary in summaries] == ["0", "1", "2", "3", "4"]


def test_small_epochs_are_joined_without_a_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    """Each with the rows that the table has then, also after a start from the beginning."""
    environment, sink = Environment(spark=spark, checkpoint_dir=tmp_path / "checkpoints"), MemorySink("joined")

    def run(count: int, name: str, **options: Any) -> None:
        (tmp_path / "names.csv").write_text("".join(f"{number},{name}\n" for number in range(100)))
        names = FileSource(tmp_path / "names.csv", options={"header": False}, schema="id long, name string")
        stream = environment.from_source(files(tmp_path / "in", count)).join(names, on="id")
        stream.to_sink(sink).execute("joined", **options)

    run(1, "zero")
    assert not takes_spark(spark, lambda: run(2, "one"))
    assert not takes_spark(spark, lambda: run(3, "two"))
    ids = range(30)
    assert sink.rows() == [{"id": id, "name": ("zero", "one", "two")[id // 10]} for id in ids]
    again = MemorySink("joined")
    sink = again
    assert not takes_spark(spark, lambda: run(3, "new", fresh=True, into="replace"))
    assert again.rows() == [{"id": id, "name": "new"} for id in ids]


def test_workers_read_an_orc_file_of_few_rows(spark: SparkSession, tmp_path: Path) -> None:
    orc.write_table(pa.table({"id": [1, 2]}), tmp_path / "in.orc")
    sink = MemorySink("out")
    stream = Environment(spark=spark, checkpoint_dir=tmp_path).from_source(FileSource(tmp_path / "in.orc"))
    assert takes_spark(spark, lambda: stream.to_sink(sink).execute("job"))
    assert sink.rows() == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(("keys", "expected"), [(range(2, 5), False), (range(10), True)], ids=["few", "in many files"])
def test_upserts_of_few_keys_take_no_spark_job(
    spark: SparkSession, tmp_path: Path, keys: range, expected: bool
) -> None:
    environment = Environment(spark=spark, checkpoint_dir=tmp_path / "checkpoints")
    config = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(tmp_path)))
    sink = IcebergSink(config.with_commit_mode(Upsert("id")).with_max_records(1))

    def upsert(name: str, keys: range) -> None:
        rows = [{"id": key, "name": name} for key in keys]
        environment.from_source(MemorySource(rows)).to_sink(sink).execute(name)

    upsert("old", range(10))
    assert takes_spark(spark, lambda: upsert("new", keys)) is expected
    rows = query(f"select id, name from iceberg_scan('{sink.table().metadata_location}') order by id").fetchall()
    assert rows == [(key, "new" if key in keys else "old") for key in range(10)]


@pytest.mark.parametrize(
    ("rows", "step"),
    [([{"id": 1}], lambda stream: stream.map(dict)), (LARGE, lambda stream: stream)],
    ids=["a function of the user's", "more than a megabyte"],
)
def test_others_take_one_or_more(
    spark: SparkSession, tmp_path: Path, rows: list[dict[str, Any]], step: Callable[[DataStream], DataStream]
) -> None:
    sink = MemorySink("out")
    stream = step(Environment(spark=spark, checkpoint_dir=tmp_path).from_source(MemorySource(rows)))
    assert takes_spark(spark, lambda: stream.to_sink(sink).execute("job"))
    assert sink.rows() == rows


def test_a_row_that_the_driver_can_t_read_is_told_as_by_a_worker(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": "one"}\n')
    source = FileSource(tmp_path / "in.json", format="json", schema="id long")
    stream = Environment(spark=spark, checkpoint_dir=tmp_path / "checkpoints").from_source(source)
    told = []
    for name, rows in (("driver", stream), ("worker", stream.map(dict))):
        with pytest.raises(SourceError) as caught:
            rows.to_sink(MemorySink("out")).execute(name)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "in.json" in told[0]


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", True), ("local[4]", True), ("local[*]", True), ("local[2,4]", False), ("spark://host:7077", False)],
)
def test_spark_repeats_tasks_where_it_is_asked_to(master: str, expected: bool) -> None:
    context: Any = SimpleNamespace(master=master)
    assert runs_once_locally(context) is expected


def test_spark_reads_the_logs_of_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=tmp_path)
    source = MemorySource([{"id": number} for number in range(4)], rows_per_epoch=2)
    environment.from_source(source).to_sink(MemorySink("out")).execute("job")
    jvm: Any = spark.sparkContext._jvm
    logs = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    offsets = logs.OffsetSeqLog(spark._jsparkSession, f"{tmp_path}/job/offsets", True).getLatest().get()
    assert offsets._1() == 1
    (offset,) = [offsets._2().offsets().apply(0).get()]
    assert json.loads(offset.json())["rows"] == 4
    assert logs.CommitLog(spark._jsparkSession, f"{tmp_path}/job/commits", True).getLatest().get()._1() == 1


def test_the_driver_goes_on_with_the_logs_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The log has two epochs, the second one planned and not done: the run repeats it, and plans the third."""
    environment, sink = Environment(spark=spark, checkpoint_dir=tmp_path), MemorySink("out")
    stream = environment.from_source(MemorySource([{"id": number} for number in range(6)], rows_per_epoch=2))
    stream.to_sink(sink).execute("job")
    logs = tmp_path / "job"
    for number in (0, 1):
        _, _, offset = (logs / "offsets" / str(number)).read_text().splitlines()
        settings = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "2"}}
        (logs / "offsets" / str(number)).write_text(f"v1\n{json.dumps(settings)}\n{offset}")
    for path in (
        logs / "offsets" / "2",
        logs / "commits" / "2",
        logs / "commits" / "1",
        logs / "volley" / "landed.json",
    ):
        path.unlink(missing_ok=True)
    progress = stream.to_sink(sink).execute("job").progress
    assert (progress.epoch, progress.epochs, progress.skipped) == (2, 2, 2)
    assert sink.rows() == [{"id": number} for number in range(6)]

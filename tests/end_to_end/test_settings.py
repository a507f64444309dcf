"""The sink's settings that no other end-to-end test is about, each seen in the table by a reader we did not write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.waiting import wait_while_it_runs
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, MemorySource, RateSource
from volley.iceberg.settings import Tuning

Load = Callable[[], Table]


def files_of(load: Load) -> list[str]:
    return sorted(task.file.file_path for task in load().scan().plan_files())


def in_one_file(folder: Path, columns: dict[str, pa.Array]) -> FileSource:
    """A source whose rows one task reads."""
    pq.write_table(pa.table(columns), folder / "in.parquet")
    return FileSource(folder / "in.parquet")


def test_files_are_closed_at_their_target_size(
    environment: Environment, config: IcebergSinkConfig, load: Load, tmp_path: Path
) -> None:
    numbers = pa.array(np.random.default_rng(1).integers(0, 2**48, 200_000))
    source = in_one_file(tmp_path, {"number": numbers})
    environment.from_source(source).to_sink(IcebergSink(config.with_target_file_size_mb(0.25))).execute("sizes")
    sizes = sorted(task.file.file_size_in_bytes for task in load().scan().plan_files())
    full = [size for size in sizes if size > 0.9 * 262_144]
    assert max(sizes) < 1.1 * 262_144
    assert len(full) >= 4
    assert duckdb.sql(f"select count(*), sum(number)::varchar from read_parquet({files_of(load)})").fetchone() == (
        200_000,
        str(sum(numbers.to_pylist())),
    )


def test_every_snapshot_has_the_properties_that_were_asked_for(
    environment: Environment, config: IcebergSinkConfig, load: Load
) -> None:
    asked = config.with_snapshot_properties({"team": "växjö", "ticket": "42"})
    source = MemorySource([{"id": i} for i in range(4)], rows_per_epoch=2)
    environment.from_source(source).to_sink(IcebergSink(asked)).execute("properties")
    summaries = [snapshot.summary for snapshot in load().snapshots() if snapshot.summary]
    assert [(each["team"], each["ticket"], each["added-records"]) for each in summaries] == [("växjö", "42", "2")] * 2


@pytest.mark.parametrize(
    ("preset", "batch"), [("low_latency", 1_000), ("balanced", 10_000), ("high_throughput", 25_000)]
)
def test_a_preset_sets_the_batches(
    environment: Environment, config: IcebergSinkConfig, load: Load, tmp_path: Path, preset: Tuning, batch: int
) -> None:
    source = in_one_file(tmp_path, {"id": pa.array(range(25_000))})
    job = environment.from_source(source).to_sink(IcebergSink(config.with_tuning(preset))).execute("preset")
    assert job.metrics.snapshot().batch_size_max == batch
    assert sorted(load().scan().to_arrow()["id"].to_pylist()) == list(range(25_000))


def test_rows_wait_no_longer_than_the_flush_interval(
    spark: SparkSession, tmp_path: Path, config: IcebergSinkConfig, load: Load
) -> None:
    """With the environment's own interval, an hour, the second epoch would not come."""
    environment = Environment(
        spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"), checkpoint_interval=timedelta(hours=1)
    )
    sink = IcebergSink(config.with_flush_interval(0.2))
    job = environment.from_source(RateSource(rows_per_second=100)).to_sink(sink).start("flush")
    try:
        wait_while_it_runs(job, lambda: job.progress.epochs >= 3, "three epochs")
    finally:
        job.stop()
    values = sorted(load().scan().to_arrow()["value"].to_pylist())
    assert values == list(range(len(values)))
    assert len(load().snapshots()) >= 2

"""Checkpoints of the path that Volley had until 0.2.0, on which Spark ran the steps, go on or are refused by name.

The folder has what 0.2.0 wrote, with ``/GOLDEN`` for its own path: of a job over files that Spark reads, of one over
files that Volley reads (``arrow_native=False``), and of one with `deduplicate`, after the epoch of one file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.files import SparkFiles
from volley import DataStream, Environment, FileSink, FileSource, PlanError, col

GOLDEN = Path(__file__).parent / "0.2.0" / "general-path"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What 0.2.0 left, at another place, and a second file."""
    root = Path(shutil.copytree(GOLDEN, tmp_path / "root"))
    for path in (path for path in root.rglob("*") if path.is_file() and path.suffix not in (".parquet", ".delta")):
        path.write_bytes(path.read_bytes().replace(b"/GOLDEN", str(root).encode()))
    first = datetime(2026, 11, 27, 12, 50, tzinfo=UTC).timestamp()
    os.utime(root / "in" / "0.parquet", (first, first))
    pq.write_table(pa.table({"id": pa.array([2, 3, 3], pa.int64())}), root / "in" / "1.parquet")
    return root


def ids(folder: Path) -> list[int]:
    return sorted(number for path in folder.glob("*.parquet") for number in pq.read_table(path)["id"].to_pylist())


def by_spark(environment: Environment, folder: Path) -> DataStream:
    return environment.from_source(SparkFiles(folder / "in", "id long")).filter(col("id") > 1)


def own(environment: Environment, folder: Path) -> DataStream:
    return environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))


@pytest.mark.parametrize(
    ("job", "stream", "target", "rows"),
    [("plain", by_spark, "out", [2, 2, 2, 3, 3]), ("own", own, "own", [1, 2, 2, 2, 3, 3])],
)
def test_a_job_without_state_goes_on(
    spark: SparkSession,
    folder: Path,
    job: str,
    stream: Callable[[Environment, Path], DataStream],
    target: str,
    rows: list[int],
) -> None:
    environment = Environment(spark=spark, checkpoint_dir=folder / "checkpoints")
    sink = FileSink(str(folder / target))
    assert stream(environment, folder).to_sink(sink).execute(job).progress.epochs == 1
    assert ids(folder / target) == rows


def test_state_that_spark_kept_is_refused_with_the_way_out(spark: SparkSession, folder: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=folder / "checkpoints")
    pipeline = own(environment, folder).deduplicate("id").to_sink(FileSink(str(folder / "first")))
    with pytest.raises(PlanError, match="Spark kept the state of deduplicate by 'id'") as caught:
        pipeline.execute("first")
    assert 'fresh=True: with into="replace"' in str(caught.value.hint)
    pipeline.execute("first", fresh=True, into="replace")
    assert ids(folder / "first") == [1, 2, 3]

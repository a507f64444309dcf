"""The job that the catalog tests run, kill and start again: files of numbered rows into a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, col


def write_file(folder: Path, number: int) -> None:
    """One more file: ten numbered rows."""
    (folder / "in").mkdir(exist_ok=True)
    ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
    pq.write_table(pa.table({"id": ids}), folder / "in" / f"{number}.parquet")


def wanted(files: int) -> list[int]:
    """The ids that are in the table when all files are."""
    return [number for number in range(files * 10) if number % 7]


def run(folder: Path, config: IcebergSinkConfig) -> None:
    """One run: an epoch is one file, and rows that 7 divides are left out."""
    (
        Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .filter_expr(col("id") % 7 != 0)
        .to_sink(IcebergSink(config))
        .execute("catalogs")
    )

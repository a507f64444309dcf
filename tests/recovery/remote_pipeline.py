"""The job that fault tests run against real servers: files of numbered rows into a table; and what must come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, col

ROWS_PER_FILE = 50


def write_input(folder: Path, files: int, first: int = 0) -> None:
    """Files of rows, numbered on from the first file's."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for number in range(first, files):
        ids = pa.array(range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE), pa.int64())
        pq.write_table(pa.table({"id": ids, "name": [f"row {i}" for i in ids]}), folder / "in" / f"{number}.parquet")


def run(folder: Path, config: IcebergSinkConfig, master: str = "local[2]", **options: Any) -> None:
    """One run: an epoch is one file; `options` are those of its start."""
    (
        Environment(master, checkpoint_dir=str(folder / "checkpoints"))
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .with_column("twice", col("id") * 2)
        .to_sink(IcebergSink(config))
        .execute("remote", **options)
    )


def check_exactly_once(table: Table, files: int) -> None:
    """Compare source and table row by row, and the snapshots with the epochs."""
    expected = [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(files * ROWS_PER_FILE)]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert epochs == [str(epoch) for epoch in range(files)]

"""The job that the recovery tests run, kill and start again: files of numbered rows into an Iceberg table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tests.recovery.lake import EVENTS
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, col
from volley._failpoints import VICTIM


def main(folder: Path, arrow_native: bool, master: str = "local[2]") -> Job:
    """One run: an epoch is one file. Its task has closed one data file and has another open when it has all rows."""
    config = (
        IcebergSinkConfig(namespace=["db"], table=EVENTS, storage=IcebergStorage.Local(str(folder / "lake")))
        .with_max_records(250)
        .with_table_properties({"write.parquet.row-group-limit": "100"})
    )
    return (
        Environment(master, checkpoint_dir=str(folder / "checkpoints"), arrow_native=arrow_native)
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .filter_expr(col("id") % 7 != 0)
        .with_column("twice", col("id") * 2)
        .to_sink(IcebergSink(config))
        .execute("recovery")
    )


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("folder", type=Path)
    asked.add_argument("path", choices=["arrow-native", "general"])
    asked.add_argument("--master", default="local[2]")
    asked.add_argument("--kill-driver", action="store_true", help="also where a task reaches the failpoint")
    given = asked.parse_args()
    if given.kill_driver:
        os.environ[VICTIM] = str(os.getpid())
    for orphan in main(given.folder, given.path == "arrow-native", given.master).orphans:
        print(orphan)

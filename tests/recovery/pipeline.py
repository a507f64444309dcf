"""The job that the recovery tests run, kill and start again: files of numbered rows into an Iceberg table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tests.recovery.lake import EVENTS
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, col, lit
from volley._failpoints import VICTIM
from volley.iceberg import Append, Overwrite, Upsert
from volley.iceberg.modes import CommitMode

MODES: dict[str, CommitMode] = {
    "append": Append(),
    "overwrite": Overwrite(),
    "merge_on_read": Upsert("key", order_by="id", op_field="gone", strategy="merge_on_read"),
    "copy_on_write": Upsert("key", order_by="id", op_field="gone", strategy="copy_on_write"),
}


def main(
    folder: Path,
    arrow_native: bool,
    master: str = "local[2]",
    dead_letter: str | None = None,
    mode: str = "append",
    evolve: bool = False,
) -> Job:
    """One run: an epoch is one file. Its task has closed one data file and has another open when it has all rows.

    With a dead letter, ids that end in 3 are bad rows. An upsert has a key for several ids, and deletes every 11th id.
    With `evolve` the table that is there has a column under another name, and one to drop.
    """
    config = (
        IcebergSinkConfig(namespace=["db"], table=EVENTS, storage=IcebergStorage.Local(str(folder / "lake")))
        .with_max_records(250)
        .with_table_properties({"write.parquet.row-group-limit": "100"})
    )
    if evolve:
        config = config.with_schema_evolution("full", renames={"label": "name"}, drops=["note"])
    twice = col("id") * 2
    if dead_letter:
        # Divided by zero, where it is a bad row.
        twice = twice + (lit(0) / (col("id") % 10 - 3)).cast("long")
    stream = (
        Environment(master, checkpoint_dir=str(folder / "checkpoints"), arrow_native=arrow_native)
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .filter_expr(col("id") % 7 != 0)
        .with_column("twice", twice)
    )
    if isinstance(MODES[mode], Upsert):
        stream = stream.with_column("key", col("id") % 300).with_column("gone", col("id") % 11 == 0)
    return stream.to_sink(IcebergSink(config.with_dead_letter(dead_letter).with_commit_mode(MODES[mode]))).execute(
        "recovery"
    )


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("folder", type=Path)
    asked.add_argument("path", choices=["arrow-native", "general"])
    asked.add_argument("--master", default="local[2]")
    asked.add_argument("--kill-driver", action="store_true", help="also where a task reaches the failpoint")
    asked.add_argument("--dead-letter")
    asked.add_argument("--mode", choices=MODES, default="append")
    asked.add_argument("--evolve", action="store_true")
    given = asked.parse_args()
    if given.kill_driver:
        os.environ[VICTIM] = str(os.getpid())
    job = main(given.folder, given.path == "arrow-native", given.master, given.dead_letter, given.mode, given.evolve)
    for orphan in job.orphans:
        print(orphan)

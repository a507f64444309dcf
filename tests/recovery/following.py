"""The job whose copies of a table the recovery tests prove: one of its changes, one of its rows as they are added."""

from __future__ import annotations

from pathlib import Path

from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    Job,
    col,
)
from volley.iceberg import TableRef, Upsert

__all__ = ["main", "table"]


def table(folder: Path, name: str) -> TableRef:
    """A table of the lake."""
    return TableRef("db", name, IcebergStorage.Local(str(folder / "lake")))


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a snapshot of each of two tables in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))

    def sink(name: str) -> IcebergSinkConfig:
        return IcebergSinkConfig.from_table(table(folder, name)).with_max_records(100)

    events = IcebergSourceConfig(table(folder, "events")).with_changes("follow", "id")
    follow = events.with_on_rollback("undo").with_max_rows_per_epoch(1)
    added = IcebergSourceConfig(table(folder, "log")).with_max_files_per_epoch(1)
    changes = environment.from_source(IcebergSource(follow)).drop("_snapshot", "_committed_at")
    rows = environment.from_source(IcebergSource(added)).filter_expr(col("id") % 7 != 0)
    upsert = Upsert(["id"], op_field="_change", strategy="merge_on_read")
    return environment.execute(
        "following",
        changes.to_sink(IcebergSink(sink("copy").with_commit_mode(upsert))),
        rows.to_sink(IcebergSink(sink("log_copy"))),
    )

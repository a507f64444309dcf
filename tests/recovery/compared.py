"""The job whose comparison of extracts the recovery tests prove: its changes are upserted, and kept in a log."""

from __future__ import annotations

from pathlib import Path

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Job
from volley.iceberg import Upsert

__all__ = ["main"]


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over an extract in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    storage = IcebergStorage.Local(str(folder / "lake"))
    extracts = FileSource(str(folder / "in"), format="parquet")
    changes = environment.changes_from_snapshots(extracts, ["id"], version="day", max_deleted=None, buckets=4)

    def sink(table: str) -> IcebergSinkConfig:
        return IcebergSinkConfig(namespace=["db"], table=table, storage=storage).with_max_records(100)

    return environment.execute(
        "compared",
        changes.to_sink(IcebergSink(sink("log"))),
        changes.to_sink(IcebergSink(sink("last").with_commit_mode(Upsert(sequence="day")))),
    )

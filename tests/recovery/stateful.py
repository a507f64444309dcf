"""The job whose state the recovery tests prove: rows that come twice, first ones appended, last ones upserted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.sinks import config_of
from volley import DataStream, Environment, FileSource, IcebergSink, IcebergSinkConfig, Job, col, lit
from volley.iceberg import Upsert

__all__ = ["SLOTS", "main"]

SLOTS = 450
"""Ids that are the same modulo this have one row in the upserted table."""


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file of each of two sources in each epoch: it has both keyed steps and two sinks."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))

    def read(kind: str) -> DataStream:
        return environment.from_source(FileSource(str(folder / kind), format="parquet", max_files_per_epoch=1))

    def sink(table: str) -> IcebergSinkConfig:
        return config_of(folder, table).with_max_records(100)

    ever = read("deduplicate").deduplicate("id")
    within = read("deduplicate_within").deduplicate("id", event_time="at", within=timedelta(hours=1))
    last = Upsert(["kind", "slot"], order_by="at", strategy="copy_on_write")
    both = ever.with_column("kind", lit("deduplicate")).union(within.with_column("kind", lit("deduplicate_within")))
    return environment.execute(
        "stateful",
        both.to_sink(IcebergSink(sink("first"))),
        both.with_column("slot", col("id") % SLOTS).to_sink(IcebergSink(sink("last").with_commit_mode(last))),
    )

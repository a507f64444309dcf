"""The job over files that Spark reads itself, beside a source of Volley's, that the recovery tests kill."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import config_of
from tests.spark.files import SparkFiles
from volley import Environment, FileSource, IcebergSink, Job, col

__all__ = ["KEYS", "main"]

KEYS = 450
"""Fewer than there are rows, and so many that the first epochs have new ones."""


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file of each source in each epoch: all rows, and the first one of each key."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    by_spark = environment.from_source(SparkFiles(folder / "spark", "id long"))
    own = environment.from_source(FileSource(str(folder / "own"), format="parquet", max_files_per_epoch=1))

    def sink(table: str) -> IcebergSink:
        return IcebergSink(config_of(folder, table).with_max_records(50))

    both = by_spark.union(own)
    first = both.with_column("key", col("id") % KEYS).deduplicate("key").select("key")
    return environment.execute("spark", both.to_sink(sink("all")), first.to_sink(sink("keys")))

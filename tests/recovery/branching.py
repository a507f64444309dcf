"""The job with forks and joins that the recovery tests kill: two sources, a union, a split, four tables."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import config_of
from volley import DataStream, Environment, FileSource, IcebergSink, Job, col

__all__ = ["SCHEMA", "SOURCES", "main"]

SOURCES = ("left", "right")
SCHEMA = "id long, price long"


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file of each source in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))

    def read(source: str) -> DataStream:
        return environment.from_source(FileSource(folder / source, "json", SCHEMA, max_files_per_epoch=1))

    def table(name: str) -> IcebergSink:
        return IcebergSink(config_of(folder, name).with_max_records(50))

    left, right = map(read, SOURCES)
    paid, rest = left.union(right).split(col("price") > 0)
    return environment.execute(
        "branching",
        paid.with_column("twice", col("price") * 2).to_sink(table("paid"), "bad"),
        rest.to_sink(table("rest"), "bad"),
        left.select("id").to_sink(table("ids"), "bad"),
    )

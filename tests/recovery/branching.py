"""The job with forks and joins that the recovery tests kill: two sources, a union, a split, four tables."""

from __future__ import annotations

from pathlib import Path

from volley import DataStream, Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, col

__all__ = ["SCHEMA", "SOURCES", "main"]

SOURCES = ("left", "right")
SCHEMA = "id long, price long"


def main(folder: Path, path: str, master: str = "local[2]") -> Job:
    """One run, over a file of each source in each epoch; the general path has no dead letter."""
    native = path == "arrow-native"
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"), arrow_native=native)

    def read(source: str) -> DataStream:
        return environment.from_source(FileSource(folder / source, "json", SCHEMA, max_files_per_epoch=1))

    def table(name: str) -> IcebergSink:
        storage = IcebergStorage.Local(str(folder / "lake"))
        return IcebergSink(IcebergSinkConfig(namespace=["db"], table=name, storage=storage).with_max_records(50))

    left, right = map(read, SOURCES)
    paid, rest = left.union(right).split(col("price") > 0)
    letters = "bad" if native else None
    return environment.execute(
        "branching",
        paid.with_column("twice", col("price") * 2).to_sink(table("paid"), letters),
        rest.to_sink(table("rest"), letters),
        left.select("id").to_sink(table("ids"), letters),
    )

"""The job that the recovery tests run, kill and start again: files of numbered rows into an Iceberg table."""

from __future__ import annotations

import sys
from pathlib import Path

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, col, lit


def main(folder: Path, arrow_native: bool, dead_letter: str | None = None) -> None:
    """One run: an epoch is one file. With a dead letter, ids that end in 3 are bad rows."""
    config = IcebergSinkConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(str(folder / "lake")))
    twice = col("id") * 2
    if dead_letter:
        # Divided by zero, where it is a bad row.
        twice = twice + (lit(0) / (col("id") % 10 - 3)).cast("long")
    (
        Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"), arrow_native=arrow_native)
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .filter_expr(col("id") % 7 != 0)
        .with_column("twice", twice)
        .to_sink(IcebergSink(config.with_dead_letter(dead_letter)))
        .execute("recovery")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "arrow-native", *sys.argv[3:])

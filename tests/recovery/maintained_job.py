"""The job that the tests of maintenance run, kill and start again: upserts into a table that the job maintains."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import config_of
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, col
from volley.iceberg import Maintenance, Upsert

__all__ = ["KEYS", "config", "main"]

KEYS = 300
"""The number of keys: each row has its id modulo this."""

# Each action finds something to do after a few epochs.
_OFTEN = Maintenance(commits=3, every="1s", budget=1.0, deletes_above=0.9, expire_after="1ms", retain_last=3)


def config(folder: Path) -> IcebergSinkConfig:
    """The sink's settings."""
    table = config_of(folder)
    return table.with_commit_mode(Upsert("key", order_by="id", strategy="merge_on_read")).with_maintenance(_OFTEN)


def main(folder: Path, bounded: bool) -> None:
    """One run: an epoch is one file.

    Args:
        folder: Its folder ``in`` has the files.
        bounded: False waits for more files when all are read.
    """
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"), checkpoint_interval=0)
    files = FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1, bounded=bounded)
    stream = environment.from_source(files).with_column("key", col("id") % KEYS)
    stream.to_sink(IcebergSink(config(folder))).execute("maintained")

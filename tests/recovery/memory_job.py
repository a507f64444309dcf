"""A job that reads rows from memory, two an epoch, into tables, folders and whatever else a test gives it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from tests.recovery.runs import load
from volley import (
    Environment,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    Progress,
    Sink,
    Source,
)
from volley.iceberg.modes import Append, CommitMode
from volley.spark.session import open_context, session_of

ROWS_PER_EPOCH = 2

_APPEND = Append()


@dataclass(frozen=True)
class MemoryJob:
    """A job named "job" on the shared session.

    Args:
        spark: The session.
        folder: Where its checkpoint, its tables and its files are.
    """

    spark: SparkSession
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "job"

    def table(self, name: str, mode: CommitMode = _APPEND) -> IcebergSink:
        """A sink that writes to the table of this name."""
        storage = IcebergStorage.Local(str(self.folder / "lake"))
        return IcebergSink(IcebergSinkConfig(namespace=["db"], table=name, storage=storage).with_commit_mode(mode))

    def files(self, name: str) -> FileSink:
        """A sink that writes to the folder of this name."""
        return FileSink(str(self.folder / name))

    def run(self, rows: int, *sinks: Sink, per_epoch: int = ROWS_PER_EPOCH, **start: Any) -> Progress:
        """One run over the first `rows` rows, with ids 0, 1, 2, …"""
        source = MemorySource([{"id": number} for number in range(rows)], rows_per_epoch=per_epoch)
        return self._run(source, *sinks, **start)

    def run_files(self, *sinks: Sink, **start: Any) -> Progress:
        """One run over the files that there are, one an epoch."""
        return self._run(FileSource(self.folder / "in", "json", "id long", max_files_per_epoch=1), *sinks, **start)

    def put_files(self, *ids: int, archive: bool = False) -> None:
        """Put a file with a row for each of these ids, maybe in place of those that are there."""
        if archive:
            shutil.rmtree(self.folder / "in")
        (self.folder / "in").mkdir(exist_ok=True)
        for number in ids:
            (self.folder / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')

    def _run(self, source: Source, *sinks: Sink, **start: Any) -> Progress:
        environment = Environment(spark=self.spark, checkpoint_dir=str(self.checkpoint.parent))
        stream = environment.from_source(source)
        return environment.execute("job", *map(stream.to_sink, sinks), **start).progress

    def ids(self, name: str) -> list[int] | None:
        """The ids in a table or a folder of files, in order; None if there is none."""
        if (self.folder / name).exists():
            paths = (self.folder / name).glob("*.parquet")
            return sorted(each for path in paths for each in pq.read_table(path)["id"].to_pylist())
        try:
            found: list[int] = load(self.folder, f"db.{name}").scan().to_arrow()["id"].to_pylist()
        except NoSuchTableError:
            return None
        return sorted(found)

    def lose_checkpoint(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self.checkpoint)


def backfill(folder: Path) -> None:
    """The run, in a process of its own, that fills table "b" with the rows which "a" has."""
    job = MemoryJob(session_of(open_context("local[2]")), folder)
    job.run(4, job.table("a"), job.table("b"), backfill=True)

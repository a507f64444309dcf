"""The job that `benchmarks.chaos` torments: its commits meet conflicts, lost answers, other writers, missing files."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import StringType
from requests.exceptions import ConnectionError as Unreachable

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, col, lit
from volley._failpoints import VICTIM
from volley.iceberg._clients import ThriftySqlCatalog
from volley.iceberg.committer import IcebergCommitter

__all__ = ["BAD", "config", "load_table"]

TABLE = "events"
BAD = 50
"""Ids that are 3 modulo this are bad rows: they go to the dead letters."""
_OFTEN = 0.08
_SELDOM = 0.015  # faults that stop the job: most of its ends are to be deaths


def config(folder: Path, table: str = TABLE) -> IcebergSinkConfig:
    """The table of the good rows, or that of the bad ones."""
    return IcebergSinkConfig(namespace=["db"], table=table, storage=IcebergStorage.Local(str(folder / "lake")))


def load_table(folder: Path, table: str = TABLE) -> Table:
    """The table as a client sees it that is not Volley."""
    return _plain(folder).load_table(f"db.{table}")


def _plain(folder: Path) -> SqlCatalog:
    return SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db?timeout=30")


class Tormentor:
    """Chooses a fault for some of the commits, and keeps count of them in a file.

    Args:
        folder: Where the lake is.
        dice: What chooses.
    """

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder = folder
        self._dice = dice

    def torment(self) -> None:
        """From now on, this process' commits to the main table meet faults."""
        commit_table, load_table, commit = (
            ThriftySqlCatalog.commit_table,
            ThriftySqlCatalog.load_table,
            IcebergCommitter.commit,
        )

        def commit_with_faults(catalog: ThriftySqlCatalog, table: Table, *changes: Any) -> Any:
            return self._commit(table, lambda: commit_table(catalog, table, *changes))

        def load_with_faults(catalog: ThriftySqlCatalog, identifier: Any) -> Table:
            if self._chosen("catalog away for a load"):
                raise Unreachable("injected: connection refused")
            return load_table(catalog, identifier)

        def commit_with_loss(committer: IcebergCommitter, epoch: Any, results: Any) -> None:
            files = [file for result in results for file in result.committables]
            if files and self._chosen("data file vanished", _SELDOM):
                os.remove(files[0].data_file.file_path.removeprefix("file://"))
            commit(committer, epoch, results)

        ThriftySqlCatalog.commit_table = commit_with_faults  # type: ignore[method-assign, assignment]
        ThriftySqlCatalog.load_table = load_with_faults  # type: ignore[method-assign, assignment]
        IcebergCommitter.commit = commit_with_loss  # type: ignore[method-assign, assignment]

    def _commit(self, table: Table, commit: Callable[[], Any]) -> Any:
        if self._chosen("commit refused"):
            raise CommitFailedException("injected: somebody was faster")
        if self._chosen("request lost"):
            raise Unreachable("injected: connection reset before the commit")
        if table.name()[-1] == TABLE:
            for name, change in self._rivals().items():
                if self._chosen(name, _SELDOM if change is _add_column else _OFTEN):
                    change(_plain(self._folder).load_table(table.name()))
        answer = commit()
        if self._chosen("answer lost"):
            raise Unreachable("injected: connection reset after the commit")
        return answer

    def _rivals(self) -> dict[str, Callable[[Table], Any]]:
        return {
            "rival append": self._append,
            "rival compaction": _compact,
            "rival expiry": _expire,
            "rival rollback": _roll_back,
            "rival schema change": _add_column,
        }

    def _append(self, table: Table) -> None:
        number = -1 - len((self._folder / "rivals").read_text().split()) if (self._folder / "rivals").exists() else -1
        table.append(pa.Table.from_pylist([{"id": number}], pa.schema([("id", pa.int64())])))
        with (self._folder / "rivals").open("a") as log:
            log.write(f"{number}\n")

    def _chosen(self, fault: str, share: float = _OFTEN) -> bool:
        if self._dice.random() >= share:
            return False
        with (self._folder / "faults").open("a") as log:
            log.write(f"{fault}\n")
        return True


def _compact(table: Table) -> None:
    """Replace one data file by a copy of it: the same rows in an overwrite snapshot."""
    file = next((task.file for task in table.scan().plan_files()), None)
    if file is None:
        return
    path = f"{table.location()}/data/compacted-{uuid.uuid4()}.parquet"
    shutil.copy(file.file_path.removeprefix("file://"), path.removeprefix("file://"))
    names = ("partition", "record_count", "file_size_in_bytes", "column_sizes", "value_counts", "null_value_counts")
    more = ("nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets")
    copy = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        **{name: getattr(file, name) for name in (*names, *more)},
    )
    copy.spec_id = file.spec_id
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(file)
        overwrite.append_data_file(copy)


def _expire(table: Table) -> None:
    """Forget all snapshots but the last."""
    head = table.current_snapshot()
    old = [each.snapshot_id for each in table.snapshots() if head and each.snapshot_id != head.snapshot_id]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def _roll_back(table: Table) -> None:
    """Make the last snapshot current once more: a rollback that takes nothing away."""
    head = table.current_snapshot()
    if head is None:
        return
    table.append(pa.Table.from_pylist([{"id": 0}], pa.schema([("id", pa.int64())])))
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(head.snapshot_id).commit()


def _add_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column(f"extra_{uuid.uuid4().hex[:8]}", StringType())


def main() -> None:
    """One run of the job, to the end of its input or its own."""
    asked = argparse.ArgumentParser()
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", help="of this run's faults; none without it")
    asked.add_argument("--kill-driver", action="store_true", help="also where a task reaches the failpoint")
    given = asked.parse_args()
    if given.kill_driver:
        os.environ[VICTIM] = str(os.getpid())
    if given.seed is not None:
        Tormentor(given.folder, random.Random(given.seed)).torment()
    twice = col("id") * 2 + (lit(0) / (col("id") % BAD - 3)).cast("long")
    (
        Environment("local[2,8]", checkpoint_dir=str(given.folder / "checkpoints"))
        .from_source(FileSource(str(given.folder / "in"), format="parquet", max_files_per_epoch=1))
        .filter_expr(col("id") % 7 != 0)
        .with_column("twice", twice)
        .to_sink(IcebergSink(config(given.folder).with_max_records(100).with_dead_letter("dead")))
        .execute("chaos")
    )


if __name__ == "__main__":
    main()

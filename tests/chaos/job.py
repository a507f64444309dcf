"""A job that the campaign kills; its commits meet conflicts, lost answers, other writers and missing files."""

from __future__ import annotations

import os
import random
import shutil
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import StringType
from requests.exceptions import ConnectionError as Unreachable

from tests.chaos.kinds import KINDS
from tests.chaos.rival import Rival
from tests.iceberg.clocks import AHEAD, clock
from tests.sinks import config_of
from volley import (
    CatalogError,
    CommitError,
    Environment,
    FileSource,
    IcebergSink,
    IcebergTable,
    Pipeline,
    SnapshotManager,
    StorageError,
    VolleyError,
)
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.pyiceberg_private.sql import CachedSqlCatalog

__all__ = ["STOPPED", "dead_letters", "load_table", "pipeline", "rival", "run"]

STOPPED = 3
"""The exit status of a job that a fault has stopped, as it should."""
_VANISHED = "data file vanished"
_RIVAL = "rival upsert"
_USUAL = 0.2
_OFTEN = 0.08
_SELDOM = 0.015  # faults that stop the job: most of its ends are to be deaths


def dead_letters(kind: str) -> str:
    """The table of the bad rows of a kind."""
    return f"{kind}_dead"


def pipeline(folder: Path, kind: str, master: str | None = None) -> Pipeline:
    """The job of this kind, to be executed under its name."""
    this = KINDS[kind]
    read = Environment(master, checkpoint_dir=str(folder / "checkpoints")).from_source(
        FileSource(str(folder / "in" / kind), format="parquet", max_files_per_epoch=1)
    )
    sink = config_of(folder, kind).with_max_records(100).with_commit_mode(this.mode)
    return this.steps(read).to_sink(IcebergSink(sink.with_dead_letter(dead_letters(kind) if this.bad else None)))


def rival(folder: Path, kind: str) -> Rival:
    """The second job on the table of this kind."""
    target = config_of(folder, kind).with_max_records(100).with_commit_mode(KINDS[kind].mode)
    return Rival(folder / f"{kind}.rival-epochs", target, KINDS[kind])


def load_table(folder: Path, table: str) -> Table:
    """The table as a client sees it that is not Volley."""
    return _plain(folder).load_table(f"db.{table}")


def _plain(folder: Path) -> SqlCatalog:
    return SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db?timeout=30")


class Tormentor:
    """Chooses a fault for some of the commits, and keeps count of them in a file.

    Args:
        folder: Where the lake is.
        kind: The job's.
        dice: What chooses.
    """

    def __init__(self, folder: Path, kind: str, dice: random.Random) -> None:
        self._folder = folder
        self._kind = kind
        self._dice = dice
        self._met: set[str] = set()
        self._interferes = False
        self._rivals = folder / f"{kind}.rivals"

    def torment(self) -> None:
        """From now on, this process' commits meet faults, and those to the job's main table other writers too."""
        commit_table, load_table, commit = (
            CachedSqlCatalog.commit_table,
            CachedSqlCatalog.load_table,
            IcebergCommitter.commit,
        )

        def commit_with_faults(catalog: CachedSqlCatalog, table: Table, *changes: Any) -> Any:
            return self._commit(table, lambda: commit_table(catalog, table, *changes))

        def load_with_faults(catalog: CachedSqlCatalog, identifier: Any) -> Table:
            if self._chosen("catalog away for a load"):
                raise Unreachable("injected: connection refused")
            return load_table(catalog, identifier)

        def commit_with_loss(committer: IcebergCommitter, epoch: Any, results: Any) -> None:
            files = [file for result in results for file in result.committables]
            if files and self._chosen(_VANISHED, _SELDOM):
                os.remove(files[0].path.removeprefix("file://"))
            if KINDS[self._kind].rival is not None and not self._interferes:
                self._maintain()
            commit(committer, epoch, results)

        CachedSqlCatalog.commit_table = commit_with_faults  # type: ignore[method-assign, assignment]
        CachedSqlCatalog.load_table = load_with_faults  # type: ignore[method-assign, assignment]
        IcebergCommitter.commit = commit_with_loss  # type: ignore[method-assign, assignment]

    def clock(self) -> AbstractContextManager[None]:
        """A clock that may be wrong by hours, in either direction."""
        wrong = self._dice.choice([-1, 1]) * AHEAD if self._chosen("clock jumps") else 0
        return clock(lambda now: now + wrong)

    def explains(self, error: VolleyError) -> bool:
        """Whether a fault that was met can be the reason for this end of the job."""
        return _VANISHED in self._met if isinstance(error, StorageError) else bool(self._met)

    def _commit(self, table: Table, commit: Callable[[], Any]) -> Any:
        if self._interferes:
            return commit()
        if self._chosen("commit refused"):
            raise CommitFailedException("injected: somebody was faster")
        if self._chosen("request lost"):
            raise Unreachable("injected: connection reset before the commit")
        if table.name()[-1] == self._kind:
            for name, change in self._changes().items():
                if self._chosen(name, _SELDOM if change is _add_column else _USUAL if name == _RIVAL else _OFTEN):
                    self._interfere(change, _plain(self._folder).load_table(table.name()))
        answer = commit()
        if self._chosen("answer lost"):
            raise Unreachable("injected: connection reset after the commit")
        return answer

    def _interfere(self, change: Callable[[Table], Any], table: Table) -> None:
        """Change a table as another writer, whose clock may be ahead, but not behind the table's times."""
        ahead = AHEAD if self._chosen("rival with a clock ahead") else 0
        last = table.metadata.last_updated_ms / 1000
        self._interferes = True
        try:
            with clock(lambda now: max(now, last) + ahead):
                change(table)
        finally:
            self._interferes = False

    def _changes(self) -> dict[str, Callable[[Table], Any]]:
        own = {} if KINDS[self._kind].rival is None else self._changes_in_sequence()
        return own | {
            "rival append": self._append,
            "rival compaction": _compact,
            "rival expiry": _expire,
            "rival rollback": _roll_back,
            "rival schema change": _add_column,
        }

    def _changes_in_sequence(self) -> dict[str, Callable[[Table], Any]]:
        """What others do to a table that is upserted by sequence."""
        files = len([*(self._folder / "in" / self._kind).glob("*.parquet")])
        return {_RIVAL: lambda table: rival(self._folder, self._kind).begin_epoch(files)}

    def _maintain(self) -> None:
        """Compact and expire the table as its own job would, between two commits."""
        target = config_of(self._folder, self._kind)
        self._interferes = True
        try:
            if self._chosen("maintenance: compaction"):
                IcebergTable(target).compact()
            if self._chosen("maintenance: expiry"):
                SnapshotManager(target).expire_snapshots("0s", 1)
        finally:
            self._interferes = False

    def _append(self, table: Table) -> None:
        number = -1 - len(self._rivals.read_text().split()) if self._rivals.exists() else -1
        table.append(pa.Table.from_pylist([{"id": number}], pa.schema([("id", pa.int64())])))
        with self._rivals.open("a") as log:
            log.write(f"{number}\n")

    def _chosen(self, fault: str, share: float = _OFTEN) -> bool:
        if self._dice.random() >= share:
            return False
        self._met.add(fault)
        with (self._folder / f"{self._kind}.faults").open("a") as log:
            log.write(f"{fault}\n")
        return True


def _compact(table: Table) -> None:
    """Replace one data file by a copy of it: the same rows in an overwrite snapshot."""
    # A copy has another path: the positions that delete files name would mean nothing in it.
    file = next((task.file for task in table.scan().plan_files() if not task.delete_files), None)
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
    """Forget all snapshots but the last of each branch."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in heads]
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


def run(folder: Path, kind: str, seed: str) -> None:
    """One run of a job, to the end of its input or its own; exits with STOPPED if a fault has stopped it.

    Args:
        folder: Where the lake and the logs are.
        kind: The job's.
        seed: Of this run's faults.
    """
    with (folder / f"{kind}.log").open("ab") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    tormentor = Tormentor(folder, kind, random.Random(seed))
    tormentor.torment()
    try:
        with tormentor.clock():
            pipeline(folder, kind, "local[2,8]").execute(kind)
    except (CatalogError, CommitError, StorageError) as error:
        if not tormentor.explains(error):
            raise
        print(f"{kind}: {type(error).__name__}: {error.message}")
        sys.exit(STOPPED)

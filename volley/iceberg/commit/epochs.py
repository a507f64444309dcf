"""Stages what a job commits to a table: an epoch, and, to start over, the deletion of what it has written."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from warnings import catch_warnings

from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from volley.contracts.epoch import Epoch
from volley.contracts.sink import SinkContext
from volley.errors import CommitConflictError, StorageError
from volley.iceberg.commit.loop import Stage, Staged, new_snapshot_id, write_manifests
from volley.iceberg.commit.marks import (
    COMMIT,
    EPOCH,
    JOB,
    MARKS,
    OFFSETS,
    QUERY,
    RUN,
    dropped_with,
    epoch_of,
    queries_of,
    run_mark,
    snapshot_id_of,
)
from volley.iceberg.commit.overwrite import overwrite
from volley.iceberg.commit.rows_of_jobs import rows_of, without_rows_of
from volley.iceberg.commit.tables import evolution
from volley.iceberg.commit.tombstones import as_settled, begins, forgetting, remember
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.modes import History, KeyedMode, Overwrite
from volley.iceberg.pyiceberg_private.access import snapshot_ids
from volley.iceberg.pyiceberg_private.access import stage as add_updates
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import data_folder, file_system, sizes
from volley.iceberg.upsert.changes import ChangeFile
from volley.iceberg.upsert.tombstones import VERSIONS_OF, remembered_by
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.task.failpoints import reach

__all__ = ["Clearing", "EpochStage"]


@dataclass
class EpochStage(Stage[Staged]):
    """The commit of an epoch of one sink.

    The mark is written twice, in one transaction: to the snapshot's summary, and to the table property
    ``volley.epoch.<query id>``, which outlives the snapshot. The snapshot id is computed from table, query and epoch,
    as a second guard: a catalog accepts a snapshot id only once.

    Args:
        changes: Returns the changes of the current table; only this depends on the commit mode.
        commit_id: Distinguishes our commit from another driver's commit of the same epoch.
    """

    in_turn = True
    conflict_hint = "start the job again, it repeats the epoch; if it recurs, let fewer writers commit less often"
    unknown_hint = "nothing was deleted; start the job again when the catalog answers, it finds out and goes on"

    config: IcebergSinkConfig
    context: SinkContext
    epoch: Epoch
    files: Sequence[WrittenFile | ChangeFile]
    changes: Callable[[Table], SnapshotFiles]
    commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.action = f"committing epoch {self.epoch.number}"

    def stage(self, table: Table) -> Staged | None:
        self._has_epoch(table)  # raises if another driver was faster
        self._check_branch(table)
        schema_changes = evolution(self.config, table, self.context.schema)
        evolved = schema_changes.of(table)
        check_layout(evolved, {file.layout for file in self.files})
        changes = self.changes(evolved)
        if not changes:
            return None
        _check_present(evolved, changes.written)
        staged = self._staged(table, schema_changes, changes)
        reach("before-commit", self.epoch.number)
        return staged

    def landed(self, table: Table, staged: Staged) -> bool:
        return self._has_epoch(table)

    def committed(self) -> None:
        reach("after-commit", self.epoch.number)

    def retry(self) -> None:
        self.context.metrics.record_retry()

    def _has_epoch(self, table: Table) -> bool:
        """Return True if this driver has committed the epoch; raise CommitConflictError if another one has."""
        epoch = self.epoch
        last = epoch_of(table, epoch.query_id, self.config.branch)
        if last is None or last < epoch.number:
            return False
        if table.properties.get(f"{COMMIT}.{epoch.query_id}") == self.commit_id:
            return True
        raise CommitConflictError(
            f"epoch {epoch.number} of query {epoch.query_id} is in table {self.config.table_name} already, committed "
            f"by another driver (its last epoch there is {last})",
            hint="the same job runs twice on one checkpoint: stop one of them; no row is lost or doubled",
        )

    def _check_branch(self, table: Table) -> None:
        """Raise CommitConflictError if somebody has dropped the branch: a new one would lack the rows of before."""
        branch, query = self.config.branch, self.epoch.query_id
        if (last := dropped_with(table, branch, query)) is not None:
            raise CommitConflictError(
                f"branch {branch!r} of table {self.config.table_name} was dropped, and main lacks what job "
                f"{self.context.job!r} has written to it",
                hint=f"make it again, SnapshotManager(…).create_branch({branch!r}, {last.snapshot_id}), before that "
                "snapshot expires; or start over: fresh=True",
            )

    def _staged(self, table: Table, schema_changes: Evolution, changes: SnapshotFiles) -> Staged:
        """Return a transaction with the manifests and metadata of one snapshot, and the schema changes it needs."""
        epoch, config = self.epoch, self.config
        job, query = self.context.job, epoch.query_id
        marks = {JOB: job, QUERY: query, EPOCH: str(epoch.number), OFFSETS: epoch.offsets}
        summary = {**config.snapshot_properties, **marks}
        with storage_errors(table.location()):
            transaction = table.transaction()
            schema_changes.add_to(transaction)
            values = (str(epoch.number), self.commit_id, job, epoch.offsets, config.branch)
            marked = {f"{mark}.{query}": value for mark, value in zip(MARKS, values, strict=True)}
            mode = config.commit_mode
            if isinstance(mode, History):
                marked[VERSIONS_OF] = remembered_by(mode, transaction.table_metadata.schema())
            transaction.set_properties(marked | run_mark(table, epoch))
            snapshot_id = snapshot_id_of(table.metadata.table_uuid, epoch)
            # A table without any snapshot takes the first one on main only.
            if changes.changes_rows or table.current_snapshot() is None:
                write_manifests(transaction, changes, snapshot_id, summary, config.branch)
            if not isinstance(mode, KeyedMode) or mode.sequence is None:
                return Staged(transaction)
            if changes.tombstones or changes.forgotten or begins(table.metadata, config.branch):
                remember(transaction, changes, config.branch, mode, epoch)
        return Staged(transaction, requirements=as_settled(table, config.branch))


def _check_present(table: Table, files: Sequence[WrittenFile]) -> None:
    """Raise StorageError if a file is missing or has another size: no reader could read the snapshot."""
    paths = [file.data_file.file_path for file in files]
    with storage_errors(table.location(), "reading"):
        present = sizes(file_system(table.io, data_folder(table)), paths)
    for file, size in zip(files, present, strict=True):
        expected = file.data_file.file_size_in_bytes
        if size != expected:
            fault = "is gone" if size is None else f"has {size} bytes and not {expected}"
            raise StorageError(
                f"data file {file.data_file.file_path} {fault}: it was changed between write and commit",
                hint="nothing was committed; start the job again, it writes the epoch anew",
            )


@dataclass(frozen=True)
class Clearing(Stage[Staged]):
    """Deletes the rows and marks of a job.

    Args:
        shared: True to delete the rows of this job alone, by the column `job`.
    """

    action = "deleting the rows"

    config: IcebergSinkConfig
    job: str
    shared: bool

    def stage(self, table: Table) -> Staged | None:
        stale = self._marks(table)
        with storage_errors(table.location()):
            transaction = table.transaction()
            if stale:
                transaction.remove_properties(*stale)
            self._delete_rows(table, transaction)
        return Staged(transaction) if stale or self._remembers(table) or snapshot_ids(transaction) else None

    def landed(self, table: Table, staged: Staged) -> bool:
        if snapshot_ids(staged.transaction):
            return super().landed(table, staged)
        return not self._marks(table) and not self._remembers(table)

    def _remembers(self, table: Table) -> bool:
        """Return True if there are deletions to forget."""
        return not self.shared and bool(forgetting(table.metadata, self.config.branch))

    def _marks(self, table: Table) -> list[str]:
        names = [f"{mark}.{query}" for query in queries_of(table, self.job) for mark in (*MARKS, RUN)]
        if not self.shared and self.config.branch == MAIN_BRANCH:
            names.append(VERSIONS_OF)
        return [name for name in names if name in table.properties]

    def _delete_rows(self, table: Table, transaction: Transaction) -> None:
        summary, branch = {JOB: self.job}, self.config.branch
        if self.shared and table.format_version < ROW_IDS_SINCE:
            with catch_warnings(action="ignore", category=UserWarning):
                transaction.delete(rows_of(self.job), summary, branch=branch)
            return
        # pyiceberg writes no later version.
        shared = without_rows_of(self.job, table, self.config) if self.shared else None
        if changes := shared if self.shared else overwrite(Overwrite(), (), branch, table):
            write_manifests(transaction, changes, new_snapshot_id(), summary, branch)
        if not self.shared:
            add_updates(transaction, *forgetting(table.metadata, branch))

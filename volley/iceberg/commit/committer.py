"""Commits the epochs of an Iceberg sink on the driver: one snapshot per epoch, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID
from tenacity import RetryCallState, retry_if_exception_type

from volley.epoch import Epoch, WriteResult
from volley.errors import (
    CatalogUnreachableError,
    CommitConflictError,
    CommitError,
    PlanError,
    StorageError,
    VolleyError,
)
from volley.iceberg.catalogs.retry import commit_retry, retry_reads
from volley.iceberg.commit.attempts import Attempts, UnknownOutcome
from volley.iceberg.commit.clearing import Clearing
from volley.iceberg.commit.evolution import evolution
from volley.iceberg.commit.marks import (
    BRANCH,
    COMMIT,
    EPOCH,
    JOB,
    MARKS,
    OFFSETS,
    QUERY,
    epoch_before,
    epoch_of,
    queries_of,
    run_mark,
    snapshot_id_of,
)
from volley.iceberg.commit.metadata import MetadataChange, commit_change
from volley.iceberg.commit.overwrite import Overwriting
from volley.iceberg.commit.snapshot import write_manifests
from volley.iceberg.commit.turns import turn
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.modes import Append, Overwrite, Upsert
from volley.iceberg.pyiceberg_private.access import commit_once, delete_merged_manifests
from volley.iceberg.pyiceberg_private.cached import share_metadata
from volley.iceberg.read.counts import rows_in
from volley.iceberg.read.heads import added_files, head_of
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.listing import data_folder, file_system, list_folder, name_of, sizes
from volley.iceberg.upsert.parked import UpsertWriter
from volley.iceberg.upsert.plan import EpochUpsert
from volley.iceberg.write.changes import Changes
from volley.iceberg.write.table_format import file_prefix
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import WrittenFile
from volley.sink import Committer, SinkContext
from volley.task.failpoints import reach

__all__ = ["IcebergCommitter"]

_log = logging.getLogger(__name__)


class IcebergCommitter(Committer):
    """Commits the files of an epoch as one snapshot with the epoch's marks.

    The loop: refresh → has the epoch landed? → do its files exist? → add the snapshot → commit once → classify the
    error → from the top. Nothing below it retries. The mark is written twice, in one transaction: to the snapshot's
    summary, and to the table property ``volley.epoch.<query id>``, which outlives the snapshot. The snapshot id is
    computed from table, query and epoch, as a second guard: a catalog accepts a snapshot id only once.

    Args:
        catalog: The catalog of the table.
        table: The table, created or checked for the stream's schema.
        config: The sink's settings.
        context: The sink's context in the job.
    """

    def __init__(self, catalog: Catalog, table: Table, config: IcebergSinkConfig, context: SinkContext) -> None:
        self._catalog = catalog
        self._table = table
        self._config = config
        self._context = context
        self._upsert: EpochUpsert | None = None
        mode = config.commit_mode
        self._overwriting = Overwriting(mode, config.branch) if isinstance(mode, Overwrite) else None

    def __str__(self) -> str:
        return f"table {self._name}"

    @property
    def identity(self) -> str:
        """The table's uuid: a recreated table has a new one, and lacks the earlier epochs."""
        return str(self._table.metadata.table_uuid)

    def last_epoch(self, query_id: str) -> int | None:
        """Return the last epoch of this query in the table, by the property or, without it, the branch's snapshots."""
        retry_reads(self._refresh)
        self._check_branch(query_id)
        return epoch_of(self._table, query_id, self._config.branch)

    def _check_branch(self, query_id: str) -> None:
        """Check that the branch has all rows of the query, if its last epoch was written to another branch."""
        before, last = (self._table.properties.get(f"{mark}.{query_id}") for mark in (BRANCH, EPOCH))
        if before in (None, self._config.branch):
            return
        if epoch_before(self._table, head_of(self._table, self._config.branch), query_id) != int(last or 0):
            raise PlanError(
                f"branch {self._config.branch!r} of {self} lacks rows that job {self._context.job!r} has written to "
                f"branch {before!r} (its last epoch there is {last})",
                hint=f"publish branch {before!r} first (volley.iceberg.publish_branch), or go on writing to it; or "
                "start over: fresh=True",
            )

    def landed_offsets(self, epoch: Epoch) -> str | None:
        """Return the offsets in the epoch's mark: in a property for the last epoch, else in the epoch's snapshot."""
        properties, query = self._table.properties, epoch.query_id
        if properties.get(f"{EPOCH}.{query}") == str(epoch.number):
            return properties.get(f"{OFFSETS}.{query}")
        snapshot = self.snapshot(epoch)
        return snapshot.summary.additional_properties.get(OFFSETS) if snapshot and snapshot.summary else None

    def snapshot(self, epoch: Epoch) -> Snapshot | None:
        """Return the epoch's snapshot; None if it did not change the table, or the snapshot has expired."""
        metadata = self._table.metadata
        return metadata.snapshot_by_id(snapshot_id_of(metadata.table_uuid, epoch))

    def snapshot_id(self, epoch: Epoch) -> int | None:
        """Return the id of the epoch's snapshot; None if it did not change the table."""
        snapshot = self.snapshot(epoch)
        return snapshot.snapshot_id if snapshot else None

    def earlier_rows(self, query_id: str) -> str | None:
        """Describe rows of earlier queries of this job in the branch; None for overwrites and upserts."""
        if not isinstance(self._config.commit_mode, Append):
            return None
        others = queries_of(self._table, self._context.job) - {query_id}
        if not others or not rows_in(self._table.io, head_of(self._table, self._config.branch)):
            return None
        last = {other: epoch_of(self._table, other, self._config.branch) for other in others}
        named = ", ".join(f"{other} up to epoch {epoch}" for other, epoch in sorted(last.items()) if epoch is not None)
        return f"{self} has rows of earlier queries of job {self._context.job!r} ({named})" if named else None

    def clear(self) -> None:
        """Delete all rows, of a shared table those of this job, and the marks of its queries, in one commit."""
        self._refresh()
        clearing = Clearing(self._config.branch, self._context.job, self._context.shared)
        change = MetadataChange("deleting the rows", clearing.stage, clearing.has_landed)
        commit_change(self._config.ref, change, self._catalog)
        self._refresh()

    def writer(self, epoch: Epoch) -> IcebergWriter | UpsertWriter:
        """Return the writer for this epoch, for the table's schema after the epoch's commit.

        `last_epoch` has just reloaded the table, with fresh credentials.
        """
        table = self._evolution().of(self._table)
        if isinstance(self._config.commit_mode, Upsert):
            return self._upsert_writer(self._config.commit_mode, epoch, table)
        return IcebergWriter.for_table(table, self._config, epoch)

    def _evolution(self) -> Evolution:
        """Return the schema changes that the rows need now; other writers may have changed the schema meanwhile."""
        return evolution(self._config, self._table, self._context.schema)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Commit one snapshot with the files of all results; do nothing if there are no files."""
        files = [file for result in results for file in result.committables]
        if not files:
            return
        attempts = Attempts(epoch, self._name, files, self._changes(epoch, files))
        # Each attempt starts with a reloaded table and the epoch check.
        commit_retry(
            retry=retry_if_exception_type((CommitFailedException, CatalogUnreachableError, UnknownOutcome)),
            before_sleep=self._count_retry,
            retry_error_callback=lambda state: self._give_up(attempts, state),
        )(self._attempt, attempts)
        if self._upsert:
            self._delete([*(file.path for file in files), *self._upsert.temporary])
            # The files belong to the table now: a later `abort` must not delete them.
            self._upsert = None

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Delete the files of an epoch that has not landed."""
        self._delete(file.path for result in results for file in result.committables)
        if self._upsert:
            self._delete([*(file.path for file in self._upsert.written), *self._upsert.temporary])

    def orphans(self, epoch: Epoch) -> list[str]:
        """Return the data files of this epoch that are not in its snapshot."""
        snapshot = self.snapshot(epoch)
        if snapshot is None:
            return []
        io, location = self._table.io, self._table.location()
        with storage_errors(location, "listing"):
            committed = {name_of(file.file_path) for file in added_files(snapshot, io)}
            paths = list_folder(file_system(io, location), data_folder(self._table))
        ours = (path for path in paths if name_of(path).startswith(file_prefix(epoch)))
        return sorted(path for path in ours if name_of(path) not in committed)

    def _attempt(self, attempts: Attempts) -> None:
        with turn(self._config.ref):
            self._commit_in_turn(attempts)

    def _commit_in_turn(self, attempts: Attempts) -> None:
        with attempts.before_commit():
            self._refresh()
        if self._has_landed(attempts):
            return
        attempts.clear()
        with attempts.before_commit():
            schema_changes = self._evolution()
            table = schema_changes.of(self._table)
            check_layout(table, {file.layout for file in attempts.files})
            changes = attempts.changes(table)
            if not changes:
                return
            _check_present(table, changes.written)
            transaction = self._add_snapshot(attempts, schema_changes, changes)
        reach("before-commit", attempts.epoch.number)
        with attempts.classified(transaction, self._config.ref.errors()):
            self._commit_once(transaction)
        reach("after-commit", attempts.epoch.number)

    def _has_landed(self, attempts: Attempts) -> bool:
        epoch = attempts.epoch
        last = epoch_of(self._table, epoch.query_id, self._config.branch)
        if last is None or last < epoch.number:
            return False
        if self._table.properties.get(f"{COMMIT}.{epoch.query_id}") == attempts.commit_id:
            return True
        raise CommitConflictError(
            f"epoch {epoch.number} of query {epoch.query_id} is in table {self._name} already, committed by another "
            f"driver (its last epoch there is {last})",
            hint="the same job runs twice on one checkpoint: stop one of them; no row is lost or doubled",
        )

    def _changes(self, epoch: Epoch, files: Sequence[Any]) -> Callable[[Table], Changes]:
        """Return the function that computes the epoch's changes of a table; only this depends on the commit mode."""
        mode, branch = self._config.commit_mode, self._config.branch
        if self._overwriting is not None:
            return partial(self._overwriting.changes, epoch, files)
        if isinstance(mode, Upsert):
            writer = partial(self._upsert_writer, mode, epoch)
            self._upsert = EpochUpsert(files, branch, self._context.run, writer)
            return self._upsert.changes
        return lambda table: Changes(files)

    def _upsert_writer(self, mode: Upsert, epoch: Epoch, table: Table) -> UpsertWriter:
        return UpsertWriter(IcebergWriter.for_table(table, self._config, epoch), mode)

    def _add_snapshot(self, attempts: Attempts, schema_changes: Evolution, changes: Changes) -> Transaction:
        """Return a transaction with the manifests and metadata of one snapshot, and the schema changes it needs."""
        epoch, config = attempts.epoch, self._config
        job, query = self._context.job, epoch.query_id
        marks = {JOB: job, QUERY: query, EPOCH: str(epoch.number), OFFSETS: epoch.offsets}
        summary = {**config.snapshot_properties, **marks}
        with storage_errors(self._table.location()):
            transaction = self._table.transaction()
            schema_changes.add_to(transaction)
            values = (str(epoch.number), attempts.commit_id, job, epoch.offsets, config.branch)
            marked = {f"{mark}.{query}": value for mark, value in zip(MARKS, values, strict=True)}
            transaction.set_properties(marked | run_mark(self._table, epoch))
            snapshot_id = snapshot_id_of(self._table.metadata.table_uuid, epoch)
            write_manifests(transaction, changes, snapshot_id, summary, config.branch)
        return transaction

    def _commit_once(self, transaction: Transaction) -> None:
        commit_once(self._table, transaction, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        delete_merged_manifests(self._table, transaction)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                # Missing files are no orphans: a routed sink deletes those of a table's failed commit twice.
                with suppress(FileNotFoundError):
                    self._table.io.delete(path)
            except Exception:
                _log.warning("orphan file left behind: %s", path, exc_info=True)

    def _give_up(self, attempts: Attempts, state: RetryCallState) -> None:
        """Find out whether an attempt has landed after all, once the last one has failed."""
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None
        if not attempts.may_have_landed:
            raise error  # no commit was sent
        try:
            self._refresh()
            if self._has_landed(attempts):
                return
        except CommitConflictError:
            raise  # another driver has committed the epoch: ours can't land any more
        except VolleyError as refresh_error:
            raise attempts.unknown(refresh_error) from error
        if attempts.in_doubt:
            raise attempts.unknown(error) from error
        attempts.fail(error, attempts.conflict)

    def _count_retry(self, state: RetryCallState) -> None:
        self._context.metrics.record_retry()

    def _refresh(self) -> None:
        """Reload the table: its metadata, and credentials that the catalog vends for a limited time."""
        with self._config.ref.errors():
            fresh = share_metadata(self._catalog.load_table(self._table.name()))
        if fresh.metadata.table_uuid != self._table.metadata.table_uuid:
            raise CommitError(
                f"table {self._name} was dropped and made again while the job ran "
                f"(uuid {self._table.metadata.table_uuid}, now {fresh.metadata.table_uuid})",
                hint="start the job with a new checkpoint to fill the new table from the beginning",
            )
        self._table = fresh

    @property
    def _name(self) -> str:
        return ".".join(self._table.name())


def _check_present(table: Table, files: Sequence[WrittenFile]) -> None:
    """Raise StorageError if a file is missing or has another size: no reader could read the snapshot."""
    paths = [file.data_file.file_path for file in files]
    with storage_errors(table.location(), "reading"):
        present = sizes(file_system(table.io, table.location()), paths)
    for file, size in zip(files, present, strict=True):
        expected = file.data_file.file_size_in_bytes
        if size != expected:
            fault = "is gone" if size is None else f"has {size} bytes and not {expected}"
            raise StorageError(
                f"data file {file.data_file.file_path} {fault}: it was changed between write and commit",
                hint="nothing was committed; start the job again, it writes the epoch anew",
            )

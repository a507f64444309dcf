"""Commits the epochs of an Iceberg sink on the driver: one snapshot per epoch, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import SinkContext
from volley.errors import CommitError, PlanError, VolleyError
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.commit.epochs import Clearing, EpochStage
from volley.iceberg.commit.loop import Commit, commit_to, fresh_table
from volley.iceberg.commit.marks import (
    BRANCH,
    EPOCH,
    OFFSETS,
    epoch_before,
    epoch_of,
    queries_of,
    snapshot_id_of,
)
from volley.iceberg.commit.overwrite import Overwriting
from volley.iceberg.commit.tables import evolution
from volley.iceberg.commit.together import Change, GroupedCommitter, group_of
from volley.iceberg.commit.tombstones import tombstones_with
from volley.iceberg.commit.totals import totals_of
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import Append, KeyedMode, Overwrite
from volley.iceberg.read.entries import rows_in
from volley.iceberg.read.history import added_files, head_of
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import data_folder, delete_new_files, file_system, list_folder, name_of
from volley.iceberg.upsert.changes import UpsertWriter
from volley.iceberg.upsert.plan import EpochUpsert
from volley.iceberg.upsert.sequenced import SequencedUpsert
from volley.iceberg.write.table_format import file_prefix
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["IcebergCommitter"]

_log = logging.getLogger(__name__)


class IcebergCommitter(GroupedCommitter):
    """Commits the files of an epoch as one snapshot with the epoch's marks.

    `EpochStage` says what a commit is.
    """

    can_clear = True

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
        retry_reads(self._reload)
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
        clearing = Clearing(self._config, self._context.job, self._context.shared)
        commit_to(self._config.ref, clearing, load=self._reload)

    def writer(self, epoch: Epoch) -> IcebergWriter | UpsertWriter:
        """Return the writer for this epoch, for the table's schema after the epoch's commit.

        `last_epoch` has just reloaded the table, with fresh credentials.
        """
        table = self._evolution().of(self._table)
        if isinstance(self._config.commit_mode, KeyedMode):
            return self._upsert_writer(self._config.commit_mode, epoch, table)
        return IcebergWriter.for_table(table, self._config, epoch)

    def _evolution(self) -> Evolution:
        """Return the schema changes that the rows need now; other writers may have changed the schema meanwhile."""
        return evolution(self._config, self._table, self._context.schema)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Commit one snapshot with the files of all results; do nothing if there are no files."""
        for change in self.changes(epoch, results):
            change.finish(commit_to(change.ref, change.stage, load=change.load))

    @property
    def group(self) -> object | None:
        return group_of(self._config.ref, self._catalog)

    def changes(self, epoch: Epoch, results: Sequence[WriteResult]) -> Sequence[Change]:
        """Return the change of the table; none without any file."""
        files = _files_of(results)
        if not files:
            return []
        stage = EpochStage(self._config, self._context, epoch, files, self._changes(epoch, files))
        return [Change(self._config.ref, self.identity, stage, self._reload, partial(self.finish, epoch, results))]

    def finish(self, epoch: Epoch, results: Sequence[WriteResult], commit: Commit[Any]) -> None:
        """Delete what a commit has left over, once its files belong to the table."""
        if self._upsert:
            files = _files_of(results)
            attempts = self._upsert.of_attempts
            unused = attempts if commit.staged is None and commit.is_final else self._unused(epoch, attempts)
            delete_new_files(self._table.io, [*(file.path for file in files), *self._upsert.temporary, *unused])
            # The files belong to the table now: a later `abort` must not delete them.
            self._upsert = None
        self._tell_totals()

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Delete the files of an epoch that has not landed."""
        paths = [file.path for file in _files_of(results)]
        if self._upsert:
            paths += [*(file.path for file in self._upsert.written), *self._upsert.temporary]
        delete_new_files(self._table.io, paths)

    def orphans(self, epoch: Epoch) -> list[str]:
        """Return the data files of this epoch that are not in its snapshot."""
        io, location, folder = self._table.io, self._table.location(), data_folder(self._table)
        if self.snapshot(epoch) is None:
            return []
        with storage_errors(location, "listing"):
            paths = list_folder(file_system(io, folder), folder)
        return sorted(self._not_landed(epoch, [path for path in paths if name_of(path).startswith(file_prefix(epoch))]))

    def _unused(self, epoch: Epoch, attempts: Sequence[str]) -> list[str]:
        """Return the files of an epoch's attempts that are not in its snapshot; none if the storage fails.

        The epoch is in the table: an error here would have the job delete the files of its snapshot.
        """
        try:
            return self._not_landed(epoch, attempts)
        except VolleyError as error:
            _log.warning("%s: files of attempts of epoch %d that failed stay: %s", self, epoch.number, error.message)
            return []

    def _not_landed(self, epoch: Epoch, paths: Sequence[str]) -> list[str]:
        """Return those of an epoch's files that are not in its snapshot; none if nothing tells."""
        snapshots = [*filter(None, [self.snapshot(epoch), tombstones_with(self._table.metadata, epoch)])]
        if not snapshots or not paths:
            return []
        with storage_errors(self._table.location(), "reading"):
            files = chain.from_iterable(added_files(snapshot, self._table.io) for snapshot in snapshots)
            landed = {name_of(file.file_path) for file in files}
        return [path for path in paths if name_of(path) not in landed]

    def _changes(self, epoch: Epoch, files: Sequence[Any]) -> Callable[[Table], SnapshotFiles]:
        """Return the function that computes the epoch's changes of a table; only this depends on the commit mode."""
        mode, branch = self._config.commit_mode, self._config.branch
        if self._overwriting is not None:
            return partial(self._overwriting.changes, epoch, files)
        if isinstance(mode, KeyedMode):
            writer = partial(self._upsert_writer, mode, epoch)
            parts = files, branch, self._context.run, writer
            ordered = mode.sequence is not None
            self._upsert = SequencedUpsert(*parts, retention=mode.retention) if ordered else EpochUpsert(*parts)
            return self._upsert.changes
        return lambda table: SnapshotFiles(files)

    def _upsert_writer(self, mode: KeyedMode, epoch: Epoch, table: Table) -> UpsertWriter:
        return UpsertWriter(IcebergWriter.for_table(table, self._config, epoch), mode)

    def _reload(self) -> Table:
        fresh = fresh_table(self._config.ref, self._catalog)
        if fresh.metadata.table_uuid != self._table.metadata.table_uuid:
            raise CommitError(
                f"table {self._name} was dropped and made again while the job ran "
                f"(uuid {self._table.metadata.table_uuid}, now {fresh.metadata.table_uuid})",
                hint="start the job with a new checkpoint to fill the new table from the beginning",
            )
        self._table = fresh
        self._tell_totals()
        return fresh

    def _tell_totals(self) -> None:
        self._context.metrics.record_totals(self._name, totals_of(self._table.metadata, self._config.branch))

    @property
    def _name(self) -> str:
        return ".".join(self._table.name())


def _files_of(results: Sequence[WriteResult]) -> list[Any]:
    return [file for result in results for file in result.committables]

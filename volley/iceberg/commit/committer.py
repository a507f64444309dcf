"""The driver's side of the Iceberg sink: one snapshot per epoch, exactly once, whatever fails."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID
from tenacity import RetryCallState, retry_if_exception_type

from volley.epoch import Epoch, WriteResult
from volley.errors import (
    CatalogAuthError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    PlanError,
    StorageError,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg.catalogs.retry import ATTEMPTS, commit_retry, retry_reads
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
    snapshot_id_of,
)
from volley.iceberg.commit.overwrite import overwrite
from volley.iceberg.commit.snapshot import write_manifests
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.modes import Append, Overwrite, Upsert
from volley.iceberg.pyiceberg_private.access import commit_once, delete_manifests, new_manifests
from volley.iceberg.pyiceberg_private.cached import share_metadata
from volley.iceberg.read.heads import head_of
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.listing import data_folder, file_system, list_folder, name_of, sizes
from volley.iceberg.upsert.parked import ParkedFile, UpsertWriter
from volley.iceberg.upsert.plan import EpochUpsert
from volley.iceberg.write.changes import Changes
from volley.iceberg.write.table_format import file_prefix, query_prefix
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import WrittenFile
from volley.sink import Committer, SinkContext
from volley.task.failpoints import reach

__all__ = ["IcebergCommitter"]

_log = logging.getLogger(__name__)


class _UnknownOutcome(Exception):
    """One attempt ended without an answer: it may have landed."""


@dataclass
class _Attempts:
    """What the attempts to commit one epoch share.

    Args:
        epoch: The epoch.
        files: What its tasks wrote.
        changes: What they change in the table as it is, which is asked anew in each attempt.
        commit_id: Tells our commit from that of another driver with the same epoch.
        refused: Attempts that the catalog says were in conflict. A gateway that repeats a request says so of one that
            has landed, so their manifests stay until the table shows that it has not.
        in_doubt: True once an attempt had no clear outcome.
    """

    epoch: Epoch
    files: Sequence[WrittenFile | ParkedFile]
    changes: Callable[[Table], Changes]
    commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    refused: list[Transaction] = field(default_factory=list)
    in_doubt: bool = False

    @property
    def open(self) -> bool:
        """Whether one of the attempts may have landed or may still land: then nobody may delete files."""
        return self.in_doubt or bool(self.refused)

    @contextmanager
    def doubted(self) -> Iterator[None]:
        """What goes wrong here says nothing about the attempts before."""
        try:
            yield
        except VolleyError as error:
            if self.open:
                raise _UnknownOutcome(str(error)) from error
            raise

    def clear(self) -> None:
        """Delete the manifests of the refused attempts, now that none of them is in the table."""
        while self.refused:
            delete_manifests(self.refused.pop())


class IcebergCommitter(Committer):
    """Commits the files of an epoch as one snapshot with the epoch's marks.

    The loop: refresh → is the epoch there? → are its files? → stage → commit once → classify the failure → from the
    top. Nothing below it retries. The mark is kept twice, in one transaction: in the snapshot's summary, and in the
    table property ``volley.epoch.<query id>``, which outlives the snapshot. A snapshot id computed from table, query
    and epoch is a second fence: a catalog holds one snapshot of an id.

    Args:
        catalog: Where the table lives.
        table: The table, made or checked for the stream's schema.
        config: The sink's settings.
        context: What the job told the sink.
    """

    def __init__(self, catalog: Catalog, table: Table, config: IcebergSinkConfig, context: SinkContext) -> None:
        self._catalog = catalog
        self._table = table
        self._config = config
        self._context = context
        self._upsert: EpochUpsert | None = None

    def __str__(self) -> str:
        return f"table {self._name}"

    @property
    def identity(self) -> str:
        """The table's uuid: one that was dropped and made again lacks the epochs before."""
        return str(self._table.metadata.table_uuid)

    def last_epoch(self, query_id: str) -> int | None:
        """The last epoch of this query in the table: from the property, or the branch's snapshots if it was removed."""
        retry_reads(self._refresh)
        self._check_branch(query_id)
        return epoch_of(self._table, query_id, self._config.branch)

    def _check_branch(self, query_id: str) -> None:
        """Check that the branch has the query's rows, if the last ones were written to another branch."""
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
        """The offsets in the epoch's mark: of the last epoch in a property, of any in its snapshot while it lives."""
        properties, query = self._table.properties, epoch.query_id
        if properties.get(f"{EPOCH}.{query}") == str(epoch.number):
            return properties.get(f"{OFFSETS}.{query}")
        snapshot = self._table.metadata.snapshot_by_id(snapshot_id_of(self._table.metadata.table_uuid, epoch))
        return snapshot.summary.additional_properties.get(OFFSETS) if snapshot and snapshot.summary else None

    def earlier_rows(self, query_id: str) -> str | None:
        """Other queries of this job, as long as the branch has rows; an overwrite or an upsert doubles none."""
        head = head_of(self._table, self._config.branch)
        empty = head is None or (head.summary is not None and head.summary.get("total-records") == "0")
        if empty or not isinstance(self._config.commit_mode, Append):
            return None
        others = queries_of(self._table, self._context.job) - {query_id}
        last = {other: epoch_of(self._table, other, self._config.branch) for other in others}
        named = ", ".join(f"{other} up to epoch {epoch}" for other, epoch in sorted(last.items()) if epoch is not None)
        return f"{self} has rows of earlier queries of job {self._context.job!r} ({named})" if named else None

    def clear(self) -> None:
        """One snapshot without rows, and no marks of this job's queries."""
        self._refresh()
        queries, marks = queries_of(self._table, self._context.job), self._table.properties
        changes = overwrite(Overwrite(), (), self._config.branch, self._table)
        if self._context.shared:
            ours = tuple(query_prefix(query) for query in queries)
            removed = [file for file in changes.removed if name_of(file.file_path).startswith(ours)]
            changes = replace(changes, removed=removed)
        with self._config.ref.errors(), storage_errors(self._table.location()), self._table.transaction() as change:
            stale = [name for query in queries for mark in MARKS if (name := f"{mark}.{query}") in marks]
            change.remove_properties(*stale)
            if changes:
                write_manifests(change, changes, uuid.uuid4().int >> 65, {JOB: self._context.job}, self._config.branch)
        self._refresh()

    def writer(self, epoch: Epoch) -> IcebergWriter | UpsertWriter:
        """The writer for this epoch, for the table as the epoch's commit will make it.

        `last_epoch` has just reloaded the table, with fresh credentials.
        """
        table = self._evolution().of(self._table)
        if isinstance(self._config.commit_mode, Upsert):
            return self._upsert_writer(self._config.commit_mode, epoch, table)
        return IcebergWriter.for_table(table, self._config, epoch)

    def _evolution(self) -> Evolution:
        """The changes of the schema that the rows need; others may have made them, or other ones, since last asked."""
        return evolution(self._config, self._table, self._context.schema)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """One snapshot with the files of all results; none at all if there are no files."""
        files = [file for result in results for file in result.committables]
        if not files:
            return
        attempts = _Attempts(epoch, files, self._changes(epoch, files))
        # Each attempt begins with a fresh table and the epoch check.
        commit_retry(
            retry=retry_if_exception_type((CommitFailedException, CatalogUnreachableError, _UnknownOutcome)),
            before_sleep=self._count_retry,
            retry_error_callback=lambda state: self._give_up(attempts, state),
        )(self._attempt, attempts)
        if self._upsert:
            self._delete(file.path for file in files)
            # Its files are the table's now: no later `abort` may delete them.
            self._upsert = None

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Delete the files of an epoch that did not land."""
        self._delete(file.path for result in results for file in result.committables)
        if self._upsert:
            self._delete(file.path for file in self._upsert.written)

    def orphans(self, epoch: Epoch) -> list[str]:
        """The data files of this epoch that its snapshot does not name."""
        snapshot = self._table.metadata.snapshot_by_id(snapshot_id_of(self._table.metadata.table_uuid, epoch))
        if snapshot is None:
            return []
        io, location = self._table.io, self._table.location()
        with storage_errors(location, "listing"):
            kept = {name_of(path) for path in _added(snapshot, io)}
            found = list_folder(file_system(io, location), data_folder(self._table))
        ours = (path for path in found if name_of(path).startswith(file_prefix(epoch)))
        return sorted(path for path in ours if name_of(path) not in kept)

    def _attempt(self, this: _Attempts) -> None:
        with this.doubted():
            self._refresh()
        if self._has_landed(this):
            return
        this.clear()
        with this.doubted():
            needed = self._evolution()
            table = needed.of(self._table)
            check_layout(table, {file.layout for file in this.files})
            changes = this.changes(table)
            if not changes:
                return
            _check_present(table, changes.written)
            transaction = self._stage(this, needed, changes)
        reach("before-commit", this.epoch.number)
        with self._classified(this):
            self._commit_once(transaction, this)
        reach("after-commit", this.epoch.number)

    def _has_landed(self, this: _Attempts) -> bool:
        epoch = this.epoch
        last = epoch_of(self._table, epoch.query_id, self._config.branch)
        if last is None or last < epoch.number:
            return False
        if self._table.properties.get(f"{COMMIT}.{epoch.query_id}") == this.commit_id:
            return True
        raise CommitConflictError(
            f"epoch {epoch.number} of query {epoch.query_id} is in table {self._name} already, committed by another "
            f"driver (its last epoch there is {last})",
            hint="the same job runs twice on one checkpoint: stop one of them; no row is lost or doubled",
        )

    def _changes(self, epoch: Epoch, files: Sequence[Any]) -> Callable[[Table], Changes]:
        """What the epoch changes in a table, by commit mode: all else is the same for every mode."""
        mode, branch = self._config.commit_mode, self._config.branch
        if isinstance(mode, Overwrite):
            return partial(overwrite, mode, files, branch)
        if isinstance(mode, Upsert):
            writer = partial(self._upsert_writer, mode, epoch)
            self._upsert = EpochUpsert(files, branch, self._context.run, writer)
            return self._upsert.changes
        return lambda table: Changes(files)

    def _upsert_writer(self, mode: Upsert, epoch: Epoch, table: Table) -> UpsertWriter:
        return UpsertWriter(IcebergWriter.for_table(table, self._config, epoch), mode)

    def _stage(self, this: _Attempts, needed: Evolution, changes: Changes) -> Transaction:
        """Manifests and metadata updates for one snapshot, and the schema it needs; nothing is visible yet."""
        epoch, config = this.epoch, self._config
        job, query = self._context.job, epoch.query_id
        marks = {JOB: job, QUERY: query, EPOCH: str(epoch.number), OFFSETS: epoch.offsets}
        summary = {**config.snapshot_properties, **marks}
        with storage_errors(self._table.location()):
            transaction = self._table.transaction()
            needed.add_to(transaction)
            values = (str(epoch.number), this.commit_id, job, epoch.offsets, config.branch)
            transaction.set_properties({f"{mark}.{query}": value for mark, value in zip(MARKS, values, strict=True)})
            snapshot_id = snapshot_id_of(self._table.metadata.table_uuid, epoch)
            write_manifests(transaction, changes, snapshot_id, summary, config.branch)
        return transaction

    def _commit_once(self, transaction: Transaction, this: _Attempts) -> None:
        same_table = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        try:
            commit_once(self._table, transaction, same_table)
        except CommitFailedException:
            this.refused.append(transaction)
            raise
        self._sweep(transaction)

    def _sweep(self, transaction: Transaction) -> None:
        """Delete the manifests that were merged into another before anybody saw them; pyiceberg leaves them there."""
        written = new_manifests(transaction)
        head = self._table.metadata.snapshot_by_name(self._config.branch)
        if head is None or len(written) < 2:
            return
        # The commit has landed: nothing that fails here may say otherwise.
        with suppress(Exception):
            for path in written - {manifest.manifest_path for manifest in head.manifests(self._table.io)}:
                self._table.io.delete(path)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._table.io.delete(path)
            except Exception:
                _log.warning("orphan file left behind: %s", path, exc_info=True)

    @contextmanager
    def _classified(self, this: _Attempts) -> Iterator[None]:
        """Sort what a commit raises: a conflict and a refusal did not land; of anything else we can't know."""
        try:
            with self._config.ref.errors():
                yield
        except CommitFailedException:
            raise
        except Exception as error:
            refused = isinstance(error, (TableNotFoundError, CatalogAuthError))
            if refused and not this.open:
                raise
            this.in_doubt = True
            raise _UnknownOutcome(str(error)) from error

    def _give_up(self, this: _Attempts, state: RetryCallState) -> None:
        """The last attempt has failed too: find out whether one of them has landed after all."""
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None
        if not this.open:
            raise error  # the catalog was never asked to commit
        try:
            self._refresh()
            if self._has_landed(this):
                return
        except CommitConflictError:
            raise  # another driver's commit is there: none of ours can be any more
        except VolleyError as blind:
            raise self._unknown(this, blind) from error
        if this.in_doubt:
            raise self._unknown(this, error) from error
        this.clear()
        raise CommitConflictError(
            f"epoch {this.epoch.number} could not be committed to table {self._name}: other writers changed the table "
            f"during each of {ATTEMPTS} attempts: {error}",
            hint="start the job again, it repeats the epoch; if it recurs, let fewer writers commit less often",
        ) from error

    def _unknown(self, this: _Attempts, error: BaseException) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"epoch {this.epoch.number} may or may not be in table {self._name}: the catalog gave no clear answer "
            f"in {ATTEMPTS} attempts: {error}",
            hint="nothing was deleted; start the job again when the catalog answers, it finds out and goes on",
        )

    def _count_retry(self, state: RetryCallState) -> None:
        self._context.metrics.record_retry()

    def _refresh(self) -> None:
        """Load the table anew: metadata, and the credentials a catalog may vend for a while only."""
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
    """A snapshot that names a file which is not there, or not whole, can't be read by anybody."""
    paths = [file.data_file.file_path for file in files]
    with storage_errors(table.location(), "reading"):
        present = sizes(file_system(table.io, table.location()), paths)
    for file, found in zip(files, present, strict=True):
        wanted = file.data_file.file_size_in_bytes
        if found != wanted:
            what = "is gone" if found is None else f"has {found} bytes and not {wanted}"
            raise StorageError(
                f"data file {file.data_file.file_path} {what}: somebody changed it between write and commit",
                hint="nothing was committed; start the job again, it writes the epoch anew",
            )


def _added(snapshot: Snapshot, io: FileIO) -> Iterator[str]:
    """The paths of the data files that a snapshot added."""
    for manifest in snapshot.manifests(io):
        for entry in manifest.fetch_manifest_entry(io):
            if entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file.file_path

"""Expires snapshots: removes them from a table's metadata, then deletes the files that no snapshot needs any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsCommonFields
from pyiceberg.table.update import (
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
)

from volley.errors import CatalogError, StorageError, VolleyError
from volley.iceberg.commit.hold import released
from volley.iceberg.commit.loop import Stage, Staged, commit_to, unchanged
from volley.iceberg.maintain.refs import snapshot_info
from volley.iceberg.maintain.retention import Expired
from volley.iceberg.maintain.unneeded import check_own_files, check_whole, is_inside, unneeded_files
from volley.iceberg.maintain.values import Expiry, SnapshotList
from volley.iceberg.pyiceberg_private.access import checks_itself, stage, still
from volley.iceberg.storage.errors import storage_error
from volley.iceberg.storage.files import delete_files, deletion_error, file_system
from volley.iceberg.table import TableRef
from volley.secrets import redact, redact_uri, redacted
from volley.task.failpoints import reach

__all__ = ["expire", "plan_expiry"]

_Plan = Callable[[TableMetadata], Expired]


def plan_expiry(table: TableRef, plan: _Plan, outside: bool) -> Expiry:
    """Return what `expire` would do now."""
    loaded = table.load()
    check_own_files(loaded, "snapshots", "expired")
    check_whole(loaded)
    expired = plan(loaded.metadata)
    gone = {snapshot.snapshot_id for snapshot in expired.snapshots}
    kept = [snapshot for snapshot in loaded.metadata.snapshots if snapshot.snapshot_id not in gone]
    statistics = [file.statistics_path for file in _statistics(loaded.metadata) if file.snapshot_id in gone]
    files = [*_unneeded(loaded, expired.snapshots, kept), *statistics]
    inside, others = _by_folder(loaded, files, outside)
    return Expiry(table.name, _infos(expired, loaded.metadata), expired.refs, inside, others, dry_run=True)


def expire(table: TableRef, plan: _Plan, outside: bool) -> Expiry:
    """Expire snapshots in one commit, then delete the files that no snapshot needs any more.

    Args:
        plan: Returns what is to be removed from a table's metadata; each attempt to commit calls it.
        outside: True to delete files outside of the table's own folders too.

    Raises:
        ConfigError: If the table's property ``gc.enabled`` is false, or the plan raises it.
        CommitConflictError: If other writers changed the table during each attempt.
        CommitStateUnknownError: If the commit may or may not have landed: no file was deleted.
        StorageError: If a manifest can't be read: the snapshots are gone, but no file was deleted.
    """
    removal = _Removal(plan)
    after = commit_to(table, removal).table
    expired = removal.removed(after.metadata)
    reach("after-expiry", 0)
    try:
        check_whole(after)
        files = [*_unneeded(after, expired.snapshots, after.metadata.snapshots), *removal.statistics(after.metadata)]
    except (CatalogError, StorageError) as error:
        raise StorageError(
            f"{len(expired.snapshots)} snapshots of table {table.name} were expired, but none of their files was "
            f"deleted: {error.message}",
            hint="remove_orphan_files deletes them once the table's manifests can be read",
        ) from error
    inside, others = _by_folder(after, files, outside)
    _, failures = delete_files(partial(file_system, after.io), inside)
    failed = tuple((path, deletion_error(error, path)) for path, error in failures.items())
    deleted = tuple(path for path in inside if path not in failures)
    return Expiry(table.name, _infos(expired, after.metadata), expired.refs, deleted, others, failed)


@dataclass(frozen=True)
class _StagedRemoval(Staged):
    expired: Expired


class _Removal(Stage[_StagedRemoval]):
    """Removes snapshots and references from the metadata.

    Args:
        plan: Returns what is to be removed from a table's metadata.
    """

    action = "expiring snapshots"

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        # Of all attempts: another engine that was faster may have left the files of what it removed.
        self._expired: list[Expired] = []
        self._statistics: set[str] = set()

    def stage(self, table: Table) -> _StagedRemoval | None:
        check_own_files(table, "snapshots", "expired")
        metadata = table.metadata
        expired = self._plan(metadata)
        if not expired:
            return None
        check_whole(table)
        self._expired.append(expired)
        self._statistics.update(file.statistics_path for file in _statistics(metadata))
        ids = [snapshot.snapshot_id for snapshot in expired.snapshots]
        transaction = table.transaction()
        branches = released(metadata, expired.refs)
        stage(transaction, *branches)
        stage(transaction, *(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in expired.refs))
        for file in metadata.partition_statistics:
            if file.snapshot_id in ids:
                stage(transaction, RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": file.snapshot_id}))
        if ids:
            stage(transaction, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}))
        same = [unchanged(update.ref_name, update.snapshot_id) for update in branches]
        return _StagedRemoval(transaction, expired, requirements=[*self._requirements(table, expired), *same])

    def landed(self, table: Table, staged: _StagedRemoval) -> bool:
        left = any(table.metadata.snapshot_by_id(snapshot.snapshot_id) for snapshot in staged.expired.snapshots)
        return not left and not set(staged.expired.refs) & set(table.metadata.refs)

    def _requirements(self, table: Table, expired: Expired) -> list[TableRequirement]:
        """Return requirements that fail if a rollback or a new tag has come to need what is about to expire."""
        if checks_itself(table.catalog):
            return [still(lambda metadata: self._may_go(metadata, expired))]
        return [unchanged(name, ref.snapshot_id) for name, ref in table.metadata.refs.items()]

    def _may_go(self, metadata: TableMetadata, expired: Expired) -> bool:
        try:
            now = self._plan(metadata)
        except VolleyError:
            return False  # the next attempt raises it
        ids = {snapshot.snapshot_id for snapshot in now.snapshots}
        return all(gone.snapshot_id in ids for gone in expired.snapshots) and set(expired.refs) <= set(now.refs)

    def removed(self, after: TableMetadata) -> Expired:
        """Return what was removed, by any attempt."""
        planned = {snapshot.snapshot_id: snapshot for expired in self._expired for snapshot in expired.snapshots}
        refs = {name for expired in self._expired for name in expired.refs}
        gone = (snapshot for snapshot in planned.values() if after.snapshot_by_id(snapshot.snapshot_id) is None)
        return Expired(tuple(gone), tuple(sorted(refs - set(after.refs))))

    def statistics(self, after: TableMetadata) -> list[str]:
        """Return the files of statistics that were in the metadata and are not any more."""
        return sorted(self._statistics - {file.statistics_path for file in _statistics(after)})


def _statistics(metadata: TableMetadata) -> Sequence[StatisticsCommonFields]:
    return [*metadata.statistics, *metadata.partition_statistics]


def _infos(expired: Expired, metadata: TableMetadata) -> SnapshotList:
    return SnapshotList([snapshot_info(snapshot, metadata) for snapshot in expired.snapshots])


def _unneeded(table: Table, expired: Sequence[Snapshot], kept: Sequence[Snapshot]) -> list[str]:
    try:
        return unneeded_files(table.io, expired, kept)
    except VolleyError:
        raise
    except Exception as error:
        # Of a client, or of the decoder of a damaged file.
        raise storage_error(error, table.location(), "reading the manifests in") or StorageError(
            f"a manifest in {redact_uri(table.location())} can't be read: {redact(str(error)) or type(error).__name__}",
            hint="restore the file; the table can't be read without it either",
        ) from redacted(error)


def _by_folder(table: Table, files: Sequence[str], outside: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files to delete, and those that stay because they are outside of the table's folders."""
    is_own = is_inside(table)
    others = () if outside else tuple(path for path in files if not is_own(path))
    stay = set(others)
    return tuple(path for path in files if path not in stay), others

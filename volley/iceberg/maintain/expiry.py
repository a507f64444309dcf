"""Expires snapshots: which ones, their removal from a table's metadata, and that of their files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import ceil

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsCommonFields
from pyiceberg.table.update import (
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
)

from volley.errors import CatalogError, ConfigError, StorageError, VolleyError
from volley.iceberg.commit.hold import HOLD, is_held, released
from volley.iceberg.commit.loop import Stage, Staged, commit_to, unchanged
from volley.iceberg.maintain.refs import snapshot_info
from volley.iceberg.maintain.told import told
from volley.iceberg.maintain.unneeded import check_own_files, check_whole, is_inside, unneeded_files
from volley.iceberg.maintain.values import Expiry, SnapshotList
from volley.iceberg.pyiceberg_private.access import checks_itself, stage, still
from volley.iceberg.read.history import ancestors_of, snapshot_of
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.storage.errors import storage_error
from volley.iceberg.storage.files import delete_files, deletion_error, file_system
from volley.iceberg.table import TableRef
from volley.secrets import redact, redact_uri, redacted
from volley.task.failpoints import reach

__all__ = ["Expired", "Rule", "expire", "plan_expiry", "unread"]

_MAX_AGE, _FIVE_DAYS = "history.expire.max-snapshot-age-ms", 5 * 24 * 60 * 60 * 1000
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True)
class Expired:
    """What an expiry removes from a table's metadata.

    Args:
        refs: The names of branches and tags that are older than their own setting or the table's allows.
    """

    snapshots: tuple[Snapshot, ...] = ()
    refs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


_Plan = Callable[[TableMetadata], Expired]
"""Returns what is to be removed from a table's metadata."""


@dataclass(frozen=True)
class Rule:
    """Which snapshots are kept, and which are not.

    Args:
        now: The time from which ages count.
        older_than: Snapshots of this time and later ones are kept; None = the table's setting.
        retain_last: The number of snapshots that each branch keeps in any case; None = the table's setting.
        ids: The ids of the snapshots to remove instead, whatever their age; None = by age.
        table: The table's dotted name, for messages.
        most: The most snapshots to remove by age, oldest first; None = all.
    """

    now: datetime
    older_than: datetime | None = None
    retain_last: int | None = None
    ids: Collection[int] | None = None
    table: str = ""
    most: int | None = None

    def expired(self, metadata: TableMetadata) -> Expired:
        """Return what the rule removes from a table's metadata."""
        return _by_age(metadata, self) if self.ids is None else _by_id(metadata, self.ids, self.table)

    def cutoff(self, metadata: TableMetadata, ref: SnapshotRef | None = None) -> int:
        """Return the time, in milliseconds, from which on snapshots are kept; a branch's own setting comes first."""
        now = int(self.now.timestamp() * 1000)
        # What a hold has set is for other engines: Volley knows which snapshots are read.
        if ref and ref.max_snapshot_age_ms is not None and not is_held(metadata, ref):
            return now - ref.max_snapshot_age_ms
        if self.older_than is not None:
            return ceil(self.older_than.timestamp() * 1000)
        age = number_in(metadata.properties, _MAX_AGE, 0)
        return now - (_FIVE_DAYS if age is None else age)

    def keeps(self, metadata: TableMetadata, ref: SnapshotRef) -> int:
        """Return the number of snapshots that a branch keeps in any case; its own setting comes first."""
        if ref.min_snapshots_to_keep is not None:
            return ref.min_snapshots_to_keep
        return self.retain_last or number_in(metadata.properties, _MIN_SNAPSHOTS, 0) or 1


def _by_age(metadata: TableMetadata, rule: Rule) -> Expired:
    refs = {name: ref for name, ref in metadata.refs.items() if not _is_too_old(metadata, name, ref, rule)}
    held = {ref.snapshot_id for name, ref in refs.items() if name.startswith(HOLD)}
    kept: set[int] = set()
    referenced: set[int] = set()
    for ref in refs.values():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            chain = list(ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata))
            referenced.update(snapshot.snapshot_id for snapshot in chain)
            kept.update(_kept(chain, rule.keeps(metadata, ref), rule.cutoff(metadata, ref)))
            kept.update(_unpublished(chain, metadata.current_snapshot_id))
            kept.update(unread(chain, held))
    # Snapshots that no branch leads to, such as rolled back ones, are kept by age alone.
    cutoff = rule.cutoff(metadata)
    loose = (snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in referenced)
    kept.update(snapshot.snapshot_id for snapshot in loose if snapshot.timestamp_ms >= cutoff)
    gone = sorted(
        (snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept),
        key=lambda snapshot: snapshot.timestamp_ms,
    )
    return Expired(tuple(gone[: rule.most]), tuple(sorted(set(metadata.refs) - set(refs))))


def _by_id(metadata: TableMetadata, ids: Collection[int], table: str) -> Expired:
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for snapshot_id in ids:
        if snapshot_id not in known:
            snapshot_of(metadata, snapshot_id, table)
        if names := sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot_id):
            raise ConfigError(
                f"snapshot {snapshot_id} of table {table} can't be expired: {', '.join(map(repr, names))} stands at it",
                hint="drop the tag or branch first; main keeps its last snapshot",
            )
    return Expired(tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in ids))


def _is_too_old(metadata: TableMetadata, name: str, ref: SnapshotRef, rule: Rule) -> bool:
    setting = number_in(metadata.properties, _MAX_REF_AGE, 0)
    max_age = setting if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if name == MAIN_BRANCH or max_age is None or snapshot is None:
        return False
    return rule.now.timestamp() * 1000 - snapshot.timestamp_ms > max_age


def _unpublished(chain: list[Snapshot], main: int | None) -> list[int]:
    """Return the ids of a branch's snapshots after main's last one: without them it could not be published."""
    ids = [snapshot.snapshot_id for snapshot in chain]
    return ids[: ids.index(main)] if main in ids else []


def unread(chain: list[Snapshot], held: Collection[int]) -> list[int]:
    """Return the ids of a branch's snapshots that a stream holds: one, and all later ones."""
    ids = [snapshot.snapshot_id for snapshot in chain]
    return ids[: max((number + 1 for number, id in enumerate(ids) if id in held), default=0)]


def _kept(chain: list[Snapshot], least: int, cutoff: int) -> Iterator[int]:
    """Yield the ids of a branch's snapshots, the last one first, up to the first that is old and not needed."""
    for number, snapshot in enumerate(chain):
        if number >= least and snapshot.timestamp_ms < cutoff:
            return
        yield snapshot.snapshot_id


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


@told("expiry", lambda done: bool(done.snapshots or done.refs))
def expire(table: TableRef, plan: _Plan, outside: bool) -> Expiry:
    """Expire snapshots in one commit, then delete the files that no snapshot needs any more.

    Args:
        plan: Returns what is to be removed from a table's metadata; each attempt to commit calls it.
        outside: True to delete files outside of the table's own folders too.
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
    """Removes snapshots and references from the metadata."""

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
        stays = any(table.metadata.snapshot_by_id(snapshot.snapshot_id) for snapshot in staged.expired.snapshots)
        return not stays and not set(staged.expired.refs) & set(table.metadata.refs)

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

"""SnapshotManager: lists, finds, tags, rolls back and expires a table's snapshots; the publishing of branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from volley.checks import Duration, Instant, count, duration, instant, mapping, optional
from volley.errors import ConfigError, brief, brief_methods
from volley.html_table import settings_html
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.maintain.options import ExpiryOptions, takes
from volley.iceberg.maintain.values import Expiry, Ref, SnapshotInfo, SnapshotList
from volley.iceberg.settings import check_snapshot_properties
from volley.iceberg.table import TableRef, check_name

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["SnapshotManager", "publish_branch"]


@brief_methods
@dataclass(frozen=True)
class SnapshotManager:
    """The snapshots of a table: finds and lists them, makes branches and tags, rolls back, expires.

    A frozen value: each call connects to the catalog and sees the table as it is then. Changes are one commit each,
    tried again from fresh metadata when another writer was faster; jobs can write to the table meanwhile.

    Args:
        table: The table, as a `TableRef` or a sink's config. Its branch is the one that `current_snapshot`,
            `snapshot_at_timestamp`, `create_snapshot` and `rollback_to` are about.

    Raises:
        ConfigError: If `table` is neither.

    Example:
        >>> from volley import IcebergStorage, SnapshotManager, TableRef
        >>> events = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"))
        >>> snapshots = SnapshotManager(events)
        >>> snapshots.list_snapshots()  # doctest: +SKIP
        snapshot             committed at             operation  rows +  rows -  files +  files -   rows  refs
        6301935263872612342  2026-11-01 08:00:00.125  append      1,000                2           1,000
        1873002451938470021  2026-11-02 08:00:00.480  append        250                1           1,250  main
        >>> snapshots.create_tag("audited")  # doctest: +SKIP
        >>> print(snapshots.expire_snapshots(older_than="7d", retain_last=10))  # doctest: +SKIP
        24 snapshots and 310 files of table db.events were removed
    """

    ref: TableRef

    def __init__(self, table: TableRef | IcebergSinkConfig) -> None:
        object.__setattr__(self, "ref", table_ref(table))

    def current_snapshot(self) -> SnapshotInfo:
        """Return the branch's last snapshot.

        Raises:
            SnapshotNotFoundError: If the table has no snapshot yet.
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.
        """
        from volley.iceberg.read.history import snapshot_of_ref

        return self._found(lambda metadata: snapshot_of_ref(metadata, self.ref.branch, self.ref.name))

    def snapshot_by_id(self, snapshot_id: int) -> SnapshotInfo:
        """Return the snapshot with this id.

        Raises:
            SnapshotNotFoundError: If the table has none, or has it no longer.
            VolleyError: As for `current_snapshot`.
        """
        from volley.iceberg.read.history import snapshot_of

        return self._found(lambda metadata: snapshot_of(metadata, snapshot_id, self.ref.name))

    def snapshot_at_timestamp(self, at: Instant) -> SnapshotInfo:
        """Return the snapshot that was the branch's last one at this time.

        Main is looked up in the table's log, which has rollbacks: a snapshot that was rolled back is the answer
        for the time before the rollback, not for the time after it.

        Args:
            at: A datetime, or a text such as ``"2026-11-01T08:00:00+01:00"``; without a zone, it is in UTC.

        Raises:
            SnapshotNotFoundError: If the time is before the first snapshot.
            SnapshotExpiredError: If the snapshot of that time was expired.
            VolleyError: As for `current_snapshot`.
        """
        time = instant("at", at)
        return self._found(lambda metadata: self._at(metadata, time))

    def list_snapshots(self) -> SnapshotList:
        """Return all snapshots of all branches, in the order of their commits; prints as a table.

        Raises:
            VolleyError: As for `current_snapshot`.
        """
        from volley.iceberg.maintain.refs import listed

        return listed(self.ref.load().metadata)

    def create_snapshot(self, properties: Mapping[str, str] | None = None, tag: str | None = None) -> SnapshotInfo:
        """Commit a snapshot without rows to the branch: a mark in the table's history. Return it.

        Args:
            properties: Texts for its summary, such as ``{"release": "2026-11"}``.
            tag: A tag to create for it; `create_tag` tags the snapshot that is there.

        Raises:
            ConfigError: If a property is reserved or no text; if the tag exists.
            CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether the snapshot is there.
            VolleyError: As for `current_snapshot`.
        """
        from volley.iceberg.maintain.refs import add_empty_snapshot

        texts = {} if properties is None else mapping("properties", properties)
        check_snapshot_properties(texts)
        if tag is not None:
            check_name("tag", tag)
        return add_empty_snapshot(self.ref, texts, tag)

    def rollback_to(self, target: int | Instant) -> SnapshotInfo:
        """Move the branch back to an earlier snapshot, and return that.

        The snapshots after it stay until they expire: rolling "back" to one of them undoes this. A job that wrote them
        does not write their rows again: it goes on after the last epoch it has committed.

        Args:
            target: The snapshot's id, or a time as for `snapshot_at_timestamp`.

        Raises:
            ConfigError: If the snapshot was never the branch's last one, or the branch is a tag.
            SnapshotNotFoundError: If the table has no such snapshot, or the time is before the first one.
            SnapshotExpiredError: If the snapshot of that time was expired.
            CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether the branch was moved.
            VolleyError: As for `current_snapshot`.
        """
        from volley.iceberg.maintain.refs import move_branch

        earlier = target if isinstance(target, int) else instant("target", target)
        return move_branch(self.ref, "the rollback", lambda metadata: self._earlier(metadata, earlier))

    def branches(self) -> tuple[Ref, ...]:
        """Return the table's branches, by name.

        Raises:
            VolleyError: As for `current_snapshot`.
        """
        return self._refs(is_branch=True)

    def tags(self) -> tuple[Ref, ...]:
        """Return the table's tags, by name.

        Raises:
            VolleyError: As for `current_snapshot`.
        """
        return self._refs(is_branch=False)

    def create_tag(self, name: str, snapshot_id: int | None = None, max_age: Duration | None = None) -> Ref:
        """Create a tag: a name for a snapshot, which does not expire while it has the tag.

        Args:
            name: The tag's name.
            snapshot_id: The snapshot; None = the branch's last one.
            max_age: The age of the snapshot at which `expire_snapshots` drops the tag; None = the table's setting,
                which is never by default.

        Raises:
            ConfigError: If the table has a branch or tag of this name.
            SnapshotNotFoundError: If the table has no such snapshot.
            CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether the tag is there.
            VolleyError: As for `current_snapshot`.
        """
        return self._create(Ref(name, False, 0, max_age=_span("max_age", max_age)), snapshot_id)

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        min_snapshots: int | None = None,
        max_snapshot_age: Duration | None = None,
        max_age: Duration | None = None,
    ) -> Ref:
        """Create a branch: it starts at a snapshot, and jobs can write to it (``with_branch``).

        Args:
            name: The branch's name.
            snapshot_id: The snapshot; None = the last one of this manager's branch.
            min_snapshots: The number of its snapshots that every expiry keeps; None = the table's setting.
            max_snapshot_age: The age up to which expiry keeps its snapshots; None = the table's setting.
            max_age: The age of its last snapshot at which `expire_snapshots` drops the branch; None = the table's
                setting, which is never by default.

        Raises:
            VolleyError: As for `create_tag`.
        """
        ages = {"max_snapshot_age": max_snapshot_age, "max_age": max_age}
        spans = {setting: _span(setting, age) for setting, age in ages.items()}
        least = optional(count)("min_snapshots", min_snapshots)
        return self._create(Ref(name, True, 0, least, **spans), snapshot_id)

    def drop_tag(self, name: str) -> None:
        """Drop a tag; its snapshot stays until it expires.

        Raises:
            ConfigError: If there is no such tag.
            VolleyError: As for `create_tag`.
        """
        self._drop(name, is_branch=False)

    def drop_branch(self, name: str) -> None:
        """Drop a branch other than main; its snapshots stay until they expire.

        Raises:
            ConfigError: If there is no such branch, or it is main.
            VolleyError: As for `create_tag`.
        """
        self._drop(name, is_branch=True)

    @takes(ExpiryOptions)
    def expire_snapshots(self, options: ExpiryOptions) -> Expiry:
        """Remove old snapshots from the table, and delete the files that no snapshot needs any more.

        Every branch and tag stays, with its last snapshot and as many before it as its own setting, or `retain_last`,
        says. The metadata is committed first: a crash leaves files that `remove_orphan_files` deletes, and never loses
        any. Rows of expired snapshots can't be read any more, nor the changes of the oldest snapshot that is left. Keep
        snapshots for longer than the longest query and the longest pause of a reader takes.

        Raises:
            ConfigError: If an argument is wrong; if the table's property ``gc.enabled`` is false; if one of
                `snapshot_ids` is a branch's last snapshot or a tag's.
            SnapshotNotFoundError: If the table has none of `snapshot_ids`.
            CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether the snapshots are gone:
                no file was deleted.
            StorageError: If a manifest can't be read: the snapshots are gone, but no file was deleted.
            VolleyError: As for `current_snapshot`.
        """
        from volley.iceberg.maintain.expiry import Rule, expire, plan_expiry

        now = datetime.now(UTC)
        rule = Rule(
            now,
            options.before(now),
            options.retain_last,
            ids=options.snapshot_ids,
            table=self.ref.name,
            most=options.max_snapshots,
        )
        return (plan_expiry if options.dry_run else expire)(self.ref, rule.expired, options.outside)

    def _found(self, find: Callable[[TableMetadata], Snapshot]) -> SnapshotInfo:
        from volley.iceberg.maintain.refs import snapshot_info

        metadata = self.ref.load().metadata
        return snapshot_info(find(metadata), metadata)

    def _at(self, metadata: TableMetadata, time: datetime) -> Snapshot:
        from volley.iceberg.read.history import snapshot_at

        return snapshot_at(metadata, self.ref.branch, time, self.ref.name)

    def _earlier(self, metadata: TableMetadata, target: int | datetime) -> Snapshot:
        from volley.iceberg.maintain.refs import was_current
        from volley.iceberg.read.history import snapshot_of

        if isinstance(target, datetime):
            return self._at(metadata, target)
        snapshot = snapshot_of(metadata, target, self.ref.name)
        if not was_current(metadata, self.ref.branch, snapshot):
            raise ConfigError(
                f"branch {self.ref.branch!r} of table {self.ref.name} can't be rolled back to snapshot {target}: "
                "that has never been its last one",
                hint="name a snapshot from its history; publish_branch moves main to a branch's last snapshot",
            )
        return snapshot

    def _refs(self, is_branch: bool) -> tuple[Ref, ...]:
        from volley.iceberg.maintain.refs import ref_values

        return ref_values(self.ref.load().metadata, is_branch)

    def _create(self, ref: Ref, snapshot_id: int | None) -> Ref:
        from volley.iceberg.maintain.refs import create_ref
        from volley.iceberg.read.history import snapshot_of, snapshot_of_ref

        check_name("branch" if ref.is_branch else "tag", ref.name)

        def at_snapshot(metadata: TableMetadata) -> Ref:
            if snapshot_id is None:
                snapshot = snapshot_of_ref(metadata, self.ref.branch, self.ref.name)
            else:
                snapshot = snapshot_of(metadata, snapshot_id, self.ref.name)
            return replace(ref, snapshot_id=snapshot.snapshot_id)

        return create_ref(self.ref, at_snapshot)

    def _drop(self, name: str, is_branch: bool) -> None:
        from volley.iceberg.maintain.refs import drop_ref

        drop_ref(self.ref, name, is_branch)

    _repr_html_ = settings_html


def _span(name: str, value: Duration | None) -> timedelta | None:
    return None if value is None else duration(name, value)


@brief
def publish_branch(table: TableRef | IcebergSinkConfig) -> int:
    """Move main forward to the last snapshot of a branch, atomically and without writing data.

    The branch stays, and a job can continue to write to it: publish it again after each audit.

    Args:
        table: The table and its branch (set with ``with_branch``), as a `TableRef` or a sink's config.

    Returns:
        The id of the snapshot that is now main's last.

    Raises:
        ConfigError: If the branch is main, or the table has no such branch.
        CommitConflictError: If main has snapshots that the branch lacks, or remembers deletions (of upserts by
            sequence) that it lacks; nothing is changed then.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or rejects the request.

    Example:
        >>> from volley import IcebergStorage, TableRef
        >>> events = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"))
        >>> publish_branch(events.with_branch("audit"))  # doctest: +SKIP
        6301935263872612342
    """
    from volley.iceberg.maintain.refs import fast_forward, move_branch

    ref = table_ref(table)
    action = f"publishing branch {ref.branch!r}"
    return move_branch(ref.with_branch("main"), action, lambda metadata: fast_forward(metadata, ref), ref.branch).id

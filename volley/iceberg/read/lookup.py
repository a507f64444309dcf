"""Finds snapshots of a table: by id, by branch or tag, and by the time at which they were current."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from volley.errors import SnapshotExpiredError, SnapshotNotFoundError, near
from volley.iceberg.read.heads import ancestors_of

__all__ = ["moment_of", "snapshot_at", "snapshot_of", "snapshot_of_ref"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def snapshot_of(metadata: TableMetadata, snapshot_id: int, table: str) -> Snapshot:
    """Return the snapshot with an id.

    Raises:
        SnapshotNotFoundError: If the table has none, or has it no longer.
    """
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise SnapshotNotFoundError(
            f"table {table} has no snapshot {snapshot_id}",
            hint=f"it was expired, or is another table's; {_kept(metadata)}",
        )
    return snapshot


def snapshot_of_ref(metadata: TableMetadata, name: str, table: str) -> Snapshot:
    """Return the last snapshot of a branch, or the snapshot of a tag.

    Raises:
        SnapshotNotFoundError: If there is no such branch or tag, or the table has no snapshot yet.
    """
    snapshot = metadata.snapshot_by_name(name)
    if snapshot is not None:
        return snapshot
    if name == MAIN_BRANCH:
        raise SnapshotNotFoundError(f"table {table} has no snapshot yet", hint="write to it first")
    raise SnapshotNotFoundError(f"table {table} has no branch or tag {name!r}", hint=near(name, metadata.refs))


def snapshot_at(metadata: TableMetadata, name: str, at: datetime, table: str) -> Snapshot:
    """Return the snapshot that was current at a time.

    For main, the table's log answers: it has rollbacks, which the snapshots themselves don't show. Other branches have
    no log: their last snapshot's ancestors answer. A tag always stood where it stands.

    Args:
        metadata: The table's metadata.
        name: The branch or tag.
        at: The time, with a time zone.
        table: The table's dotted name, for messages.

    Raises:
        SnapshotNotFoundError: If the time is before the first snapshot, or there is no such branch or tag.
        SnapshotExpiredError: If the snapshot of that time was expired.
    """
    head = snapshot_of_ref(metadata, name, table)
    # Iceberg has milliseconds: a commit in the same millisecond counts.
    millis = (at - _EPOCH) // _MILLISECOND
    if name != MAIN_BRANCH:
        snapshots = list(ancestors_of(head, metadata))
        past = next((snapshot for snapshot in snapshots if snapshot.timestamp_ms <= millis), None)
        if past is None:
            raise _before_the_first(metadata, snapshots[-1].timestamp_ms, at, table)
        return past
    log = metadata.snapshot_log
    past_entries = [number for number, entry in enumerate(log) if entry.timestamp_ms <= millis]
    if not past_entries:
        raise _before_the_first(metadata, log[0].timestamp_ms if log else head.timestamp_ms, at, table)
    number = past_entries[-1]
    snapshot = metadata.snapshot_by_id(log[number].snapshot_id)
    if snapshot is None or _lacks_entries(metadata, snapshot, log[number + 1 :]):
        raise SnapshotExpiredError(
            f"the snapshot of table {table} at {at.isoformat()} was expired, or can't be told from the table's log",
            hint=f"name a snapshot that is left; {_kept(metadata)}",
        )
    return snapshot


def moment_of(millis: int) -> datetime:
    """Return the time of a snapshot, in UTC."""
    return _EPOCH + millis * _MILLISECOND


def _lacks_entries(metadata: TableMetadata, snapshot: Snapshot, following: Sequence[SnapshotLogEntry]) -> bool:
    """Return True if the log may have had entries between a snapshot's and the next one.

    An expiry by pyiceberg removes an expired snapshot's entries from the middle of the log, and it looks as if the
    snapshot before had been current until the next entry. Iceberg's Java library cuts the log off instead.
    """
    if not following:
        return False
    if following[0].snapshot_id == snapshot.snapshot_id:
        return True  # it was current twice, and another one between
    by_id = {other.snapshot_id: other for other in metadata.snapshots}
    commits = [commit for entry in following if (commit := _committed(by_id, entry))]
    if commits and commits[0].snapshot_id == following[0].snapshot_id:
        if commits[0].parent_snapshot_id == snapshot.snapshot_id:
            return False
        if not commits[0].sequence_number:
            return True  # format version 1 does not number its snapshots
    # A rollback, a published branch or a replaced table: then no commit may be missing between the two.
    last = commits[0].sequence_number if commits else metadata.next_sequence_number()
    numbers = {other.sequence_number for other in metadata.snapshots}
    return not numbers.issuperset(range((snapshot.sequence_number or 0) + 1, last or 0))


def _committed(by_id: Mapping[int, Snapshot], entry: SnapshotLogEntry) -> Snapshot | None:
    """Return the snapshot that was committed with a log's entry; None if main was moved to an older one."""
    snapshot = by_id.get(entry.snapshot_id)
    return snapshot if snapshot and snapshot.timestamp_ms == entry.timestamp_ms else None


def _before_the_first(metadata: TableMetadata, first: int, at: datetime, table: str) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(
        f"{at.isoformat()} is before the first snapshot that table {table} has, of {moment_of(first).isoformat()}",
        hint=f"snapshots before that were expired, or there were none; {_kept(metadata)}",
    )


def _kept(metadata: TableMetadata) -> str:
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    if not times:
        return "the table has no snapshot"
    first, last = moment_of(min(times)).isoformat(), moment_of(max(times)).isoformat()
    return f"the table has {len(times)} snapshots, from {first} to {last}: SnapshotManager(table).list_snapshots()"

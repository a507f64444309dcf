"""Finds snapshots of a table: by id, branch, tag or time, the ancestors of one, and those between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import NoReturn

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from volley.errors import (
    ConfigError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    SnapshotRolledBackError,
    TableReplacedError,
    near,
)
from volley.iceberg.read.entries import EntryStatus, entries_of

__all__ = [
    "Way",
    "added_files",
    "ancestors_of",
    "changes_rows",
    "check_branch",
    "check_same_table",
    "head_of",
    "moment_of",
    "oldest_of",
    "snapshot_at",
    "snapshot_of",
    "snapshot_of_ref",
    "snapshots_between",
    "way_between",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def head_of(table: Table, branch: str) -> Snapshot | None:
    """Return the snapshot that the next one of a branch is based on; for a new branch, main's last snapshot."""
    if branch in table.metadata.refs:
        return table.metadata.snapshot_by_name(branch)
    return table.current_snapshot()


def check_branch(metadata: TableMetadata, table: str, branch: str) -> None:
    """Raise ConfigError if a table's branch is a tag, which stays at its snapshot."""
    ref = metadata.refs.get(branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise ConfigError(f"branch {branch!r} of table {table} is a tag", hint="name a branch")


def ancestors_of(head: Snapshot | None, metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, the last one first, as far as the metadata has them.

    pyiceberg's own function searches all snapshots at every step: 10,000 of them take it seconds.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while head is not None:
        yield head
        head = None if head.parent_snapshot_id is None else by_id.get(head.parent_snapshot_id)


def added_files(snapshot: Snapshot, io: FileIO) -> Iterator[DataFile]:
    """Yield the data files and delete files that a snapshot added."""
    for manifest in snapshot.manifests(io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(io):
                if entry.snapshot_id == snapshot.snapshot_id and entry.status == ManifestEntryStatus.ADDED:
                    yield entry.data_file


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


@dataclass(frozen=True)
class Way:
    """The snapshots that lead from one snapshot to another of a history that was rolled back.

    Args:
        undone: Those that are no more in the history, the last one first.
        shared: The last snapshot that both histories have; None = they have none.
        added: Those of the new history, oldest first.
    """

    undone: Sequence[Snapshot]
    shared: Snapshot | None
    added: Sequence[Snapshot]


def changes_rows(snapshot: Snapshot) -> bool:
    """Return False for a snapshot that writes the same rows to other files, such as a compaction."""
    return snapshot.summary is None or snapshot.summary.operation.value != "replace"


def check_same_table(table: Table, table_uuid: str) -> None:
    """Check that a table is the one that was read before.

    Raises:
        TableReplacedError: If it has another uuid.
    """
    current = str(table.metadata.table_uuid)
    if current != table_uuid:
        raise TableReplacedError(
            f"table {_name(table)} was dropped and made anew: its uuid is {current}, it was {table_uuid} when it was "
            "last read",
            hint="start over with the new table: none of its snapshots follows the old one's",
        )


def oldest_of(table: Table, end: Snapshot) -> tuple[Snapshot, bool]:
    """Return the oldest ancestor of a snapshot that the table still has, and whether it is the table's first one."""
    *_, oldest = ancestors_of(end, table.metadata)
    return oldest, oldest.parent_snapshot_id is None and _is_first(table, oldest)


def snapshots_between(table: Table, start: int | None, end: int) -> list[Snapshot]:
    """Return the snapshots after one snapshot up to another, oldest first, compactions too.

    The start itself may have expired, as long as its successor names it as its parent.

    Args:
        start: The snapshot before the first one; None = from the table's beginning.

    Raises:
        SnapshotNotFoundError: If the table has no such snapshot.
        SnapshotExpiredError: If one of the snapshots has expired.
        SnapshotRolledBackError: If the start is not before the end.
    """
    if table.metadata.snapshot_by_id(end) is None:
        _raise_absent(table, end)
    snapshots = list(_back_to(table, start, end))
    if snapshots and not _follows(table, snapshots[-1], start):
        _raise_missing(table, start, end, snapshots[-1])
    return snapshots[::-1]


def way_between(table: Table, start: int, end: int) -> Way:
    """Return the way from a snapshot that was rolled back to another one.

    Raises:
        SnapshotExpiredError: If a snapshot on it has expired.
        SnapshotNotFoundError: If the table does not have the end.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in _back_to(table, None, end)}
    undone = list(takewhile(lambda snapshot: snapshot.snapshot_id not in known, _back_to(table, None, start)))
    parent = undone[-1].parent_snapshot_id if undone else start
    shared = None if parent is None else known.get(parent)
    if shared is None and (parent is not None or not _is_first(table, undone[-1])):
        raise SnapshotExpiredError(
            f"snapshot {start} of table {_name(table)} was rolled back, and can't be taken back: snapshots between it "
            f"and the history of snapshot {end} have expired",
            hint="start over with fresh=True; keep snapshots that were rolled back longer than readers may stop",
        )
    return Way(undone, shared, snapshots_between(table, None if shared is None else shared.snapshot_id, end))


def _back_to(table: Table, start: int | None, end: int | None) -> Iterator[Snapshot]:
    """Return the end and its ancestors back to the start, without it, as far as the metadata has them."""
    head = None if end is None else table.metadata.snapshot_by_id(end)
    return takewhile(lambda snapshot: snapshot.snapshot_id != start, ancestors_of(head, table.metadata))


def _follows(table: Table, snapshot: Snapshot, start: int | None) -> bool:
    """Return True if a snapshot is the first one after the start."""
    return snapshot.parent_snapshot_id == start and (start is not None or _is_first(table, snapshot))


def _is_first(table: Table, snapshot: Snapshot) -> bool:
    """Return True if a snapshot without parent has no files of an earlier one.

    pyiceberg removes the parent's id from the successor of a snapshot that it expires.
    """
    return all(
        manifest.added_snapshot_id == snapshot.snapshot_id and _has_only_new(table.io, manifest)
        for manifest in snapshot.manifests(table.io)
    )


def _has_only_new(io: FileIO, manifest: ManifestFile) -> bool:
    existing, deleted = manifest.existing_files_count, manifest.deleted_files_count
    if existing is None or deleted is None:
        return all(entry.status == EntryStatus.ADDED for entry in entries_of(io, manifest))
    return existing == deleted == 0


def _raise_missing(table: Table, start: int | None, end: int, oldest: Snapshot) -> NoReturn:
    """Raise the error for a start that the walk did not meet."""
    is_whole = oldest.parent_snapshot_id is None and _is_first(table, oldest)
    known = None if start is None else table.metadata.snapshot_by_id(start)
    if not is_whole and (known is None or _age(known) < _age(oldest)):
        _raise_expired(table, start, end, oldest)
    if known is not None or any(entry.snapshot_id == start for entry in table.metadata.snapshot_log):
        _raise_rolled_back(table, start, end)
    assert start is not None
    _raise_absent(table, start)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    # Tables of format version 1 have no sequence numbers.
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def _raise_rolled_back(table: Table, start: int | None, end: int) -> NoReturn:
    earlier = [snapshot.snapshot_id for snapshot in _back_to(table, None, start)]
    if end in earlier:
        raise SnapshotRolledBackError(
            f"snapshot {end} of table {_name(table)} is before snapshot {start}: it has no changes since then",
            hint=f"swap them: changes from {end} to {start}",
        )
    later = [snapshot.snapshot_id for snapshot in _back_to(table, None, end)]
    shared = next((snapshot_id for snapshot_id in earlier if snapshot_id in later), None)
    raise SnapshotRolledBackError(
        f"snapshot {start} of table {_name(table)} is not in the history of snapshot {end}: the table was rolled "
        "back, or they belong to different branches",
        hint="read the table anew as a whole"
        if shared is None
        else f"the last snapshot that both have is {shared}: undo what came after it, then read the changes from there",
    )


def _raise_expired(table: Table, start: int | None, end: int, oldest: Snapshot) -> NoReturn:
    since = "its beginning" if start is None else f"snapshot {start}"
    if oldest.parent_snapshot_id is not None:
        gone = f"snapshot {oldest.parent_snapshot_id} has expired"
    else:
        gone = f"those before snapshot {oldest.snapshot_id} have expired"
    raise SnapshotExpiredError(
        f"the changes of table {_name(table)} from {since} to snapshot {end} are not all there: {gone}",
        hint=f"read the table as of snapshot {oldest.snapshot_id} as a whole, and the changes from there; keep "
        "snapshots longer than readers may stop",
    )


def _raise_absent(table: Table, snapshot_id: int) -> NoReturn:
    known = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    listed = ", ".join(map(str, known[-5:])) or "none"
    raise SnapshotNotFoundError(
        f"table {_name(table)} has no snapshot {snapshot_id}: it has expired, or never existed",
        hint=f"its {'latest ' if len(known) > 5 else ''}snapshots: {listed}",
    )


def _name(table: Table) -> str:
    return ".".join(table.name())

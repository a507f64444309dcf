"""Walks a table's history: the snapshots between two of them, oldest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NoReturn

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.errors import (
    SnapshotExpiredError,
    SnapshotNotFoundError,
    SnapshotRolledBackError,
    TableReplacedError,
)
from volley.iceberg.read.entries import Status, entries_of
from volley.iceberg.read.heads import ancestors_of

__all__ = ["Way", "changes_rows", "check_same_table", "oldest_of", "snapshots_between", "way_between"]


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
        table: The table.
        start: The snapshot before the first one; None = from the table's beginning.
        end: The last snapshot.

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
        return all(entry.status == Status.ADDED for entry in entries_of(io, manifest))
    return existing == deleted == 0


def _raise_missing(table: Table, start: int | None, end: int, oldest: Snapshot) -> NoReturn:
    """Raise the error for a start that the walk did not meet.

    Args:
        table: The table.
        start: The start.
        end: The end.
        oldest: The oldest ancestor of the end that is still there.
    """
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

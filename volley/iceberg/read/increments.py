"""Finds what a stream reads next of a table: the rest of a scan, then the files of one snapshot after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import NestedField

from volley.errors import SnapshotExpiredError, SnapshotNotFoundError, SnapshotRolledBackError, SourceError
from volley.iceberg.pyiceberg_private.server_plans import check_planned_here, is_planned_by_server
from volley.iceberg.read.changed_files import ChangedFile, ChangeSplit, change_splits
from volley.iceberg.read.entries import (
    EntryStatus,
    FileEntry,
    PlannedFile,
    entries_of,
    is_data,
    manifests_of,
    own_manifests,
)
from volley.iceberg.read.history import Way, changes_rows, check_same_table, snapshots_between, way_between
from volley.iceberg.read.reports import reported_plan
from volley.iceberg.read.rows import file_task
from volley.iceberg.read.scope import Position
from volley.iceberg.source_config import OnChanges, OnExpired, OnRollback
from volley.iceberg.table import TableRef

__all__ = ["Increment", "Increments"]


@dataclass(frozen=True)
class Increment:
    """Some files of one snapshot.

    Args:
        position: The position behind all of them.
        files: The data files with new rows, in the order of their paths.
        changes: What a snapshot changed, in place of files; with "follow".
        divisible: True if an epoch can end behind any of the files.
    """

    position: Position
    files: Sequence[PlannedFile] = ()
    changes: Sequence[ChangeSplit] = ()
    divisible: bool = True

    @property
    def rows(self) -> int:
        """The number of rows of the changed files, more than are changed."""
        return sum(split.rows for split in self.changes)

    def clipped(self, start: Position, end: Position) -> Increment:
        """Return the increment with its files between two positions."""
        low = start.after if start.is_with(self.position) else None
        high = end.after if end.is_with(self.position) else None
        files = [
            planned
            for planned in self.files
            if (low is None or planned.file.path > low) and (high is None or planned.file.path <= high)
        ]
        return replace(self, files=files)


@dataclass(frozen=True)
class Increments:
    """What can be read of a table, as its metadata have it now.

    Args:
        head: The last snapshot of the branch, whose manifests may still have entries of expired snapshots.
        schema: The schema whose names the filter uses.
        row_filter: Leaves out files without matching rows.
        on_expired: What to do if snapshots that were not read have expired.
        on_rollback: What to do if snapshots that were read are no more in the branch's history.
        columns: The columns that are read; None = all.
    """

    ref: TableRef
    table: Table
    head: Snapshot | None
    schema: Schema
    row_filter: BooleanExpression
    changes: OnChanges = "fail"
    on_expired: OnExpired = "fail"
    keys: Sequence[str] = ()
    on_rollback: OnRollback = "fail"
    columns: Sequence[NestedField] | None = None

    def goal(self, start: Position, end: Position) -> Position:
        """Return the position to read to: the end, unless a scan has to begin or to go on.

        Raises:
            SourceError: If snapshots on the way have expired or were rolled back, or if the table was made anew.
        """
        check_same_table(self.table, start.table)
        if end.snapshot is None:
            # A branch that was set back to nothing has no rows any more.
            return self._not_before(start, end) if self.on_rollback == "undo" else start
        if start.snapshot == end.snapshot:
            return start.at_its_end() if end.after is None else end
        try:
            snapshots_between(self.table, start.snapshot, end.snapshot)
        except (SnapshotExpiredError, SnapshotNotFoundError) as error:
            if self.on_expired == "rescan":
                return end.scanning(None)
            self._check_proven(start, end, error)
        except SnapshotRolledBackError as error:
            if self.on_rollback == "rescan":
                return end.scanning(None)
            self._way(start, end, error)
        return self._not_before(start, end)

    def check(self, start: Position, end: Position) -> None:
        """Check what `between` checks, without planning the files."""
        if end.snapshot in (None, start.snapshot) or end.scan:
            return
        # `goal` has looked at them.
        with suppress(SnapshotExpiredError, SnapshotNotFoundError, SnapshotRolledBackError):
            for snapshot in snapshots_between(self.table, start.snapshot, end.snapshot):
                self._check_allowed(snapshot)

    def unread(self, start: int | None, end: int) -> Sequence[Snapshot]:
        """Return the snapshots of the branch's history between two of them, the second one too. Raises like `goal`."""
        try:
            return snapshots_between(self.table, start, end)
        except SnapshotRolledBackError:
            if self.on_rollback != "undo" or start is None:
                raise
            return way_between(self.table, start, end).added

    def between(self, start: Position, end: Position) -> Iterator[Increment]:
        """Yield what stands between two positions; the same on every call."""
        check_same_table(self.table, end.table)
        for increment in self._increments(start, end):
            yield increment.clipped(start, end) if increment.divisible else increment

    def _increments(self, start: Position, end: Position) -> Iterator[Increment]:
        if end.scan and not (start.scan and start.snapshot == end.snapshot):
            yield self._scan(end)
            return
        if start.after is not None:
            yield self._scan(start) if start.scan else self._added(start)
        if end.snapshot == start.snapshot:
            return
        if end.snapshot is None:
            yield self._emptied(start)
            return
        try:
            snapshots = snapshots_between(self.table, start.snapshot, end.snapshot)
        except (SnapshotExpiredError, SnapshotNotFoundError) as error:
            self._check_proven(start, end, error)
            yield self._live_between(start, end)
            return
        except SnapshotRolledBackError as error:
            way = self._way(start, end, error)
            yield from self._undone(start, way)
            snapshots = list(way.added)
        position = start
        for snapshot in snapshots:
            if self._check_allowed(snapshot):
                position = self._not_before(position, Position.at_end(self.table, snapshot))
                yield self._changed(position, snapshot) if self.changes == "follow" else self._added(position)

    def _scan(self, position: Position) -> Increment:
        """Return all files of a snapshot; if it has expired, its files must all be live still."""
        snapshot = self._snapshot(position.snapshot)
        if snapshot is not None:
            files = self._plan(snapshot)
        else:
            self._check_proven(position, position, None)
            files = self._live_of(range(position.sequence + 1))
        return Increment(position.at_its_end(), _by_path(files))

    def _added(self, position: Position) -> Increment:
        """Return the files that a snapshot added; if it has expired, its files must all be live still."""
        snapshot = self._snapshot(position.snapshot)
        if snapshot is not None:
            return Increment(position.at_its_end(), _by_path(self._plan(snapshot, added_only=True)))
        self._check_proven(position, position, None)
        files = self._live_of(range(position.sequence, position.sequence + 1))
        return Increment(position.at_its_end(), _by_path(files))

    def _changed(self, position: Position, snapshot: Snapshot) -> Increment:
        splits = change_splits(self._io, snapshot, self.table.metadata, self._key_ids)
        changes = [replace(split, committed_at=position.committed_at) for split in splits]
        return Increment(position, changes=changes, divisible=False)

    def _not_before(self, start: Position, position: Position) -> Position:
        """Return a position that is dated not before another one: another history may be older than what was undone."""
        if self.on_rollback != "undo":
            return position
        return replace(position, committed_at=max(start.committed_at, position.committed_at))

    @property
    def _key_ids(self) -> list[int]:
        return [field.field_id for field in self.schema.fields if field.name in self.keys]

    def _way(self, start: Position, end: Position, error: SnapshotRolledBackError) -> Way:
        """Return the way to the end of another history."""
        assert start.snapshot is not None
        assert end.snapshot is not None
        if self.on_rollback == "undo":
            return way_between(self.table, start.snapshot, end.snapshot)
        setting = (
            'with_on_rollback("undo") takes back the changes that were rolled back, then reads on'
            if self.changes == "follow"
            else 'with_on_rollback("rescan") reads the whole table again'
        )
        raise SnapshotRolledBackError(error.message, hint=f"{setting}; or start over with fresh=True") from error

    def _undone(self, start: Position, way: Way) -> Iterator[Increment]:
        """Yield what takes back the snapshots that were rolled back, one after the other."""
        if way.shared is None:
            yield self._emptied(start)
            return
        parents = [*way.undone[1:], way.shared]
        for snapshot, parent in zip(way.undone, parents, strict=True):
            # A sink that orders rows by this time takes the last ones.
            position = self._not_before(start, Position.at_end(self.table, parent))
            splits = change_splits(self._io, snapshot, self.table.metadata, self._key_ids, undo=True)
            changes = [replace(split, committed_at=position.committed_at) for split in splits]
            yield Increment(position, changes=changes, divisible=False)

    def _emptied(self, start: Position) -> Increment:
        """Return the increment that deletes all rows of a snapshot that no history leads to."""
        snapshot = self._snapshot(start.snapshot)
        if snapshot is None:
            raise SnapshotExpiredError(
                f"snapshot {start.snapshot} of table {'.'.join(self.table.name())} has expired since it was read, and "
                "the table was set back to nothing",
                hint="start over with fresh=True",
            )
        tasks = [file_task(planned, self.table.metadata) for planned in _by_path(self._plan(snapshot))]
        changes = [
            ChangeSplit(snapshot.snapshot_id, start.committed_at, ((ChangedFile(task, None),),)) for task in tasks
        ]
        return Increment(Position(start.table, committed_at=start.committed_at), changes=changes, divisible=False)

    def _live_between(self, start: Position, end: Position) -> Increment:
        files = self._live_of(range(start.sequence + 1, end.sequence + 1))
        return Increment(end.at_its_end(), _by_path(files), divisible=False)

    def _plan(self, snapshot: Snapshot, added_only: bool = False) -> list[PlannedFile]:
        columns = self.schema.fields if self.columns is None else self.columns
        return reported_plan(self.ref, self.table, snapshot, self.row_filter, self.schema, added_only, columns).files

    def _live_of(self, numbers: range) -> list[PlannedFile]:
        """Return the live files that were written by snapshots of these sequence numbers."""
        check_planned_here(self._io, f"what is left of snapshots of table {self.ref.name} that have expired")
        files = [] if self.head is None else self._plan(self.head)
        return [planned for planned in files if planned.file.file_sequence_number in numbers]

    @property
    def _io(self) -> FileIO:
        return self.table.io

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        return None if snapshot_id is None else self.table.metadata.snapshot_by_id(snapshot_id)

    def _check_allowed(self, snapshot: Snapshot) -> bool:
        """Return False for a snapshot to pass over."""
        if not changes_rows(snapshot):
            return False
        if self.changes in ("added_rows", "follow") or not _removes_rows(self._io, snapshot):
            return True
        if self.changes == "skip":
            return False
        operation = snapshot.summary.operation.value if snapshot.summary else "an unknown operation"
        raise SourceError(
            f"snapshot {snapshot.snapshot_id} of table {'.'.join(self.table.name())} changes or deletes rows "
            f"({operation})",
            hint='choose how to read it: with_changes("follow") as changes, with_changes("added_rows") its new files '
            'only, with_changes("skip") not at all',
        )

    def _check_proven(self, start: Position, end: Position, error: SourceError | None) -> None:
        """Check that all files that were live at two positions still are, though snapshots between them have expired.

        Files that are live now and were written before a position were live there; if there are as many as there were,
        they are all that were. Their sequence numbers tell which were added in between.
        """
        if self.on_expired == "live_rows":
            return
        if self.changes == "follow" and error is not None:
            raise error
        entries = list(self._live_entries())
        is_same = all(position.live == _written_until(entries, position) for position in {start, end})
        if is_same and not any(entry.content and entry.file_sequence_number > start.sequence for entry in entries):
            return
        name = ".".join(self.table.name())
        raise error or SnapshotExpiredError(
            f"snapshot {start.snapshot} of table {name} has expired while it was read, and some of its files are gone",
            hint='start over with fresh=True, or with_on_expired("live_rows") or ("rescan"); keep snapshots longer '
            "than readers need them",
        )

    def _live_entries(self) -> Iterator[FileEntry]:
        for manifest in manifests_of(self._io, self.head) if self.head else ():
            yield from (entry for entry in entries_of(self._io, manifest) if entry.is_live)


def _written_until(entries: Sequence[FileEntry], position: Position) -> int:
    """Return the number of data files among live entries that were written before a position."""
    return sum(not entry.content and entry.file_sequence_number <= position.sequence for entry in entries)


def _by_path(files: Sequence[PlannedFile]) -> list[PlannedFile]:
    return sorted(files, key=lambda planned: planned.file.path)


def _removes_rows(io: FileIO, snapshot: Snapshot) -> bool:
    """Return True if a snapshot removed data files or added delete files."""
    if is_planned_by_server(io):
        return snapshot.summary is None or snapshot.summary.operation != Operation.APPEND
    return any(_has(io, manifest, snapshot) for manifest in own_manifests(io, snapshot))


def _has(io: FileIO, manifest: ManifestFile, snapshot: Snapshot) -> bool:
    count = manifest.deleted_files_count if is_data(manifest) else manifest.added_files_count
    if count == 0:
        return False
    status = EntryStatus.DELETED if is_data(manifest) else EntryStatus.ADDED
    # A manifest of added delete files may keep older ones; counts are optional in format version 1.
    return any(
        entry.status == status and entry.snapshot_id == snapshot.snapshot_id for entry in entries_of(io, manifest)
    )

"""Plans on the driver which files of a snapshot have to be read for its changes, in parts for executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from volley.iceberg.layout.partitions import exact
from volley.iceberg.read.entries import EntryStatus, FileEntry, PlannedFile, entries_of, is_data, manifests_of
from volley.iceberg.read.history import changes_rows
from volley.iceberg.read.planning import DeleteIndex, only_file, unpartitioned_specs
from volley.iceberg.read.rows import FileTask, file_task
from volley.iceberg.schema.types import PATH_ID

__all__ = ["ChangeSplit", "ChangedFile", "change_splits"]


@dataclass(frozen=True)
class ChangedFile:
    """A data file whose rows a snapshot changes: the rows to read for it before and after.

    Args:
        before: The file with the delete files that applied before the snapshot; None = the snapshot added it.
        after: The file with the delete files that apply since; None = the snapshot removed it.
    """

    before: FileTask | None
    after: FileTask | None

    @property
    def file(self) -> FileEntry:
        """The data file."""
        task = self.before or self.after
        assert task is not None
        return task.file

    def undone(self) -> ChangedFile:
        """Return the change that takes this one back."""
        return ChangedFile(self.after, self.before)

    @property
    def loses_rows(self) -> bool:
        """True if rows of the file may be gone after the snapshot."""
        return self.before is not None and (self.after is None or not _deletes(self.after) <= _deletes(self.before))

    @property
    def gains_rows(self) -> bool:
        """True if the file may have rows that were not there before the snapshot."""
        return self.after is not None and (self.before is None or not _deletes(self.before) <= _deletes(self.after))


def _deletes(task: FileTask) -> set[tuple[str, int | None]]:
    # Several deletion vectors are in one file.
    return {(delete.path, delete.blob_offset) for delete in task.deletes}


@dataclass(frozen=True)
class ChangeSplit:
    """A part of a snapshot's changes that can be read by itself; small and picklable.

    Args:
        committed_at: When it was committed, in milliseconds since 1970.
        groups: Files by partition: rows that a group loses and gains again did not change.
        sequence: The sequence number of the snapshot, for the rows to have it; None = they don't.
    """

    snapshot_id: int
    committed_at: int
    groups: tuple[tuple[ChangedFile, ...], ...]
    sequence: int | None = None

    @classmethod
    def of_inserted(cls, file: FileTask, snapshot_id: int, committed_at: int) -> ChangeSplit:
        """Return the split whose changes are the inserts of all rows of a file."""
        return cls(snapshot_id, committed_at, ((ChangedFile(None, file),),))

    @property
    def files(self) -> list[FileEntry]:
        """The data files to read."""
        return [changed.file for group in self.groups for changed in group]

    @property
    def rows(self) -> int:
        """The number of rows in its data files."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """The size of its data files in bytes."""
        return sum(file.size for file in self.files)


def change_splits(
    io: FileIO, snapshot: Snapshot, table: TableMetadata, keys: Sequence[int] = (), undo: bool = False
) -> list[ChangeSplit]:
    """Return the splits that have all changes of one snapshot, those with deletes alone first.

    Everything is in the snapshot's own manifests; its parent may have expired.

    Args:
        snapshot: The snapshot; one that does not change rows has no splits.
        keys: The ids of the columns that pair a deleted with an inserted row: splits have all rows of a key.
        undo: True: the changes that take those of the snapshot back.
    """
    if not changes_rows(snapshot):
        return []
    files = [file.undone() if undo else file for file in _changed_files(io, snapshot, table)]
    loses, gains = any(file.loses_rows for file in files), any(file.gains_rows for file in files)
    groups = _groups(files, table)
    if keys and loses and gains and not _has_partition_columns(keys, files, table):
        # A row's partition may have changed with it.
        return [_split(snapshot, groups)]
    parts = [part for group in groups for part in _independent(group)]
    parts.sort(key=lambda part: any(file.gains_rows for file in part))
    return [_split(snapshot, [part]) for part in parts]


def _split(snapshot: Snapshot, groups: Iterable[Sequence[ChangedFile]]) -> ChangeSplit:
    return ChangeSplit(snapshot.snapshot_id, snapshot.timestamp_ms, tuple(map(tuple, groups)))


def _independent(group: list[ChangedFile]) -> list[list[ChangedFile]]:
    """Divide a group into single files if it has nothing to compare."""
    has_both = any(file.loses_rows for file in group) and any(file.gains_rows for file in group)
    return [group] if has_both else [[file] for file in group]


def _groups(files: Sequence[ChangedFile], table: TableMetadata) -> list[list[ChangedFile]]:
    """Group files by the partition fields that all of them have: a rewrite may change the partition spec."""
    common = _common_fields(files, table)
    groups: dict[tuple[Any, ...], list[ChangedFile]] = {}
    for file in files:
        spec, values = table.specs()[file.file.spec_id], file.file.partition
        by_field = {_identity(field): exact(value) for field, value in zip(spec.fields, values, strict=True)}
        groups.setdefault(tuple(by_field[field] for field in common), []).append(file)
    return list(groups.values())


def _common_fields(files: Iterable[ChangedFile], table: TableMetadata) -> list[tuple[int, int, str]]:
    specs = [table.specs()[spec_id] for spec_id in {file.file.spec_id for file in files}]
    fields = [{_identity(field) for field in spec.fields} for spec in specs]
    return sorted(set.intersection(*fields)) if fields else []


def _identity(field: Any) -> tuple[int, int, str]:
    return field.field_id, field.source_id, str(field.transform)


def _has_partition_columns(keys: Sequence[int], files: Iterable[ChangedFile], table: TableMetadata) -> bool:
    return {source_id for _, source_id, _ in _common_fields(files, table)} <= {*keys}


def _changed_files(io: FileIO, snapshot: Snapshot, table: TableMetadata) -> Iterator[ChangedFile]:
    manifests = manifests_of(io, snapshot)
    of_deletes = [manifest for manifest in manifests if not is_data(manifest)]
    deletes = [entry for manifest in of_deletes for entry in entries_of(io, manifest, {PATH_ID})]
    everywhere = unpartitioned_specs(table)
    before = DeleteIndex((entry for entry in deletes if _was_live(entry, snapshot)), everywhere)
    after = DeleteIndex((entry for entry in deletes if entry.is_live), everywhere)

    def task(file: FileEntry, index: DeleteIndex) -> FileTask:
        return file_task(PlannedFile(file, index.of(file)), table)

    changed: set[str] = set()
    own = [manifest for manifest in manifests if manifest.added_snapshot_id == snapshot.snapshot_id]
    for entry in _entries(io, own):
        if _is_new_or_gone(entry, snapshot):
            changed.add(entry.path)
            yield ChangedFile(None, task(entry, after)) if entry.is_live else ChangedFile(task(entry, before), None)
    touching = [entry for entry in deletes if _is_new_or_gone(entry, snapshot) and only_file(entry) not in changed]
    if not touching:
        return
    index = DeleteIndex(touching, everywhere)
    for entry in _entries(io, manifests):
        if entry.is_live and entry.path not in changed and index.of(entry):
            file = ChangedFile(task(entry, before), task(entry, after))
            if file.loses_rows or file.gains_rows:
                yield file


def _entries(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[FileEntry]:
    for manifest in manifests:
        if is_data(manifest):
            yield from entries_of(io, manifest)


def _is_new_or_gone(entry: FileEntry, snapshot: Snapshot) -> bool:
    return entry.snapshot_id == snapshot.snapshot_id and entry.status != EntryStatus.EXISTING


def _was_live(entry: FileEntry, snapshot: Snapshot) -> bool:
    """Return True if a file was live before the snapshot."""
    is_own = entry.snapshot_id == snapshot.snapshot_id
    return entry.status == EntryStatus.EXISTING or is_own == (entry.status == EntryStatus.DELETED)

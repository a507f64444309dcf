"""Rewrites delete files: merges those of each data file, drops those without effect, converts equality deletes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.contracts.epoch import WriteResult
from volley.iceberg.commit.loop import Staged, commit_to
from volley.iceberg.maintain.options import DeleteOptions
from volley.iceberg.maintain.rewrites import FileRewrite, Opened, deadline, format_of, within
from volley.iceberg.maintain.told import told
from volley.iceberg.maintain.values import DeleteRewrite
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.read.data_files import READABLE
from volley.iceberg.read.delete_files import deleted_by_position
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, entries_of, manifests_of, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import only_file, plan
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.schema.types import PATH_ID
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.table import TableRef
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.task.failpoints import reach

__all__ = ["rewrite_deletes"]

# Data files that one task handles: enough that a task's own cost does not count.
_FILES_OF_A_TASK = 64

_Numbers = np.ndarray[Any, Any]


@told("deletes", lambda done: bool(done.snapshot_id))
def rewrite_deletes(ref: TableRef, options: DeleteOptions) -> DeleteRewrite:
    """Merge the delete files of each data file into one, in one commit."""
    began = time.monotonic()
    opened = Opened.of(ref, options.where)
    if opened.head is None:
        return DeleteRewrite(ref.name, dry_run=options.dry_run, seconds=time.monotonic() - began)
    state = _State.of(opened.table, opened.head)
    has_vectors = opened.table.format_version >= ROW_IDS_SINCE
    due = [planned for planned in state.files if _is_due(planned, options, has_vectors)]
    if options.where is not None:
        matching = {planned.file.path for planned in opened.files}
        due = [planned for planned in due if planned.file.path in matching]
    taken = _with_sharers(due[: within(_sizes(due, options), options.max_bytes)], state.files, options)
    left = len({planned.file.path for planned in due} - {planned.file.path for planned in taken})
    if options.dry_run:
        merged = {planned.file.path: {delete.path for delete in _merged(planned, options)} for planned in taken}
        result = _counted(DeleteRewrite(ref.name, dry_run=True), state.without(merged, options), len(taken))
    else:
        result = _DeleteReplacement(opened, options).rewrite(taken)
    return replace(result, left=result.left + left, seconds=time.monotonic() - began)


def _is_due(planned: PlannedFile, options: DeleteOptions, has_vectors: bool) -> bool:
    """Return True unless a data file's only delete file is of its own; where deletes are vectors, unless it has one."""
    deletes = _merged(planned, options)
    if len(deletes) != 1 or has_vectors:
        return bool(deletes)
    (delete,) = deletes
    return delete.content == Content.EQUALITY_DELETES or only_file(delete) is None


def _merged(planned: PlannedFile, options: DeleteOptions) -> list[FileEntry]:
    """Return the delete files of a data file that are merged."""
    return [
        delete
        for delete in planned.deletes
        if delete.format in READABLE and (options.convert_equality or delete.content == Content.POSITION_DELETES)
    ]


def _sizes(files: Sequence[PlannedFile], options: DeleteOptions) -> Iterator[int]:
    """Yield for each data file how many bytes are to be read for it, if those before it are merged, too."""
    read = set[str]()
    for planned in files:
        deletes = _merged(planned, options)
        size = sum(delete.size for delete in deletes if delete.path not in read)
        reads_rows = any(delete.content == Content.EQUALITY_DELETES for delete in deletes)
        yield size + (planned.file.size if reads_rows else 0)
        read.update(delete.path for delete in deletes)


def _with_sharers(
    taken: Sequence[PlannedFile], files: Sequence[PlannedFile], options: DeleteOptions
) -> list[PlannedFile]:
    """Return the data files with all others that have a delete file in common: it goes only as a whole."""
    deletes = {delete.path for planned in taken for delete in _merged(planned, options)}
    return [planned for planned in files if any(delete.path in deletes for delete in _merged(planned, options))]


@dataclass(frozen=True)
class _State:
    """The data files of a snapshot with their delete files, and all its live delete files."""

    files: Sequence[PlannedFile]
    deletes: Sequence[FileEntry]

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot) -> _State:
        files = plan(table.io, table.metadata, snapshot, AlwaysTrue()).files
        return cls(files, list(_live_deletes(table.io, snapshot)))

    def without(self, merged: Mapping[str, Collection[str]], options: DeleteOptions) -> list[FileEntry]:
        """Return the delete files that no data file needs any more."""
        needed = {
            delete.path
            for planned in self.files
            for delete in planned.deletes
            if delete.path not in merged.get(planned.file.path, ())
        }
        return [
            delete
            for delete in self.deletes
            if delete.path not in needed
            and (options.convert_equality or delete.content == Content.POSITION_DELETES)
            and delete.format in READABLE
        ]


def _live_deletes(io: FileIO, snapshot: Snapshot) -> Iterator[FileEntry]:
    for manifest in manifests_of(io, snapshot):
        if manifest.content == ManifestContent.DELETES:
            yield from (entry for entry in entries_of(io, manifest, {PATH_ID}) if entry.is_live)


def _counted(result: DeleteRewrite, removed: Sequence[FileEntry], data_files: int) -> DeleteRewrite:
    equality = sum(delete.content == Content.EQUALITY_DELETES for delete in removed)
    return replace(
        result,
        files_before=len(removed),
        files_after=data_files,
        bytes_before=sum(delete.size for delete in removed),
        equality_files=equality,
        data_files=data_files,
    )


def _paths(files: Iterable[FileEntry]) -> frozenset[str]:
    return frozenset(file.path for file in files)


@dataclass(frozen=True)
class _MergedDeletes:
    """The deletes of a data file in one file.

    Args:
        file: The new position-delete file or deletion vector; None if the merged ones delete no row of the data file.
    """

    path: str
    merged: frozenset[str]
    file: WrittenFile | None

    def covers(self, current: Sequence[FileEntry]) -> bool:
        """Return True if the new file can take the place of the merged ones among a data file's delete files.

        A new vector also takes the place of one that others have added meanwhile, whose rows would come back.
        """
        vectors = _paths(delete for delete in current if delete.blob_offset is not None)
        return vectors <= self.merged <= _paths(current)


@dataclass(frozen=True)
class _Merge:
    """Executor work: merges the delete files of each of some data files. Each attempt writes files of its own.

    Args:
        until: The time, in seconds since 1970, from which on nothing is written any more; None = no limit.
    """

    format: TableFormat
    reader: RowReader
    number: int
    tasks: tuple[FileTask, ...]
    until: float | None = None

    def __call__(self) -> WriteResult:
        """Return a `_MergedDeletes` for each data file as the committables; none after the time limit."""
        found = list[tuple[FileTask, _Numbers]]()
        for task in self.tasks:
            if self.until is not None and time.time() >= self.until:
                break
            found.append((task, self._positions(task)))
        deleted = [(to_data_file(task.file), positions) for task, positions in found if len(positions)]
        written = write_deletes(self.format, deleted)
        try:
            reach("in-delete-merge", self.number)
        except BaseException:
            delete_new_files(self.format.io, {deletes.path for deletes in written})
            raise
        files = {file.file_path: deletes for (file, _), deletes in zip(deleted, written, strict=True)}
        return WriteResult(
            files=len(found),
            committables=tuple(
                _MergedDeletes(task.file.path, _paths(task.deletes), files.get(task.file.path)) for task, _ in found
            ),
        )

    def _positions(self, task: FileTask) -> _Numbers:
        """Return the positions of the deleted rows, in ascending order."""
        if any(delete.content == Content.EQUALITY_DELETES for delete in task.deletes):
            return np.flatnonzero(self.reader.deleted(self.format.io, task))
        rows = range(task.file.rows)
        return np.flatnonzero(deleted_by_position(self.format.io, task.file.path, task.deletes, rows))


@dataclass(frozen=True)
class _StagedDeletes(Staged):
    """An attempt to commit: its snapshot, what was merged, and the delete files that go."""

    snapshot_id: int
    merged: Sequence[_MergedDeletes]
    removed: Sequence[FileEntry]


class _DeleteReplacement(FileRewrite[_StagedDeletes, _MergedDeletes]):
    """Merges the delete files of some data files, and commits that."""

    action = "rewriting deletes"
    maintenance = "deletes"

    def __init__(self, opened: Opened, options: DeleteOptions) -> None:
        super().__init__(opened, format_of(opened.table, opened.ref), "deletes", options.run)
        self._options = options

    def rewrite(self, chosen: Sequence[PlannedFile]) -> DeleteRewrite:
        self._run_tasks(self._tasks(chosen))
        reach("after-delete-merge", 0)
        commit = commit_to(self._ref, self)
        reach("after-delete-commit", 0)
        landed = commit.staged
        merged, removed = (landed.merged, landed.removed) if landed else ((), ())
        files = [deletes.file for deletes in merged if deletes.file]
        self._delete_unused(commit.table, files)
        return replace(
            _counted(DeleteRewrite(self._ref.name), removed, len(merged)),
            files_after=len(files),
            bytes_after=sum(file.data_file.file_size_in_bytes for file in files),
            rows=sum(file.data_file.record_count for file in files),
            dropped=len(self._results) - len(merged),
            left=len(chosen) - len(self._results),
            snapshot_id=landed.snapshot_id if landed else None,
        )

    def _tasks(self, chosen: Sequence[PlannedFile]) -> list[_Merge]:
        files, until = [self._file(planned) for planned in chosen], deadline(self._options.max_time)
        reader = RowReader.of(self._opened.table.metadata)
        return [
            _Merge(self._format, reader, number, tuple(files[start : start + _FILES_OF_A_TASK]), until)
            for number, start in enumerate(range(0, len(files), _FILES_OF_A_TASK))
        ]

    def _file(self, planned: PlannedFile) -> FileTask:
        merged = _merged(planned, self._options)
        # A new vector takes the place of the one before it.
        deletes = (delete for delete in planned.deletes if delete in merged or delete.blob_offset is not None)
        return file_task(PlannedFile(planned.file, tuple(deletes)), self._opened.table.metadata)

    def _written(self) -> set[str]:
        return {deletes.file.path for deletes in self._results if deletes.file}

    def stage(self, table: Table) -> _StagedDeletes | None:
        head = head_of(table, self._ref.branch)
        if head is None:
            return None
        state = _State.of(table, head)
        current = {planned.file.path: planned.deletes for planned in state.files}
        # Others may have removed the data file, or merged its deletes.
        merged = [deletes for deletes in self._results if deletes.covers(current.get(deletes.path, ()))]
        removed = state.without({deletes.path: deletes.merged for deletes in merged}, self._options)
        if not removed:
            return None
        files = SnapshotFiles(
            deletes=[deletes.file for deletes in merged if deletes.file],
            removed_deletes=[delete.path for delete in removed],
        )
        transaction, snapshot_id = self._staged(table, head, files, rewritten_at=head.sequence_number or 0)
        reach("before-delete-commit", 0)
        return _StagedDeletes(transaction, snapshot_id, merged, removed)

"""Rewrites delete files: merges those of each data file, drops those without effect, converts equality deletes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from volley.contracts.epoch import WriteResult
from volley.errors import ConfigError
from volley.iceberg.commit.loop import Stage, Staged, commit_to, new_snapshot_id, write_manifests
from volley.iceberg.commit.marks import maintenance_summary
from volley.iceberg.layout.specs import partitioning_of
from volley.iceberg.maintain.options import DeleteOptions
from volley.iceberg.maintain.tasks import delete_files, delete_lost, delete_unused, format_of, run_tasks
from volley.iceberg.maintain.values import DeleteRewrite
from volley.iceberg.read.delete_files import deleted_by_position
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, entries_of, manifests_of, to_data_file
from volley.iceberg.read.history import check_branch, head_of, snapshot_of_ref
from volley.iceberg.read.planning import only_file, plan
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.read.scope import predicate_of
from volley.iceberg.schema.types import PATH_ID
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef
from volley.iceberg.write.data_files import write_position_deletes
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.task.failpoints import reach

__all__ = ["DeleteMerge", "MergedDeletes", "rewrite_deletes"]

# Data files that one task handles: enough that a task's own cost does not count.
_FILES_OF_A_TASK = 64


def rewrite_deletes(ref: TableRef, options: DeleteOptions) -> DeleteRewrite:
    """Merge the delete files of each data file into one, in one commit.

    Raises:
        ConfigError: If the table has deletion vectors, its branch is a tag, or the filter does not fit it.
        CommitConflictError: If other writers changed the table during each attempt: nothing is changed then.
        CommitStateUnknownError: If the commit may or may not have landed: no file was deleted.
        VolleyError: If a file can't be read or written.
    """
    began, config = time.monotonic(), IcebergSourceConfig(ref).with_partition_filter(options.where)
    table = ref.load()
    _check_able(table)
    check_branch(table.metadata, ref.name, ref.branch)
    is_empty = ref.branch == MAIN_BRANCH and table.metadata.current_snapshot_id is None
    head = None if is_empty else snapshot_of_ref(table.metadata, ref.branch, ref.name)
    if head is None:
        return DeleteRewrite(ref.name, dry_run=options.dry_run, seconds=time.monotonic() - began)
    state = _State.of(table, head)
    chosen = [each for each in state.files if _is_due(each, options)]
    if (predicate := predicate_of(config, table.schema())) is not None:
        row_filter = pruning(predicate, table.schema())
        within = {each.file.path for each in plan(table.io, table.metadata, head, row_filter).files}
        chosen = [each for each in chosen if each.file.path in within]
    taken = _with_sharers(_within(chosen, options), state.files, options)
    left = len({each.file.path for each in chosen} - {each.file.path for each in taken})
    if options.dry_run:
        done = state.without(
            {each.file.path: frozenset(delete.path for delete in _merged(each, options)) for each in taken}, options
        )
        result = _counted(DeleteRewrite(ref.name, dry_run=True), done, len(taken))
    else:
        result = _Rewrite(ref, table, options).rewrite(taken)
    return replace(result, left=result.left + left, seconds=time.monotonic() - began)


def _check_able(table: Table) -> None:
    if table.format_version > 2:
        raise ConfigError(
            f"table {'.'.join(table.name())} has format version {table.format_version}: its deletes are deletion "
            "vectors, one for each data file already",
            hint="nothing is to be merged; compact the data files by an engine that keeps row ids",
        )
    # Raises for a transform that is not known here.
    partitioning_of(table)


def _is_due(planned: PlannedFile, options: DeleteOptions) -> bool:
    """Return True unless a data file's only delete file is of its own."""
    deletes = _merged(planned, options)
    if len(deletes) != 1:
        return bool(deletes)
    (delete,) = deletes
    return delete.content == Content.EQUALITY_DELETES or only_file(delete) is None


def _merged(planned: PlannedFile, options: DeleteOptions) -> list[FileEntry]:
    """Return the delete files of a data file that are merged."""
    return [
        delete
        for delete in planned.deletes
        if delete.format == "PARQUET" and (options.convert_equality or delete.content == Content.POSITION_DELETES)
    ]


def _within(chosen: Sequence[PlannedFile], options: DeleteOptions) -> list[PlannedFile]:
    """Return as many as the limit of bytes allows; the first one is always taken, so that each run gets ahead."""
    taken: list[PlannedFile] = []
    total, read = 0, set[str]()
    for planned in chosen:
        deletes = _merged(planned, options)
        total += sum(delete.size for delete in deletes if delete.path not in read)
        if any(delete.content == Content.EQUALITY_DELETES for delete in deletes):
            total += planned.file.size
        if taken and options.max_bytes is not None and total > options.max_bytes:
            break
        read.update(delete.path for delete in deletes)
        taken.append(planned)
    return taken


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
        """Return the delete files that no data file needs any more.

        Args:
            merged: The locations of the delete files that were merged, by the location of the data file.
            options: Equality deletes stay unless they are converted.
        """
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
            and delete.format == "PARQUET"
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


@dataclass(frozen=True)
class _Attempt(Staged):
    """An attempt to commit: its snapshot, what was merged, and the delete files that go."""

    snapshot_id: int
    merged: Sequence[MergedDeletes]
    removed: Sequence[FileEntry]


class _Rewrite(Stage[_Attempt]):
    """Merges the delete files of some data files, and commits that."""

    action = "rewriting deletes"

    def __init__(self, ref: TableRef, table: Table, options: DeleteOptions) -> None:
        self._ref = ref
        self._table = table
        self._options = options
        self._format = replace(format_of(table, self._ref), file_prefix=f"deletes-{uuid.uuid4()}-")
        self._merged: list[MergedDeletes] = []

    def rewrite(self, chosen: Sequence[PlannedFile]) -> DeleteRewrite:
        try:
            self._merge(chosen)
        except BaseException:
            self.discard()
            raise
        reach("after-delete-merge", 0)
        commit = commit_to(self._ref, self)
        reach("after-delete-commit", 0)
        landed = commit.staged
        merged, removed = (landed.merged, landed.removed) if landed else ((), ())
        files = [each.file for each in merged if each.file]
        delete_unused(commit.table, self._ref.branch, self._written() - {file.path for file in files})
        return replace(
            _counted(DeleteRewrite(self._ref.name), removed, len(merged)),
            files_after=len(files),
            bytes_after=sum(file.data_file.file_size_in_bytes for file in files),
            rows=sum(file.data_file.record_count for file in files),
            dropped=len(self._merged) - len(merged),
            left=len(chosen) - len(self._merged),
            snapshot_id=landed.snapshot_id if landed else None,
        )

    def discard(self) -> None:
        delete_files(self._table.io, self._written())

    def _merge(self, chosen: Sequence[PlannedFile]) -> None:
        tasks = [self._task(planned) for planned in chosen]
        reader = RowReader.of(self._table.metadata)
        limit = self._options.max_time
        until = None if limit is None else time.time() + float(limit)  # type: ignore[arg-type]
        work = [
            DeleteMerge(self._format, reader, number, tuple(tasks[start : start + _FILES_OF_A_TASK]), until)
            for number, start in enumerate(range(0, len(tasks), _FILES_OF_A_TASK))
        ]
        run_tasks(work, self._options.run, self._merged, self._delete_lost)

    def _task(self, planned: PlannedFile) -> FileTask:
        deletes = tuple(_merged(planned, self._options))
        return file_task(PlannedFile(planned.file, deletes), self._table.metadata)

    def _delete_lost(self) -> None:
        delete_lost(self._table, self._format.file_prefix, self._written())

    def _written(self) -> set[str]:
        return {each.file.path for each in self._merged if each.file}

    def stage(self, table: Table) -> _Attempt | None:
        head = head_of(table, self._ref.branch)
        if head is None:
            return None
        state = _State.of(table, head)
        current = {planned.file.path: {delete.path for delete in planned.deletes} for planned in state.files}
        # Others may have removed the data file, or merged its deletes.
        merged = [each for each in self._merged if each.merged <= current.get(each.path, set())]
        removed = state.without({each.path: each.merged for each in merged}, self._options)
        if not removed:
            return None
        snapshot_id = new_snapshot_id()
        transaction = table.transaction()
        paths = [delete.path for delete in removed]
        with storage_errors(table.location()):
            write_manifests(
                transaction,
                SnapshotFiles(deletes=[each.file for each in merged if each.file], removed_deletes=paths),
                snapshot_id,
                maintenance_summary("deletes", table.metadata, head),
                self._ref.branch,
                rewritten_at=head.sequence_number or 0,
            )
        reach("before-delete-commit", 0)
        return _Attempt(transaction, snapshot_id, merged, removed)


@dataclass(frozen=True)
class MergedDeletes:
    """The deletes of a data file in one file.

    Args:
        path: The data file's location.
        merged: The locations of the delete files that were merged.
        file: The new position-delete file; None if the merged ones delete no row of the data file.
    """

    path: str
    merged: frozenset[str]
    file: WrittenFile | None


@dataclass(frozen=True)
class DeleteMerge:
    """Executor work: merges the delete files of each of some data files. Each attempt writes files of its own.

    Args:
        format: The format of the new files.
        reader: Reads the columns that equality deletes compare.
        number: The task's number.
        tasks: The data files, each with the delete files to merge.
        until: The time, in seconds since 1970, from which on nothing is written any more; None = no limit.
    """

    format: TableFormat
    reader: RowReader
    number: int
    tasks: tuple[FileTask, ...]
    until: float | None = None

    def __call__(self) -> WriteResult:
        """Return a `MergedDeletes` for each data file as the committables; none after the time limit."""
        done: list[MergedDeletes] = []
        try:
            for task in self.tasks:
                if self.until is not None and time.time() >= self.until:
                    break
                done.append(self._merged(task))
            reach("in-delete-merge", self.number)
        except BaseException:
            delete_files(self.format.io, (each.file.path for each in done if each.file))
            raise
        return WriteResult(files=len(done), committables=tuple(done))

    def _merged(self, task: FileTask) -> MergedDeletes:
        positions = self._positions(task)
        merged = frozenset(delete.path for delete in task.deletes)
        if not len(positions):
            return MergedDeletes(task.file.path, merged, None)
        return MergedDeletes(
            task.file.path, merged, write_position_deletes(self.format, to_data_file(task.file), positions)
        )

    def _positions(self, task: FileTask) -> np.ndarray[Any, Any]:
        """Return the positions of the deleted rows, in ascending order."""
        if any(delete.content == Content.EQUALITY_DELETES for delete in task.deletes):
            return np.flatnonzero(self.reader.deleted(self.format.io, task))
        rows = range(task.file.rows)
        return np.flatnonzero(deleted_by_position(self.format.io, task.file.path, task.deletes, rows))

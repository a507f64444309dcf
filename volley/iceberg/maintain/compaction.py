"""Compacts a table: writes small data files, and those with deleted rows, anew as few large ones."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from volley.iceberg.commit.loop import Commit, Staged, commit_to
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.maintain.choice import ChosenFiles, Group, choose
from volley.iceberg.maintain.options import CompactionOptions, Runner
from volley.iceberg.maintain.rewrites import FileRewrite, Opened, deadline, format_of
from volley.iceberg.maintain.rewriting import Rewrite, Rewritten, RowOrdering, ordering_of, read_order
from volley.iceberg.maintain.told import told
from volley.iceberg.maintain.values import Compaction
from volley.iceberg.read.delete_files import deleted_by_position
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, entries_of, manifests_of, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import unpartitioned_specs
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.table import TableRef
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.task.failpoints import reach

__all__ = ["compact"]


@told("compaction", lambda done: bool(done.snapshots))
def compact(ref: TableRef, options: CompactionOptions) -> Compaction:
    """Write the chosen files of a table anew, and replace them."""
    began = time.monotonic()
    opened = Opened.of(ref, options.where)
    table, head = opened.table, opened.head
    ordering = ordering_of(table, options)
    format = _format(table, ref, options, ordering)
    choice = choose(table.io, table.metadata, opened.files, options, format.target_bytes)
    if head is None or not choice.groups or options.dry_run:
        planned = _planned(ref, choice, format.target_bytes)
        return replace(planned, dry_run=options.dry_run, seconds=time.monotonic() - began)
    until = deadline(options.max_time)
    done = Compaction(ref.name, skipped=choice.skipped, left=choice.left)
    for groups in _portions(choice.groups, options.max_commits):
        replacement = _Replacement(opened, format, options.run, ordering, groups, until, number=len(done.snapshots))
        done = _sum(done, replacement.replace_files())
    return replace(done, seconds=time.monotonic() - began)


def _portions(groups: Sequence[Group], most: int) -> list[Sequence[Group]]:
    """Return the groups of each commit."""
    count = min(most, len(groups))
    return [groups[start:end] for start, end in pairwise(len(groups) * number // count for number in range(count + 1))]


def _sum(first: Compaction, second: Compaction) -> Compaction:
    names = ("files_before", "files_after", "bytes_before", "bytes_after", "rows", "delete_files_removed")
    both = {
        name: getattr(first, name) + getattr(second, name)
        for name in (*names, "rows_deleted_meanwhile", "dropped", "left", "snapshots")
    }
    return replace(first, **both)


def _format(table: Table, ref: TableRef, options: CompactionOptions, ordering: RowOrdering) -> TableFormat:
    """Return the format of the new files."""
    format = format_of(table, ref)
    size = (
        options.target_size
        or number_in(table.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
        or format.target_bytes
    )
    return replace(format, order=ordering.of_files, target_bytes=size, keeps_row_ids=format.has_row_ids)


def _planned(ref: TableRef, choice: ChosenFiles, target_bytes: int) -> Compaction:
    """Return what replacing all groups would do, as far as it is known before."""
    sizes = [sum(planned.file.size for planned in group) for group in choice.groups]
    return Compaction(
        ref.name,
        files_before=sum(map(len, choice.groups)),
        files_after=sum(-(-size // target_bytes) for size in sizes),
        bytes_before=sum(sizes),
        bytes_after=sum(sizes),
        rows=sum(planned.file.rows for group in choice.groups for planned in group),
        skipped=choice.skipped,
        left=choice.left,
    )


@dataclass(frozen=True)
class _StagedReplacement(Staged):
    """An attempt to commit: the groups it replaces, and the new delete files for rows that were deleted meanwhile."""

    snapshot_id: int
    groups: Sequence[Rewritten]
    deletes: Sequence[WrittenFile]


class _Replacement(FileRewrite[_StagedReplacement, Rewritten]):
    """Replaces some groups of files in one commit."""

    action = maintenance = "compaction"

    def __init__(
        self,
        opened: Opened,
        format: TableFormat,
        run: Runner | None,
        ordering: RowOrdering,
        groups: Sequence[Group],
        until: float | None,
        number: int,
    ) -> None:
        super().__init__(opened, format, "compact", run)
        assert opened.head is not None
        self._ordering = ordering
        self._groups = groups
        self._until = until
        self._number = number
        # Of the snapshot that is read: later deletes still have to be applied to the new files.
        self._read_at = opened.head.sequence_number or 0
        self._later = _LaterDeletes(opened.table.metadata, self._io, self._format, self._read_at)

    def replace_files(self) -> Compaction:
        self._run_tasks([self._task(number, group) for number, group in enumerate(self._groups)])
        reach("after-rewrite", self._number)
        if not self._results:
            return self._finish(Commit(self._opened.table, None))
        try:
            commit = commit_to(self._ref, self)
        finally:
            delete_new_files(self._io, self._temporary())
        reach("after-replacement", self._number)
        return self._finish(commit)

    def _task(self, number: int, group: Group) -> Rewrite:
        metadata, file = self._opened.table.metadata, group[0].file
        return Rewrite(
            self._format,
            RowReader.of(metadata, self._format.written_schema, variants_as_stored=True),
            number,
            tuple(file_task(planned, metadata) for planned in group),
            file.partition if file.spec_id == metadata.default_spec_id else None,
            self._ordering,
            self._until,
        )

    def stage(self, table: Table) -> _StagedReplacement | None:
        check_layout(table, {self._format.layout.fingerprint})
        head = head_of(table, self._ref.branch)
        if head is None:
            return None
        current = {planned.file.path: planned for planned in self._opened.files_of(table, head)}
        groups: list[Rewritten] = []
        deletes: list[WrittenFile] = []
        for done in self._results:
            places = self._later.places(table, head, self._groups[done.number], done, current)
            if places is not None:
                groups.append(done)
                deletes += self._later.write(done, places)
        if not groups:
            return None
        removed = [to_data_file(current[source.path].file) for source in self._sources(groups)]
        files = SnapshotFiles([file for group in groups for file in group.files], deletes, removed)
        transaction, snapshot_id = self._staged(table, head, files, rewritten_at=self._read_at)
        reach("before-replacement", self._number)
        return _StagedReplacement(transaction, snapshot_id, groups, deletes)

    def _sources(self, groups: Iterable[Rewritten]) -> list[FileEntry]:
        return [planned.file for done in groups for planned in self._groups[done.number]]

    def _finish(self, commit: Commit[_StagedReplacement]) -> Compaction:
        """Delete the files that are not in the table, and return what was done."""
        landed, metadata = commit.staged, commit.table.metadata
        groups, deletes = (landed.groups, landed.deletes) if landed else ((), ())
        files = [file for group in groups for file in group.files]
        self._delete_unused(commit.table, (*files, *deletes))
        sources = self._sources(groups)
        snapshot = metadata.snapshot_by_id(landed.snapshot_id) if landed else None
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        rewritten = {done.number for done in self._results}
        return Compaction(
            self._ref.name,
            files_before=len(sources),
            files_after=len(files),
            bytes_before=sum(source.size for source in sources),
            bytes_after=sum(file.data_file.file_size_in_bytes for file in files),
            rows=sum(file.data_file.record_count for file in files),
            delete_files_removed=int(summary.get("removed-delete-files", 0)),
            rows_deleted_meanwhile=sum(file.data_file.record_count for file in deletes),
            dropped=len(self._results) - len(groups),
            left=sum(len(group) for number, group in enumerate(self._groups) if number not in rewritten),
            snapshots=(snapshot.snapshot_id,) if snapshot else (),
        )

    def _written(self) -> set[str]:
        rewritten = {file.path for done in self._results for file in done.files}
        return rewritten | {file.path for file in self._later.written}

    def _temporary(self) -> set[str]:
        return {done.order for done in self._results if done.order}


_Positions = np.ndarray[Any, Any]


class _LaterDeletes:
    """The deletes that others commit between the start of a compaction and its own commit."""

    def __init__(self, metadata: TableMetadata, io: FileIO, format: TableFormat, sequence_number: int) -> None:
        self._metadata = metadata
        self._io = io
        self._format = format
        self._sequence_number = sequence_number
        self._reader = RowReader.of(metadata)
        self.written: list[WrittenFile] = []

    def places(
        self, table: Table, head: Snapshot, group: Group, done: Rewritten, current: Mapping[str, PlannedFile]
    ) -> _Positions | None:
        """Return the places, among all new rows of a group, of rows that were deleted by position since the start.

        None = the group can't be replaced: a file is gone, its rows have got ids since the start, rows that were
        deleted at the start have come back, or a delete by key would apply to other rows in the partitions of the new
        files.
        """
        if group[0].file.spec_id != self._metadata.default_spec_id and self._has_keys_of_a_partition(table, head):
            return None
        numbers = [np.empty(0, np.int64)]
        for source, start in zip(group, done.starts, strict=False):
            now = current.get(source.file.path)
            if now is None or now.file.first_row_id != source.file.first_row_id or self._has_other_keys(source, now):
                return None
            before, after = self._positions(source), self._positions(now)
            if len(np.setdiff1d(before, after)):
                return None
            if len(after) > len(before):
                kept = ~self._reader.deleted(self._io, file_task(source, self._metadata))
                numbers.append(start + np.cumsum(kept)[after[kept[after]]] - 1)
        deleted = np.concatenate(numbers)
        if done.order is None or not len(deleted):
            return deleted
        return np.flatnonzero(np.isin(read_order(self._io, done.order), deleted))

    def write(self, done: Rewritten, places: _Positions) -> list[WrittenFile]:
        """Write the deletes of rows at these places, for each new file of a group that has some."""
        deleted, first = list[tuple[DataFile, _Positions]](), 0
        for file in (written.data_file for written in done.files):
            positions = np.sort(places[(places >= first) & (places < first + file.record_count)]) - first
            first += file.record_count
            if len(positions):
                deleted.append((file, positions))
        deletes = write_deletes(self._format, deleted)
        self.written += deletes
        return [*deletes]

    def _has_other_keys(self, source: PlannedFile, now: PlannedFile) -> bool:
        """Return True if equality deletes are gone, or came with a sequence number of before the start."""
        before, after = _equality(source), _equality(now)
        new = [number for path, number in after.items() if path not in before]
        # The new files have the sequence number of the start: exactly the later ones apply to them.
        return bool(before.keys() - after.keys()) or min(new, default=math.inf) <= self._sequence_number

    def _has_keys_of_a_partition(self, table: Table, head: Snapshot) -> bool:
        """Return True if a later equality delete is of one partition: in other partitions it applies to other rows."""
        everywhere = unpartitioned_specs(table.metadata)
        return any(
            entry.is_live
            and entry.content == Content.EQUALITY_DELETES
            and entry.sequence_number > self._sequence_number
            and entry.spec_id not in everywhere
            for manifest in manifests_of(table.io, head)
            if manifest.content == ManifestContent.DELETES
            for entry in entries_of(table.io, manifest)
        )

    def _positions(self, planned: PlannedFile) -> _Positions:
        """Return the positions that delete files, other than by equality, delete in a file."""
        file = planned.file
        return np.flatnonzero(deleted_by_position(self._io, file.path, planned.deletes, range(file.rows)))


def _equality(planned: PlannedFile) -> dict[str, int]:
    """Return the sequence numbers of a file's equality-delete files, by path."""
    deletes = (delete for delete in planned.deletes if delete.content == Content.EQUALITY_DELETES)
    return {delete.path: delete.sequence_number for delete in deletes}

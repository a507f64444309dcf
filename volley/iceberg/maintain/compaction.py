"""Compacts a table: writes small data files, and those with deleted rows, anew as few large ones."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from volley.errors import ConfigError
from volley.iceberg.commit.loop import Commit, Stage, Staged, commit_to, new_snapshot_id, write_manifests
from volley.iceberg.commit.marks import maintenance_summary
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.layout.specs import partitioning_of
from volley.iceberg.maintain.choice import Choice, Group, choose
from volley.iceberg.maintain.options import CompactionOptions, Runner
from volley.iceberg.maintain.rewriting import Ordering, Rewrite, Rewritten, ordering_of, read_order
from volley.iceberg.maintain.tasks import delete_files, delete_lost, delete_unused, format_of, run_tasks
from volley.iceberg.maintain.values import Compaction
from volley.iceberg.read.delete_files import deleted_by_position
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, entries_of, manifests_of, to_data_file
from volley.iceberg.read.history import check_branch, head_of, snapshot_of_ref
from volley.iceberg.read.planning import plan, unpartitioned_specs
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.read.scope import predicate_of
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef
from volley.iceberg.write.data_files import write_position_deletes
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.task.failpoints import reach

__all__ = ["LaterDeletes", "compact"]


def compact(ref: TableRef, options: CompactionOptions) -> Compaction:
    """Write the chosen files of a table anew, and replace them.

    Raises:
        ConfigError: If the table can't be compacted here, the branch is a tag, or a filter or column does not fit.
        LayoutChangedError: If another writer changed the table's schema or partition spec meanwhile.
        CommitConflictError: If other writers changed the table during each attempt of a commit; earlier ones stand.
        CommitStateUnknownError: If a commit may or may not have landed: its files were not deleted.
        VolleyError: If a file can't be read or written.
    """
    began, config = time.monotonic(), IcebergSourceConfig(ref).with_partition_filter(options.where)
    table = ref.load()
    _check_able(table)
    check_branch(table.metadata, ref.name, ref.branch)
    ordering = ordering_of(table, options)
    format = _format(table, ref, options, ordering)
    head = _head(table.metadata, ref)
    predicate = predicate_of(config, table.schema())
    row_filter = pruning(predicate, table.schema())
    files = plan(table.io, table.metadata, head, row_filter).files if head else []
    choice = choose(table.io, table.metadata, files, options, format.target_bytes)
    if head is None or not choice.groups or options.dry_run:
        planned = _planned(ref, choice, format.target_bytes)
        return replace(planned, dry_run=options.dry_run, seconds=time.monotonic() - began)
    until = None if options.max_time is None else time.time() + float(options.max_time)  # type: ignore[arg-type]
    rewriting = _Rewriting(ref, table, format, ordering, row_filter, head.sequence_number or 0, options.run, until)
    done = Compaction(ref.name, skipped=choice.skipped, left=choice.left)
    for groups in _portions(choice.groups, options.max_commits):
        done = _sum(done, _Replacement(rewriting, groups, len(done.snapshots)).replace_files())
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


def _check_able(table: Table) -> None:
    if table.format_version > 2:
        raise ConfigError(
            f"table {'.'.join(table.name())} has format version {table.format_version}: its rows have ids, which a "
            "rewrite would lose",
            hint="compact tables of format version 1 or 2 here, this one by an engine that keeps row ids",
        )
    # Raises for a transform that is not known here.
    partitioning_of(table)


def _head(metadata: TableMetadata, ref: TableRef) -> Snapshot | None:
    is_empty = ref.branch == MAIN_BRANCH and metadata.current_snapshot_id is None
    return None if is_empty else snapshot_of_ref(metadata, ref.branch, ref.name)


def _format(table: Table, ref: TableRef, options: CompactionOptions, ordering: Ordering) -> TableFormat:
    """Return the format of the new files."""
    format = format_of(table, ref)
    size = (
        options.target_size
        or number_in(table.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
        or format.target_bytes
    )
    return replace(format, order=ordering.of_files, target_bytes=size)


def _planned(ref: TableRef, choice: Choice, target_bytes: int) -> Compaction:
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
class _Rewriting:
    """What all commits of a compaction have in common.

    Args:
        table: The table as it was at the start.
        sequence_number: Of the snapshot that is read: later deletes still have to be applied to the new files.
        run: Runs the tasks; None = in this process.
        until: The time, in seconds since 1970, from which on no group is rewritten any more; None = no limit.
    """

    ref: TableRef
    table: Table
    format: TableFormat
    ordering: Ordering
    row_filter: BooleanExpression
    sequence_number: int
    run: Runner | None
    until: float | None

    def task(self, format: TableFormat, number: int, group: Group) -> Rewrite:
        metadata, file = self.table.metadata, group[0].file
        return Rewrite(
            format,
            RowReader.of(metadata),
            number,
            tuple(file_task(planned, metadata) for planned in group),
            file.partition if file.spec_id == metadata.default_spec_id else None,
            self.ordering,
            self.until,
        )


@dataclass(frozen=True)
class _Attempt(Staged):
    """An attempt to commit: the groups it replaces, and the new delete files for rows that were deleted meanwhile."""

    snapshot_id: int
    groups: Sequence[Rewritten]
    deletes: Sequence[WrittenFile]


class _Replacement(Stage[_Attempt]):
    """Replaces some groups of files in one commit."""

    action = "compaction"

    def __init__(self, rewriting: _Rewriting, groups: Sequence[Group], number: int) -> None:
        self._rewriting = rewriting
        self._ref = rewriting.ref
        self._io = rewriting.table.io
        self._groups = groups
        self._number = number
        # The files of one commit have a name in common, by which those of lost attempts of tasks are found.
        self._format = replace(rewriting.format, file_prefix=f"compact-{uuid.uuid4()}-")
        self._later = LaterDeletes(rewriting.table.metadata, self._io, self._format, rewriting.sequence_number)
        self._rewritten: list[Rewritten] = []

    def replace_files(self) -> Compaction:
        try:
            self._rewrite()
        except BaseException:
            self.discard()
            raise
        reach("after-rewrite", self._number)
        if not self._rewritten:
            return self._finish(Commit(self._rewriting.table, None))
        try:
            commit = commit_to(self._ref, self)
        finally:
            delete_files(self._io, self._orders())
        reach("after-replacement", self._number)
        return self._finish(commit)

    def _rewrite(self) -> None:
        tasks = [self._rewriting.task(self._format, number, group) for number, group in enumerate(self._groups)]
        run_tasks(tasks, self._rewriting.run, self._rewritten, self._delete_lost)

    def _delete_lost(self) -> None:
        delete_lost(self._rewriting.table, self._format.file_prefix, self._written() | self._orders())

    def discard(self) -> None:
        delete_files(self._io, self._written() | self._orders())

    def stage(self, table: Table) -> _Attempt | None:
        check_layout(table, {self._format.layout.fingerprint})
        head = head_of(table, self._ref.branch)
        if head is None:
            return None
        current = {
            each.file.path: each for each in plan(table.io, table.metadata, head, self._rewriting.row_filter).files
        }
        groups: list[Rewritten] = []
        deletes: list[WrittenFile] = []
        for done in self._rewritten:
            places = self._later.places(table, head, self._groups[done.number], done, current)
            if places is not None:
                groups.append(done)
                deletes += self._later.write(done, places)
        if not groups:
            return None
        snapshot_id = new_snapshot_id()
        transaction = table.transaction()
        removed = [to_data_file(current[source.path].file) for source in self._sources(groups)]
        with storage_errors(table.location()):
            write_manifests(
                transaction,
                SnapshotFiles([file for group in groups for file in group.files], deletes, removed),
                snapshot_id,
                maintenance_summary("compaction", table.metadata, head),
                self._ref.branch,
                rewritten_at=self._rewriting.sequence_number,
            )
        reach("before-replacement", self._number)
        return _Attempt(transaction, snapshot_id, groups, deletes)

    def _sources(self, groups: Iterable[Rewritten]) -> list[FileEntry]:
        return [planned.file for done in groups for planned in self._groups[done.number]]

    def _finish(self, commit: Commit[_Attempt]) -> Compaction:
        """Delete the files that are not in the table, and return what was done."""
        landed, metadata = commit.staged, commit.table.metadata
        groups, deletes = (landed.groups, landed.deletes) if landed else ((), ())
        files = [file for group in groups for file in group.files]
        used = {file.path for file in (*files, *deletes)}
        delete_unused(commit.table, self._ref.branch, self._written() - used)
        sources = self._sources(groups)
        snapshot = metadata.snapshot_by_id(landed.snapshot_id) if landed else None
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        rewritten = {done.number for done in self._rewritten}
        return Compaction(
            self._ref.name,
            files_before=len(sources),
            files_after=len(files),
            bytes_before=sum(source.size for source in sources),
            bytes_after=sum(file.data_file.file_size_in_bytes for file in files),
            rows=sum(file.data_file.record_count for file in files),
            delete_files_removed=int(summary.get("removed-delete-files", 0)),
            rows_deleted_meanwhile=sum(file.data_file.record_count for file in deletes),
            dropped=len(self._rewritten) - len(groups),
            left=sum(len(group) for number, group in enumerate(self._groups) if number not in rewritten),
            snapshots=(snapshot.snapshot_id,) if snapshot else (),
        )

    def _written(self) -> set[str]:
        """Return the locations of the files that were written for the table."""
        rewritten = {file.path for done in self._rewritten for file in done.files}
        return rewritten | {file.path for file in self._later.written}

    def _orders(self) -> set[str]:
        return {done.order for done in self._rewritten if done.order}


_Positions = np.ndarray[Any, Any]


class LaterDeletes:
    """The deletes that others commit between the start of a compaction and its own commit.

    Args:
        metadata: The table's metadata at the start.
        format: The format of the new files.
        sequence_number: Of the snapshot at the start.
    """

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

        None = the group can't be replaced: a file is gone, rows that were deleted at the start have come back, or a
        delete by key would apply to other rows in the partitions of the new files.

        Args:
            table: The table now.
            head: Its snapshot.
            group: The files at the start.
            done: What was written in their place.
            current: The files now, by path.
        """
        if group[0].file.spec_id != self._metadata.default_spec_id and self._has_keys_of_a_partition(table, head):
            return None
        numbers = [np.empty(0, np.int64)]
        for source, start in zip(group, done.starts, strict=False):
            now = current.get(source.file.path)
            if now is None or self._has_other_keys(source, now):
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
        """Write a position-delete file for each new file of a group that has rows at these places."""
        deletes, first = [], 0
        for file in (written.data_file for written in done.files):
            positions = np.sort(places[(places >= first) & (places < first + file.record_count)]) - first
            first += file.record_count
            if len(positions):
                deletes.append(write_position_deletes(self._format, file, positions))
                self.written.append(deletes[-1])
        return deletes

    def _has_other_keys(self, source: PlannedFile, now: PlannedFile) -> bool:
        """Return True if equality deletes are gone, or came with a sequence number of before the start."""
        before, after = _equality(source), _equality(now)
        new = [number for path, number in after.items() if path not in before]
        # The new files have the sequence number of the start: exactly the later ones apply to them.
        return bool(before.keys() - after.keys()) or min(new, default=math.inf) <= self._sequence_number

    def _has_keys_of_a_partition(self, table: Table, head: Snapshot) -> bool:
        """Return True if a later equality delete is of one partition: in other partitions it applies to other rows."""
        everywhere = unpartitioned_specs(table.metadata)
        manifests = (each for each in manifests_of(table.io, head) if each.content == ManifestContent.DELETES)
        return any(
            entry.is_live
            and entry.content == Content.EQUALITY_DELETES
            and entry.sequence_number > self._sequence_number
            and entry.spec_id not in everywhere
            for manifest in manifests
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

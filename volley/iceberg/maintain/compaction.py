"""Compacts a table: writes small data files, and those with deleted rows, anew as few large ones."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from volley.epoch import Epoch
from volley.errors import CommitConflictError, CommitStateUnknownError, ConfigError
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.catalogs.retry import retry_reads
from volley.iceberg.commit.metadata import MetadataChange, Staged, commit_change
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.layout.specs import partitioning_of
from volley.iceberg.maintain.chosen_files import Choice, Rule, choose
from volley.iceberg.maintain.values import Compaction
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.read.entries import Content, PlannedFile
from volley.iceberg.read.heads import head_of
from volley.iceberg.read.lookup import snapshot_of_ref
from volley.iceberg.read.planning import plan
from volley.iceberg.read.position_deletes import deleted_positions
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.read.scope import predicate_of
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef
from volley.iceberg.write.data_files import RollingFiles
from volley.iceberg.write.position_deletes import write_position_deletes
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import WrittenFile
from volley.task.failpoints import reach

__all__ = ["compact"]

_Positions = np.ndarray[Any, Any]


def compact(
    config: IcebergSourceConfig, rule: Callable[[int], Rule], target_bytes: int | None, dry_run: bool
) -> Compaction:
    """Write the chosen files of a table anew, and replace them in one commit.

    Args:
        config: The table and its filter.
        rule: Returns what is to be rewritten for a size of the new files.
        target_bytes: That size; None = the table's.
        dry_run: True to return what would be done.

    Raises:
        ConfigError: If the table can't be compacted here, or the filter does not fit it.
        LayoutChangedError: If another writer changed the table's schema or partition spec meanwhile.
        CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
        CommitStateUnknownError: If the commit may or may not have landed: no file was deleted.
        VolleyError: If a file can't be read or written.
    """
    began, ref = time.monotonic(), config.ref
    table = retry_reads(ref.load)
    _check_able(table)
    format = _format(table, ref, target_bytes)
    head = _head(table.metadata, ref)
    predicate = predicate_of(config, table.schema())
    row_filter = AlwaysTrue() if predicate is None else pruning(predicate, table.schema())
    files = plan(table.io, table.metadata, head, row_filter).files if head else []
    choice = choose(table.io, files, table.spec().spec_id, rule(format.target_bytes))
    if head is None or not choice.groups or dry_run:
        return replace(_planned(ref, choice, format.target_bytes), dry_run=dry_run, seconds=time.monotonic() - began)
    run = _Run(ref, table, format, row_filter, head.sequence_number or 0)
    done = run.replace_files(choice)
    return replace(done, skipped=choice.skipped, seconds=time.monotonic() - began)


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


def _format(table: Table, ref: TableRef, target_bytes: int | None) -> TableFormat:
    """Return the format of the new files: the table's settings, or else a sink's defaults; rows keep their order."""
    properties = table.properties
    assert isinstance(ref.catalog, CatalogConfig)
    config = IcebergSinkConfig(namespace=ref.identifier[:-1], table=ref.table, storage=ref.storage, catalog=ref.catalog)
    codec = properties.get(TableProperties.PARQUET_COMPRESSION, config.compression).lower()
    level = _number(properties, TableProperties.PARQUET_COMPRESSION_LEVEL)
    config = config.with_compression("none" if codec == "uncompressed" else codec, level)  # type: ignore[arg-type]
    format = TableFormat.for_table(table, config, Epoch(str(uuid.uuid4()), 0))
    size = target_bytes or _number(properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES) or format.target_bytes
    return replace(format, order=UNSORTED_SORT_ORDER, target_bytes=size, file_prefix=f"compact-{uuid.uuid4()}-")


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None or (text.isdecimal() and int(text) > 0):
        return text if text is None else int(text)
    raise ConfigError(f"table property {name} is {text!r}", hint="a whole number above 0")


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
    )


@dataclass(frozen=True)
class _Rewritten:
    """A group of files and what was written in their place, in the same order of rows.

    Args:
        sources: The replaced files, with the delete files that were applied.
        starts: The number of rows that were kept of the files before each one, and of all.
        files: The new files.
    """

    sources: tuple[PlannedFile, ...]
    starts: tuple[int, ...]
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True)
class _Attempt:
    """An attempt to commit: the groups it replaces, and the new delete files for rows that were deleted meanwhile."""

    groups: Sequence[_Rewritten]
    deletes: Sequence[WrittenFile]


class _Run:
    """One compaction.

    Args:
        ref: The table.
        table: The table as it was at the start.
        format: The format of the new files.
        row_filter: The files that are compacted.
        sequence_number: Of the snapshot that is read: later deletes still have to be applied to the new files.
    """

    def __init__(
        self, ref: TableRef, table: Table, format: TableFormat, row_filter: BooleanExpression, sequence_number: int
    ) -> None:
        self._ref = ref
        self._table = table
        self._format = format
        self._row_filter = row_filter
        self._sequence_number = sequence_number
        self._reader = RowReader.of(table.metadata)
        self._groups: list[_Rewritten] = []
        self._deletes: list[WrittenFile] = []
        # By the id of its snapshot: one that the catalog did not answer, or refused, may have landed.
        self._attempts: dict[int, _Attempt] = {}

    def replace_files(self, choice: Choice) -> Compaction:
        try:
            for number, group in enumerate(choice.groups):
                self._groups.append(self._rewrite(number, group))
            reach("after-rewrite", 0)
            after = commit_change(self._ref, MetadataChange("compaction", self._stage, self._has_landed))
        except CommitStateUnknownError:
            raise
        except CommitConflictError:
            self._delete(self._written())
            raise
        except BaseException:
            # Once an attempt was made, only a conflict or a success tells that no other one can land.
            if not self._attempts:
                self._delete(self._written())
            raise
        reach("after-replacement", 0)
        return self._finish(after)

    def _rewrite(self, number: int, group: tuple[PlannedFile, ...]) -> _Rewritten:
        files = RollingFiles(self._format, f"{self._format.file_prefix}{number:05}")
        starts = [0]
        try:
            if self._format.spec.fields:
                files.turn_to(self._format.layout.partition(group[0].file.partition))
            for planned in group:
                rows = 0
                for batch in self._reader.read(self._table.io, file_task(planned, self._table.metadata)):
                    files.write(self._format.fitted(batch))
                    rows += batch.num_rows
                starts.append(starts[-1] + rows)
            files.finish()
        except BaseException:
            files.discard()
            raise
        return _Rewritten(group, tuple(starts), tuple(files.done))

    def _stage(self, table: Table) -> Staged | None:
        check_layout(table, {self._format.layout.fingerprint})
        head = head_of(table, self._ref.branch)
        files = plan(table.io, table.metadata, head, self._row_filter).files if head else []
        current = {planned.file.path: planned for planned in files}
        groups: list[_Rewritten] = []
        deletes: list[WrittenFile] = []
        for group in self._groups:
            deleted = self._deleted_since(table.io, group, current)
            if deleted is not None:
                groups.append(group)
                deletes += self._carried(group, deleted)
        if head is None or not groups:
            return None
        snapshot_id = uuid.uuid4().int >> 65
        transaction = table.transaction()
        with storage_errors(table.location()):
            add_snapshot(
                transaction,
                added=[file.data_file for group in groups for file in group.files],
                deletes=[file.data_file for file in deletes],
                removed=_live(table.io, head, {each.file.path for group in groups for each in group.sources}),
                snapshot_id=snapshot_id,
                summary={},
                branch=self._ref.branch,
                rewritten_at=self._sequence_number,
            )
        self._attempts[snapshot_id] = _Attempt(groups, deletes)
        reach("before-replacement", len(self._attempts) - 1)
        return Staged(transaction)

    def _deleted_since(self, io: FileIO, group: _Rewritten, current: Mapping[str, PlannedFile]) -> _Positions | None:
        """Return the places, among all new rows of a group, of rows that were deleted by position since the start.

        None = the group can't be replaced: a file is gone, or rows that were deleted at the start have come back.
        """
        places = [np.empty(0, np.int64)]
        for source, start in zip(group.sources, group.starts, strict=False):
            now = current.get(source.file.path)
            if now is None:
                return None
            equality_before, equality_now = _equality(source), _equality(now)
            new = [number for path, number in equality_now.items() if path not in equality_before]
            # The new files have the sequence number of the start: exactly the later ones apply to them.
            if equality_before.keys() - equality_now.keys() or min(new, default=math.inf) <= self._sequence_number:
                return None
            before, after = _positions(io, source), _positions(io, now)
            if len(np.setdiff1d(before, after)):
                return None
            if len(after) == len(before):
                continue
            kept = ~self._reader.deleted(io, file_task(source, self._table.metadata))
            places.append(start + np.cumsum(kept)[after[kept[after]]] - 1)
        return np.concatenate(places)

    def _carried(self, group: _Rewritten, places: _Positions) -> list[WrittenFile]:
        """Write a position-delete file for each new file of a group that has rows at these places."""
        locations = load_location_provider(self._format.location, self._format.table_properties)
        carried, first = [], 0
        for file in (written.data_file for written in group.files):
            positions = np.sort(places[(places >= first) & (places < first + file.record_count)]) - first
            first += file.record_count
            if len(positions):
                name = f"{self._format.file_prefix}{uuid.uuid4()}-deletes.parquet"
                path = locations.new_data_location(name)
                carried.append(write_position_deletes(self._format, path, file, positions))
                self._deletes.append(carried[-1])
        return carried

    def _has_landed(self, table: Table) -> bool:
        return any(table.metadata.snapshot_by_id(snapshot_id) for snapshot_id in self._attempts)

    def _finish(self, after: Table) -> Compaction:
        """Delete the files that are not in the table, and return what was done."""
        landed = [snapshot for id in self._attempts if (snapshot := after.metadata.snapshot_by_id(id))]
        groups = self._attempts[landed[0].snapshot_id].groups if landed else ()
        deletes = self._attempts[landed[0].snapshot_id].deletes if landed else ()
        used = {file.path for group in groups for file in group.files} | {file.path for file in deletes}
        left = self._written() - used
        head = head_of(after, self._ref.branch)
        if left and head:
            # A snapshot of an earlier attempt may have landed unseen, and have expired since.
            live = plan(after.io, after.metadata, head).files
            left -= {file.path for planned in live for file in (planned.file, *planned.deletes)}
        self._delete(left)
        sources = [source.file for group in groups for source in group.sources]
        files = [file.data_file for group in groups for file in group.files]
        summary = landed[0].summary.additional_properties if landed and landed[0].summary else {}
        return Compaction(
            self._ref.name,
            files_before=len(sources),
            files_after=len(files),
            bytes_before=sum(source.size for source in sources),
            bytes_after=sum(file.file_size_in_bytes for file in files),
            rows=sum(file.record_count for file in files),
            delete_files_removed=int(summary.get("removed-delete-files", 0)),
            rows_deleted_meanwhile=sum(file.data_file.record_count for file in deletes),
            dropped=len(self._groups) - len(groups),
            snapshots=tuple(snapshot.snapshot_id for snapshot in landed),
        )

    def _written(self) -> set[str]:
        return {file.path for group in self._groups for file in group.files} | {file.path for file in self._deletes}

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            # A file that stays is an orphan, which no snapshot refers to.
            with suppress(Exception):
                self._table.io.delete(path)


def _equality(planned: PlannedFile) -> dict[str, int]:
    """Return the sequence numbers of a file's equality-delete files, by path."""
    deletes = (delete for delete in planned.deletes if delete.content == Content.EQUALITY_DELETES)
    return {delete.path: delete.sequence_number for delete in deletes}


def _positions(io: FileIO, planned: PlannedFile) -> _Positions:
    """Return the positions that delete files, other than by equality, delete in a file."""
    deletes = (delete for delete in planned.deletes if delete.content == Content.POSITION_DELETES)
    found = [deleted_positions(io, planned.file.path, delete) for delete in deletes]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *found]))
    # A writer may have named positions that the file does not have.
    return positions[(positions >= 0) & (positions < planned.file.rows)]


def _live(io: FileIO, head: Snapshot, paths: set[str]) -> list[DataFile]:
    """Return a snapshot's live data files with these paths."""
    data = (manifest for manifest in head.manifests(io) if manifest.content == ManifestContent.DATA)
    entries = (entry for manifest in data for entry in manifest.fetch_manifest_entry(io))
    return [entry.data_file for entry in entries if entry.data_file.file_path in paths]

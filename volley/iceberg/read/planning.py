"""Plans the reading of a snapshot: the data files that may have rows of interest, and the delete files of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DateType
from pyiceberg.utils.concurrent import ExecutorFactory

from volley.errors import ExpressionError, near
from volley.iceberg.read.deletes import DeleteIndex, unpartitioned_specs
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, Status, entries_of, manifests_of
from volley.iceberg.read.pruning import (
    Predicate,
    always,
    file_predicate,
    manifest_predicate,
    partition_predicate,
    projected,
)
from volley.iceberg.schema.types import PATH_ID

__all__ = ["Plan", "plan"]

_ALL_ROWS = AlwaysTrue()
# Manifests that are read ahead: enough to hide the time of object stores, few enough for the memory.
_AHEAD = 8

# A plain number: comparing with an enumeration takes a third of the time of a cached plan.
_ADDED, _DELETED = int(Status.ADDED), int(Status.DELETED)

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Plan:
    """What is to be read of a snapshot, and what was left out.

    Args:
        files: The data files, each with the delete files that apply, in the order of the manifests.
    """

    files: list[PlannedFile]
    manifests: int = 0
    skipped_manifests: int = 0
    skipped_by_partition: int = 0
    skipped_by_statistics: int = 0


def plan(
    io: FileIO,
    metadata: TableMetadata,
    snapshot: Snapshot,
    row_filter: BooleanExpression = _ALL_ROWS,
    schema: Schema | None = None,
    added_only: bool = False,
    statistics: frozenset[int] = frozenset(),
) -> Plan:
    """Return the data files of a snapshot that may have rows that match a filter; the rows still have to be filtered.

    Args:
        schema: The schema whose names the filter uses; None = the table's current one.
        added_only: True: only the data files that the snapshot itself added, with the delete files that it added.
        statistics: The fields whose bounds and counts the data files keep.

    Raises:
        ExpressionError: If the filter does not fit the schema.
        StorageError: If a manifest can't be read.
    """
    added_by = snapshot.snapshot_id if added_only else None
    filters = _Filters(metadata, schema or metadata.schema(), row_filter, added_by, statistics)
    manifests = manifests_of(io, snapshot)
    if added_only:
        manifests = [manifest for manifest in manifests if manifest.added_snapshot_id == snapshot.snapshot_id]
    needed = _with_applying_deletes([manifest for manifest in manifests if filters.of(manifest).may_have(manifest)])
    skipped = set(manifests).difference(needed)
    parts = list(_in_turn(lambda manifest: filters.of(manifest).kept(io, manifest), needed))
    files = chain.from_iterable(part.files for part in parts)
    deletes = DeleteIndex(chain.from_iterable(part.deletes for part in parts), unpartitioned_specs(metadata))
    return Plan(
        [PlannedFile(file, deletes.of(file)) for file in files],
        len(needed),
        len(skipped),
        sum(part.skipped_by_partition for part in parts) + sum(map(_files_in, skipped)),
        sum(part.skipped_by_statistics for part in parts),
    )


def _with_applying_deletes(manifests: list[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests without those of deletes that are all older than the data."""
    oldest = min((manifest.min_sequence_number or 0 for manifest in manifests if _is_data(manifest)), default=None)
    if oldest is None:
        return []
    return [
        manifest for manifest in manifests if _is_data(manifest) or (manifest.sequence_number or 0) >= max(oldest, 0)
    ]


def _is_data(manifest: ManifestFile) -> bool:
    return manifest.content == ManifestContent.DATA


def _files_in(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0) if _is_data(manifest) else 0


def _in_turn(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield the results of threads in the order of the items, a few of which are worked on at the same time."""
    threads = ExecutorFactory.get_or_create()
    running: deque[Future[T]] = deque()
    for item in items:
        running.append(threads.submit(work, item))
        if len(running) > _AHEAD:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


@dataclass(frozen=True)
class _Kept:
    """What is left of a manifest."""

    files: list[FileEntry]
    deletes: list[FileEntry]
    skipped_by_partition: int
    skipped_by_statistics: int


@dataclass(frozen=True)
class _Filter:
    """A filter, for the manifests of one partition spec.

    Args:
        added_by: The snapshot that must have added the files; None = any.
    """

    manifest: Predicate[ManifestFile]
    partition: Predicate[tuple[Any, ...]]
    file: Predicate[FileEntry]
    statistics: frozenset[int]
    added_by: int | None
    kept_statistics: frozenset[int]

    def may_have(self, manifest: ManifestFile) -> bool:
        """Return True if the manifest may have live files with matching rows."""
        return (manifest.has_added_files() or manifest.has_existing_files()) and self.manifest(manifest)

    def _due(self, entries: list[FileEntry]) -> list[FileEntry]:
        if self.added_by is None:
            return [entry for entry in entries if entry.status != _DELETED]
        return [entry for entry in entries if entry.status == _ADDED and entry.snapshot_id == self.added_by]

    def kept(self, io: FileIO, manifest: ManifestFile) -> _Kept:
        """Return the files of a manifest that may have matching rows."""
        statistics = self.statistics | self.kept_statistics if _is_data(manifest) else {PATH_ID}
        live = self._due(entries_of(io, manifest, statistics))
        partition = self.partition
        matching = live if partition is always else [entry for entry in live if partition(entry.partition)]
        if not _is_data(manifest):
            return _Kept([], [entry for entry in matching if entry.content != Content.DATA], 0, 0)
        kept = [entry for entry in matching if entry.rows != 0 and self.file(entry)]
        if not self.kept_statistics:
            kept = [entry.without_statistics() for entry in kept]
        return _Kept(kept, [], len(live) - len(matching), len(matching) - len(kept))


class _Filters:
    """A filter, for the manifests of any partition spec of a table.

    Args:
        added_by: The snapshot that must have added the files; None = any.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        schema: Schema,
        row_filter: BooleanExpression,
        added_by: int | None,
        statistics: frozenset[int],
    ) -> None:
        self._schema, self._row_filter, self._added_by = schema, row_filter, added_by
        self._statistics = statistics
        self._specs, self._schemas = metadata.specs(), metadata.schemas
        self._by_spec: dict[int, _Filter] = {}
        try:
            self._fields = extract_field_ids(bind(schema, row_filter, case_sensitive=True))
            self._file = file_predicate(schema, row_filter)
        except (ValueError, TypeError) as error:
            raise ExpressionError(
                f"the filter {row_filter} does not fit the table: {error}", hint=near("", schema.column_names)
            ) from error

    def of(self, manifest: ManifestFile) -> _Filter:
        """Return the filter for a manifest."""
        spec_id = manifest.partition_spec_id
        if spec_id not in self._by_spec:
            self._by_spec[spec_id] = self._filter(self._specs[spec_id])
        return self._by_spec[spec_id]

    def _filter(self, spec: PartitionSpec) -> _Filter:
        known = [part for part in spec.fields if not self._was_date(part)]
        partition_filter = projected(self._schema, PartitionSpec(*known, spec_id=spec.spec_id), self._row_filter)
        by_partition = {part.source_id for part in known if isinstance(part.transform, IdentityTransform)}
        # Partitions decide on a filter of their columns alone; "or" with another column takes the statistics of both.
        statistics = frozenset(self._fields if self._fields - by_partition else ())
        return _Filter(
            manifest_predicate(self._schema, spec, partition_filter),
            partition_predicate(self._schema, spec, partition_filter),
            self._file if statistics else always,
            statistics,
            self._added_by,
            self._statistics,
        )

    def _was_date(self, part: PartitionField) -> bool:
        """Return True if some partitions have days where others have times; Iceberg forbids to change a date so."""
        if not isinstance(part.transform, IdentityTransform | BucketTransform):
            return False
        types = [schema.find_type(part.source_id) for schema in self._schemas if part.source_id in schema.field_ids]
        return DateType() in types and len(set(types)) > 1

"""Driver side of an upsert: finds data files that may contain the keys, and plans their replacement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    TimestampType,
    TimestamptzType,
)

from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg.read.data_files import is_local
from volley.iceberg.read.entries import PlannedFile, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.schema.nanoseconds import constant
from volley.iceberg.upsert.changes import BUCKETS, ChangeFile, UpsertWriter
from volley.iceberg.upsert.ranges import KeyRange, SearchedKey, may_have, union
from volley.iceberg.upsert.replace import Replaced, ReplaceKeys
from volley.iceberg.upsert.tasks import FollowMoves, MergeChanges, ReadStored, UpsertTask
from volley.iceberg.write.written import SnapshotFiles, WrittenFile

__all__ = [
    *("EpochUpsert", "cost_of", "having", "parts_of", "shared", "since", "suited", "version_of", "without_history"),
]

_MERGE_BYTES = 64 << 20
# What a task searches, what the driver does in the time of a Spark job, and what opening a file counts for: bytes that
# are searched in the same time.
_TASK_BYTES, _DRIVER_BYTES = 64 << 20, 8 << 20
_LOCAL_BYTES, _REMOTE_BYTES = 1 << 20, 16 << 20
# The dates that Python has, in days since 1970; a day in microseconds.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000
_ALL_ROWS = AlwaysTrue()

T = TypeVar("T", bound=UpsertTask)

_FileVersion = tuple[str, int | None, frozenset[tuple[str, int | None]]]
"""A data file, the id of its first row and its delete files: while they are unchanged, the rows to replace in it are
the same. A file from before an upgrade gets its ids by a commit of another writer, and kept rows have to have them."""


class EpochUpsert:
    """One epoch's upsert, over all attempts of its commit; remembers the result for each data file."""

    def __init__(
        self,
        changes: Sequence[ChangeFile],
        branch: str,
        run: Callable[[Sequence[ExecutorTask]], list[WriteResult]],
        writer: Callable[[Table], UpsertWriter],
    ) -> None:
        self._changes = tuple(changes)
        # Only the driver needs the ranges; with many tasks and files they would be most of the data sent.
        self._without_ranges = tuple(replace(file, ranges=()) for file in changes)
        self._branch = branch
        self._run = run
        self._writer = writer
        # The values that changes leave out, as changes that come first, and the data files that they were read from.
        self._completions: tuple[ChangeFile, ...] = ()
        self._completed_from: frozenset[_FileVersion] | None = None
        # The new rows; None = still to be merged. Those that were merged before the table changed are not used.
        self._merged: list[WrittenFile] | None = None
        self._unused: list[WrittenFile] = []
        self._replaced: dict[_FileVersion, Replaced] = {}
        # The numbers of data files, and those of the files whose rows' ids the new rows have taken.
        self._numbers: dict[_FileVersion, int] = {}
        self._ids_of: frozenset[int] = frozenset()
        self._attempts = 0
        self.temporary: list[str] = []
        """The paths of the files that only executors need."""

    @property
    def written(self) -> list[WrittenFile]:
        """All files written so far, whether or not they are in a snapshot."""
        replaced = (file for result in self._replaced.values() for file in (*result.added, *result.deletes))
        return [*self._unused, *(self._merged or ()), *replaced]

    @property
    def of_attempts(self) -> list[str]:
        """The paths of the files of all attempts, if there were several: one without an answer may have landed."""
        return [file.path for file in self.written] if self._attempts > 1 else []

    def changes(self, table: Table) -> SnapshotFiles:
        """Return the epoch's changes of the current table; computes missing results on the executors.

        Raises:
            StorageError: If the table's manifests can't be read.
            VolleyError: If the work on an executor fails.
        """
        self._attempts += 1
        writer, metadata = self._writer(table), without_history(table.metadata)
        candidates = {version_of(planned): planned for planned in self._candidates(table, writer)}
        if self._truncated is not None:
            self._replaced |= {version: Replaced(planned.file, True) for version, planned in candidates.items()}
        self._complete(writer, candidates, metadata)
        new = {version: planned for version, planned in candidates.items() if version not in self._replaced}
        if writer.rows.has_row_ids:
            # New rows take the ids of those that they replace.
            self._work(self._replaces(writer, metadata, new), new)
            self._note_ids(candidates)
            new = {}
        merges = self._merges(writer) if self._merged is None else []
        merged = self._work([*merges, *self._replaces(writer, metadata, new, len(merges))], new)
        self._merged = merged if self._merged is None else self._merged
        results = [self._replaced[version] for version in candidates]
        return SnapshotFiles(
            added=[*self._merged, *chain.from_iterable(result.added for result in results)],
            deletes=list(chain.from_iterable(result.deletes for result in results)),
            removed=[to_data_file(result.file) for result in results if result.removed],
        )

    def _replaces(
        self, writer: UpsertWriter, metadata: TableMetadata, files: Mapping[_FileVersion, PlannedFile], base: int = 0
    ) -> list[ReplaceKeys]:
        """Return the tasks that replace rows of some data files; the number of the first one is at least `base`."""
        tasks = list[ReplaceKeys]()
        for number, group in enumerate(shared(files.values()), base + len(self._replaced)):
            numbers = tuple(self._number(version_of(planned)) for planned in group)
            tasks.append(ReplaceKeys(writer, number, self._without_ranges, metadata, group, numbers))
        return tasks

    def _number(self, version: _FileVersion) -> int:
        return self._numbers.setdefault(version, len(self._numbers))

    def _work(
        self, tasks: Sequence[MergeChanges | ReplaceKeys], files: Mapping[_FileVersion, PlannedFile]
    ) -> list[WrittenFile]:
        """Run tasks; note what becomes of some data files, and return the files of new rows."""
        results = self._run(suited(tasks, self._changes, files.values())) if tasks else []
        items = [item for result in results for item in result.committables]
        by_path = {planned.file.path: version for version, planned in files.items()}
        replaced = {by_path[item.file.path]: item for item in items if isinstance(item, Replaced)}
        self._replaced |= replaced
        self.temporary += {item.ids.path for item in replaced.values() if item.ids is not None}
        return [item for item in items if isinstance(item, WrittenFile)]

    def _note_ids(self, candidates: Iterable[_FileVersion]) -> None:
        """Note whose ids the new rows take; those that were merged before have others."""
        found = frozenset(self._numbers[version] for version in candidates if self._replaced[version].ids is not None)
        if found != self._ids_of:
            self._unused += self._merged or ()
            self._merged, self._ids_of = None, found

    def _complete(
        self, writer: UpsertWriter, candidates: Mapping[_FileVersion, PlannedFile], metadata: TableMetadata
    ) -> None:
        """Read the values that changes leave out; again if the data files that have them have changed."""
        if not any(file.unchanged for file in self._changes) or self._completed_from == frozenset(candidates):
            return
        # After a truncation, the table has none of the rows that they replace.
        sources = () if self._truncated is not None else candidates.values()
        self._completions = self._changes_by(
            [
                ReadStored(writer, number, self._without_ranges, metadata, files)
                for number, files in enumerate(shared(sources))
            ]
        )
        if any(file.moves for file in self._changes):
            self._completions += self._changes_by([FollowMoves(writer, 0, self._all, self._truncated)])
        self._unused += self._merged or ()
        self._merged, self._completed_from = None, frozenset(candidates)

    def _changes_by(self, tasks: Sequence[ExecutorTask]) -> tuple[ChangeFile, ...]:
        """Run tasks that write changes; return their files."""
        results = self._run(tasks) if tasks else []
        files = tuple(replace(file, ranges=()) for result in results for file in result.committables)
        self.temporary += [file.path for file in files]
        return files

    @property
    def _all(self) -> tuple[ChangeFile, ...]:
        return (*self._completions, *self._without_ranges)

    def _merges(self, writer: UpsertWriter) -> list[MergeChanges]:
        parts = enumerate(parts_of(self._changes))
        ids = dict.fromkeys(replaced.ids for replaced in self._replaced.values() if replaced.ids is not None)
        more = self._truncated, self._completions, tuple(ids), self._ids_of
        return [MergeChanges(writer, number, self._without_ranges, buckets, *more) for number, buckets in parts]

    def _candidates(self, table: Table, writer: UpsertWriter) -> Iterator[PlannedFile]:
        """Yield the data files that may contain one of the keys, by their bounds and partitions."""
        if (head := head_of(table, self._branch)) is None:
            return iter(())
        keys = self._searched(table, writer)
        row_filter = And(_between(keys), self._mattering(table, writer))
        found = plan(table.io, table.metadata, head, row_filter, statistics=_ids(keys)).files
        return having(keys, found)

    def _mattering(self, table: Table, writer: UpsertWriter) -> BooleanExpression:
        """Return a filter of the table's rows that may matter to the changes."""
        return _ALL_ROWS

    def _searched(self, table: Table, writer: UpsertWriter) -> list[SearchedKey]:
        """Return the key columns, with the ranges of the rows that may be replaced."""
        return [(table.schema().find_field(key), self._ranges(number)) for number, key in enumerate(writer.keys)]

    def _ranges(self, key: int) -> list[KeyRange] | None:
        """Return the ranges of a key whose rows may be replaced; None = of any value, as by a truncation."""
        return None if self._concerns_all else union(file.ranges[key] for file in self._changes)

    @property
    def _concerns_all(self) -> bool:
        """True if some of the changes concern the rows of all keys."""
        return any(file.concerns_all for file in self._changes)

    @property
    def _truncated(self) -> int | None:
        """The order of the epoch's last truncation; None = there is none."""
        return max((file.truncated for file in self._changes if file.truncated is not None), default=None)


def having(keys: Sequence[SearchedKey], files: Iterable[PlannedFile]) -> Iterator[PlannedFile]:
    """Yield those of some data files that may contain one of the keys, by their bounds, without their bounds."""
    for planned in files:
        if may_have(keys, planned.file):
            yield PlannedFile(planned.file.without_statistics(), planned.deletes)


def _ids(keys: Iterable[SearchedKey]) -> frozenset[int]:
    return frozenset(field.field_id for field, _ in keys)


def version_of(planned: PlannedFile) -> _FileVersion:
    """Return what tells whether a data file has the same rows."""
    deletes = frozenset((delete.path, delete.blob_offset) for delete in planned.deletes)
    return planned.file.path, planned.file.first_row_id, deletes


def without_history(metadata: TableMetadata) -> TableMetadata:
    """Return the part of the metadata that executors need, without its snapshots, of which there may be thousands."""
    mapping = TableProperties.DEFAULT_NAME_MAPPING
    properties = {name: value for name, value in metadata.properties.items() if name == mapping}
    return metadata.model_copy(
        update={
            **{"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []},
            "properties": properties,
        }
    )


def shared(files: Iterable[PlannedFile]) -> Iterator[tuple[PlannedFile, ...]]:
    """Yield the files of each task: several small ones, as a task has a cost of its own."""
    group, total = list[PlannedFile](), 0
    for planned in files:
        cost = cost_of(planned)
        if group and total + cost > _TASK_BYTES:
            yield tuple(group)
            group, total = [], 0
        group.append(planned)
        total += cost
    if group:
        yield tuple(group)


def cost_of(planned: PlannedFile) -> int:
    """Return the time that a search of a data file takes, in bytes that are searched in that time."""
    return planned.file.size + (_LOCAL_BYTES if is_local(planned.file.path) else _REMOTE_BYTES)


def _is_safe(planned: PlannedFile) -> bool:
    """Return False if a damaged file may end the process that reads it, as some of ORC do."""
    return all(file.format != "ORC" for file in (planned.file, *planned.deletes))


def suited(tasks: Sequence[T], changes: Iterable[ChangeFile], files: Collection[PlannedFile]) -> list[T]:
    """Return tasks on some changes and data files, for the driver if there is little to do."""
    size = sum(sum(file.sizes) for file in changes) + sum(map(cost_of, files))
    suits_driver = size <= _DRIVER_BYTES and all(map(_is_safe, files))
    return [replace(task, suits_driver=True) for task in tasks] if suits_driver else [*tasks]


def parts_of(changes: Iterable[ChangeFile]) -> Iterator[range]:
    """Yield ranges of buckets, each as large as one merge can hold in memory."""
    sizes = [0] * BUCKETS
    for file in changes:
        for bucket, size in zip(file.buckets, file.sizes, strict=True):
            if bucket < BUCKETS:
                sizes[bucket] += size
    start, total = 0, 0
    for bucket, size in enumerate(sizes):
        if total and total + size > _MERGE_BYTES:
            yield range(start, bucket)
            start, total = bucket, 0
        total += size
    yield range(start, len(sizes))


def _between(keys: Iterable[SearchedKey]) -> BooleanExpression:
    row_filter: BooleanExpression = AlwaysTrue()
    for key, ranges in keys:
        if ranges is not None and not isinstance(key.field_type, BooleanType):
            if _is_planned(key.field_type, low := ranges[0][0]):
                row_filter = And(
                    row_filter, GreaterThanOrEqual(term=Reference(key.name), value=constant(key.field_type, low))
                )
            if _is_planned(key.field_type, high := ranges[-1][1]):
                row_filter = And(
                    row_filter, LessThanOrEqual(term=Reference(key.name), value=constant(key.field_type, high))
                )
    return row_filter


def since(column: NestedField, name: str, ranges: Sequence[KeyRange] | None) -> BooleanExpression:
    """Return a filter of the rows whose value of a column is null, or not less than the first of some ranges.

    Args:
        name: The column's full name.
    """
    # NaN is in no bounds, and the greatest value here.
    is_unknown = isinstance(column.field_type, FloatType | DoubleType | BooleanType)
    if is_unknown or not ranges or not _is_planned(column.field_type, low := ranges[0][0]):
        return _ALL_ROWS
    return Or(
        IsNull(term=Reference(name)), GreaterThanOrEqual(term=Reference(name), value=constant(column.field_type, low))
    )


def _is_planned(data_type: IcebergType, value: Any) -> bool:
    """Return True if pyiceberg can plan with this value and its neighbours: it computes years with Python's dates."""
    if isinstance(data_type, DateType):
        return bool(_FIRST_DAY < value < _LAST_DAY)
    return not isinstance(data_type, TimestampType | TimestamptzType) or bool(_FIRST_DAY < value // _DAY < _LAST_DAY)

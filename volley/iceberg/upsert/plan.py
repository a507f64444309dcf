"""Driver side of an upsert: finds data files that may contain the keys, and plans their replacement."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)

from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg.read.entries import FileEntry, PlannedFile, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.upsert.parked import BUCKETS, KeyRange, ParkedFile, UpsertWriter
from volley.iceberg.upsert.rekey import Rekey
from volley.iceberg.upsert.replace import Fill, Merge, Replace, Replaced
from volley.iceberg.write.changes import Changes
from volley.iceberg.write.written import WrittenFile

__all__ = ["EpochUpsert"]

_MERGE_BYTES = 64 << 20
# The dates that Python has, in days since 1970; a day in microseconds.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000

_Seen = tuple[str, frozenset[str]]
"""A data file and its delete files: while both are unchanged, the rows to replace in it are the same."""


class EpochUpsert:
    """One epoch's upsert, over all attempts of its commit; remembers the result for each data file.

    Args:
        parked: The files that the tasks have written, in the order of the tasks.
        branch: The branch to write to.
        run: Runs work on the executors.
        writer: Returns the writer for a freshly loaded table.
    """

    def __init__(
        self,
        parked: Sequence[ParkedFile],
        branch: str,
        run: Callable[[Sequence[ExecutorTask]], list[WriteResult]],
        writer: Callable[[Table], UpsertWriter],
    ) -> None:
        self._parked = tuple(parked)
        # Only the driver needs the ranges; with many tasks and files they would be most of the data sent.
        self._sent = tuple(replace(file, ranges=()) for file in parked)
        self._branch = branch
        self._run = run
        self._writer = writer
        self._merged: list[WrittenFile] | None = None
        self._superseded: list[WrittenFile] = []
        self._fills: tuple[ParkedFile, ...] = ()
        self._temporary: list[str] = []
        self._filled_from: frozenset[_Seen] | None = None
        self._replaced: dict[_Seen, Replaced] = {}

    @property
    def temporary(self) -> list[str]:
        """The paths of the files that only executors need."""
        return self._temporary

    @property
    def written(self) -> list[WrittenFile]:
        """All files written so far, whether or not they are in a snapshot."""
        results = self._replaced.values()
        return [
            *self._superseded,
            *(self._merged or ()),
            *chain.from_iterable((*result.added, *result.deletes) for result in results),
        ]

    def changes(self, table: Table) -> Changes:
        """Return the epoch's changes of the current table; computes missing results on the executors.

        Raises:
            StorageError: If the table's manifests can't be read.
            VolleyError: If the work on an executor fails.
        """
        writer = self._writer(table)
        candidates = {_seen(planned): planned for planned in self._candidates(table, writer)}
        if self._truncated is not None:
            self._replaced |= {seen: Replaced(planned.file, removed=True) for seen, planned in candidates.items()}
        slim = _without_history(table.metadata)
        self._fill(writer, candidates, slim)
        merges = self._merges(writer) if self._merged is None else []
        new = [seen for seen in candidates if seen not in self._replaced]
        base = len(merges) + len(self._replaced)
        replaces = [
            Replace(writer, base + number, self._sent, slim, candidates[seen]) for number, seen in enumerate(new)
        ]
        self._take(self._run([*merges, *replaces]) if merges or replaces else [], candidates)
        results = [self._replaced[seen] for seen in candidates]
        return Changes(
            added=[*(self._merged or ()), *chain.from_iterable(result.added for result in results)],
            deletes=list(chain.from_iterable(result.deletes for result in results)),
            removed=[to_data_file(result.file) for result in results if result.removed],
        )

    def _fill(self, writer: UpsertWriter, candidates: Mapping[_Seen, PlannedFile], metadata: TableMetadata) -> None:
        """Park the values that the epoch's rows leave out; again if the data files that have them have changed."""
        if not any(file.unchanged for file in self._parked) or self._filled_from == frozenset(candidates):
            return
        # After a truncation, the table has none of the rows that they replace.
        sources = () if self._truncated is not None else candidates.values()
        self._fills = self._parked_by([Fill(writer, n, self._sent, metadata, each) for n, each in enumerate(sources)])
        if any(file.rekeyed for file in self._parked):
            self._fills += self._parked_by([Rekey(writer, 0, (*self._fills, *self._sent), self._truncated)])
        self._superseded += self._merged or ()
        self._merged, self._filled_from = None, frozenset(candidates)

    def _parked_by(self, tasks: Sequence[ExecutorTask]) -> tuple[ParkedFile, ...]:
        """Run tasks that park rows; return their files."""
        results = self._run(tasks) if tasks else []
        files = tuple(replace(item, ranges=()) for result in results for item in result.committables)
        self._temporary += [file.path for file in files]
        return files

    def _take(self, results: Sequence[WriteResult], candidates: Iterable[_Seen]) -> None:
        items = [item for result in results for item in result.committables]
        by_path = {path: (path, deletes) for path, deletes in candidates}
        for item in items:
            if isinstance(item, Replaced):
                self._replaced[by_path[item.file.path]] = item
        self._merged = [*(self._merged or ()), *(item for item in items if isinstance(item, WrittenFile))]

    def _merges(self, writer: UpsertWriter) -> list[Merge]:
        sizes = [0] * BUCKETS
        for file in self._parked:
            for bucket, size in zip(file.buckets, file.sizes, strict=True):
                sizes[bucket] += size
        parked = (*self._fills, *self._sent)
        return [Merge(writer, number, parked, part, self._truncated) for number, part in enumerate(_parts(sizes))]

    def _candidates(self, table: Table, writer: UpsertWriter) -> Iterator[PlannedFile]:
        """Yield the data files that may contain one of the keys, by their bounds and partitions."""
        head = head_of(table, self._branch)
        if head is None:
            return
        keys = {key: self._ranges(number) for number, key in enumerate(writer.keys)}
        fields = [(table.schema().find_field(key), ranges) for key, ranges in keys.items()]
        statistics = frozenset(field.field_id for field, _ in fields)
        for planned in plan(table.io, table.metadata, head, _between(fields), statistics=statistics).files:
            bounds = [(ranges, _bounds(planned.file, field)) for field, ranges in fields]
            if all(_may_meet(ranges, limits) for ranges, limits in bounds):
                yield PlannedFile(planned.file.without_statistics(), planned.deletes)

    def _ranges(self, key: int) -> list[KeyRange] | None:
        """Return the ranges of a key whose rows may be replaced; None = of any value, as by a truncation."""
        return None if self._truncated is not None else _union(file.ranges[key] for file in self._parked)

    @property
    def _truncated(self) -> int | None:
        """The order of the epoch's last truncation; None = there is none."""
        return max((file.truncated for file in self._parked if file.truncated is not None), default=None)


def _seen(planned: PlannedFile) -> _Seen:
    return planned.file.path, frozenset(delete.path for delete in planned.deletes)


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """Return the part of the metadata that executors need, without its snapshots, of which there may be thousands."""
    mapping = TableProperties.DEFAULT_NAME_MAPPING
    properties = {name: value for name, value in metadata.properties.items() if name == mapping}
    return metadata.model_copy(
        update={
            **{"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []},
            "properties": properties,
        }
    )


def _parts(sizes: Sequence[int]) -> Iterator[range]:
    """Yield ranges of buckets, each as large as one merge can hold in memory."""
    start, total = 0, 0
    for bucket, size in enumerate(sizes):
        if total and total + size > _MERGE_BYTES:
            yield range(start, bucket)
            start, total = bucket, 0
        total += size
    yield range(start, len(sizes))


def _union(parts: Iterable[tuple[KeyRange, ...] | None]) -> list[KeyRange] | None:
    """Return the ranges of all parts, sorted and without overlaps; None if one is unknown."""
    known = list(parts)
    if any(part is None for part in known):
        return None
    joined: list[KeyRange] = []
    for low, high in sorted(chain.from_iterable(part for part in known if part is not None)):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _between(keys: Iterable[tuple[NestedField, list[KeyRange] | None]]) -> BooleanExpression:
    row_filter: BooleanExpression = AlwaysTrue()
    for key, ranges in keys:
        if ranges is not None and not isinstance(key.field_type, BooleanType):
            if _is_planned(key.field_type, low := ranges[0][0]):
                row_filter = And(row_filter, GreaterThanOrEqual(term=Reference(key.name), value=low))
            if _is_planned(key.field_type, high := ranges[-1][1]):
                row_filter = And(row_filter, LessThanOrEqual(term=Reference(key.name), value=high))
    return row_filter


def _is_planned(data_type: IcebergType, value: Any) -> bool:
    """Return True if pyiceberg can plan with this value and its neighbours: it computes years with Python's dates."""
    if isinstance(data_type, DateType):
        return bool(_FIRST_DAY < value < _LAST_DAY)
    return not isinstance(data_type, TimestampType | TimestamptzType) or bool(_FIRST_DAY < value // _DAY < _LAST_DAY)


def _bounds(file: FileEntry, field: NestedField) -> KeyRange | None:
    low, high = file.lower.get(field.field_id), file.upper.get(field.field_id)
    data_type = field.field_type
    if low is None or high is None or not isinstance(data_type, PrimitiveType):
        return None
    return from_bytes(data_type, low), from_bytes(data_type, high)


def _may_meet(ranges: list[KeyRange] | None, bounds: KeyRange | None) -> bool:
    """Return True if one of the ranges overlaps the bounds."""
    if ranges is None or bounds is None:
        return True
    low, high = bounds
    first = bisect_left(ranges, low, key=lambda key_range: key_range[1])
    return first < len(ranges) and bool(ranges[first][0] <= high)

"""The driver's side of an upsert: which data files may have rows that are replaced, and what becomes of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, TableProperties
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

from volley.epoch import WriteResult
from volley.errors import CommitError
from volley.iceberg.read.heads import head_of
from volley.iceberg.upsert.parked import BUCKETS, KeyRange, ParkedFile, UpsertWriter
from volley.iceberg.upsert.replace import Merge, Replace, Replaced
from volley.iceberg.write.changes import Changes
from volley.iceberg.write.written import WrittenFile
from volley.sink import Chore

__all__ = ["EpochUpsert"]

_MERGE_BYTES = 64 << 20
# The dates that Python has, in days since 1970; a day in microseconds.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000

_Seen = tuple[str, frozenset[str]]
"""A data file and the delete files it is read with: while both are the same, so is what is replaced in it."""


class EpochUpsert:
    """One epoch's upsert, however many attempts its commit takes: what is known of a file is not looked for again.

    Args:
        parked: What the tasks have written, in the order of the tasks.
        branch: The branch that is written.
        run: Runs chores on the executors.
        writer: Makes the writer for a table as it was just loaded.
    """

    def __init__(
        self,
        parked: Sequence[ParkedFile],
        branch: str,
        run: Callable[[Sequence[Chore]], list[WriteResult]],
        writer: Callable[[Table], UpsertWriter],
    ) -> None:
        self._parked = tuple(parked)
        # The ranges are for the driver; with many tasks and many files they would be most of what is sent.
        self._sent = tuple(replace(file, ranges=()) for file in parked)
        self._branch = branch
        self._run = run
        self._writer = writer
        self._merged: list[WrittenFile] | None = None
        self._replaced: dict[_Seen, Replaced] = {}

    @property
    def written(self) -> list[WrittenFile]:
        """All files that were made so far, whether or not a snapshot has them."""
        replaced = self._replaced.values()
        return [*(self._merged or ()), *chain.from_iterable((*each.added, *each.deletes) for each in replaced)]

    def changes(self, table: Table) -> Changes:
        """What the epoch changes in the table as it is now; what is not known yet is found by chores.

        Raises:
            CommitError: If the table has files that an upsert can't handle.
            VolleyError: If a chore fails.
        """
        writer = self._writer(table)
        found = {_seen(task): task for task in self._candidates(table, writer)}
        merges = self._merges(writer) if self._merged is None else []
        new = [each for each in found if each not in self._replaced]
        slim, base = _without_history(table.metadata), len(merges) + len(self._replaced)
        replaces = [
            Replace(writer, base + number, self._sent, slim, found[seen].file, tuple(found[seen].delete_files))
            for number, seen in enumerate(new)
        ]
        self._take(self._run([*merges, *replaces]) if merges or replaces else [], found)
        known = [self._replaced[seen] for seen in found]
        return Changes(
            added=[*(self._merged or ()), *chain.from_iterable(each.added for each in known)],
            deletes=list(chain.from_iterable(each.deletes for each in known)),
            removed=[each.file for each in known if each.removed],
        )

    def _take(self, results: Sequence[WriteResult], found: dict[_Seen, FileScanTask]) -> None:
        made = [each for result in results for each in result.committables]
        by_path = {path: (path, deletes) for path, deletes in found}
        for each in made:
            if isinstance(each, Replaced):
                self._replaced[by_path[each.file.file_path]] = each
        self._merged = [*(self._merged or ()), *(each for each in made if isinstance(each, WrittenFile))]

    def _merges(self, writer: UpsertWriter) -> list[Merge]:
        sizes = [0] * BUCKETS
        for file in self._parked:
            for bucket, size in zip(file.buckets, file.sizes, strict=True):
                sizes[bucket] += size
        return [Merge(writer, number, self._sent, part) for number, part in enumerate(_parts(sizes))]

    def _candidates(self, table: Table, writer: UpsertWriter) -> Iterator[FileScanTask]:
        """The data files whose bounds and partitions don't rule out that they have one of the keys."""
        head = head_of(table, self._branch)
        if head is None:
            return
        keys = {key: _together(file.ranges[number] for file in self._parked) for number, key in enumerate(writer.keys)}
        fields = [(table.schema().find_field(key), ranges) for key, ranges in keys.items()]
        scan = table.scan(row_filter=_between(fields), snapshot_id=head.snapshot_id)
        try:
            tasks = list(scan.plan_files())
        except ValueError as error:
            raise CommitError(
                f"the files of table {'.'.join(table.name())} can't be planned: {error}",
                hint="compact the table with the engine that wrote its equality deletes, then start the job again",
            ) from error
        for task in tasks:
            bounds = [(ranges, _bounds(task.file, field)) for field, ranges in fields]
            if all(_may_meet(ranges, found) for ranges, found in bounds):
                yield task


def _seen(task: FileScanTask) -> _Seen:
    return task.file.file_path, frozenset(each.file_path for each in task.delete_files)


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """What an executor needs of the metadata, which may have thousands of snapshots."""
    kept = TableProperties.DEFAULT_NAME_MAPPING
    properties = {name: value for name, value in metadata.properties.items() if name == kept}
    return metadata.model_copy(
        update={
            **{"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []},
            "properties": properties,
        }
    )


def _parts(sizes: Sequence[int]) -> Iterator[range]:
    """Neighbouring buckets, as many together as one merge can have in memory; empty ones cost nothing."""
    start, total = 0, 0
    for bucket, size in enumerate(sizes):
        if total and total + size > _MERGE_BYTES:
            yield range(start, bucket)
            start, total = bucket, 0
        total += size
    yield range(start, len(sizes))


def _together(parts: Iterable[tuple[KeyRange, ...] | None]) -> list[KeyRange] | None:
    """The ranges of all parts, sorted, without overlaps; None if one is not known."""
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
    wanted: BooleanExpression = AlwaysTrue()
    for key, ranges in keys:
        if ranges is not None and not isinstance(key.field_type, BooleanType):
            if _is_planned(key.field_type, low := ranges[0][0]):
                wanted = And(wanted, GreaterThanOrEqual(term=Reference(key.name), value=low))
            if _is_planned(key.field_type, high := ranges[-1][1]):
                wanted = And(wanted, LessThanOrEqual(term=Reference(key.name), value=high))
    return wanted


def _is_planned(kind: IcebergType, value: Any) -> bool:
    """Whether pyiceberg can look for this and its neighbours: years and months it finds by Python's dates."""
    if isinstance(kind, DateType):
        return bool(_FIRST_DAY < value < _LAST_DAY)
    return not isinstance(kind, TimestampType | TimestamptzType) or bool(_FIRST_DAY < value // _DAY < _LAST_DAY)


def _bounds(file: DataFile, field: NestedField) -> KeyRange | None:
    low, high = (each.get(field.field_id) for each in (file.lower_bounds or {}, file.upper_bounds or {}))
    kind = field.field_type
    if low is None or high is None or not isinstance(kind, PrimitiveType):
        return None
    return from_bytes(kind, low), from_bytes(kind, high)


def _may_meet(ranges: list[KeyRange] | None, bounds: KeyRange | None) -> bool:
    """Whether one of the ranges and the bounds have a value in common."""
    if ranges is None or bounds is None:
        return True
    low, high = bounds
    first = bisect_left(ranges, low, key=lambda each: each[1])
    return first < len(ranges) and bool(ranges[first][0] <= high)

"""An upsert by sequence: a row replaces another one only if its own columns say that it is the later one.

The stored rows with the keys of an epoch, and the changes that are remembered, are read as changes; each task settles
the changes of some keys, old and new; then the stored rows that are beaten are taken out of their files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from volley.columns.batches import conform, one_batch
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg.modes import History
from volley.iceberg.read.entries import PlannedFile, to_data_file
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.schema.types import ROW_ID
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.upsert.changes import DELETED, STORED_AT, STORED_IN, ChangeFile, UpsertWriter
from volley.iceberg.upsert.partial import PartialChanges
from volley.iceberg.upsert.plan import (
    EpochUpsert,
    having,
    parts_of,
    shared,
    since,
    suited,
    version_of,
    without_history,
)
from volley.iceberg.upsert.ranges import union
from volley.iceberg.upsert.replace import Replace, Replaced
from volley.iceberg.upsert.settled import Changed, LastChange, Settling
from volley.iceberg.upsert.tasks import (
    Deletions,
    FilesTask,
    Finder,
    Places,
    UpsertTask,
    columns_of,
    with_stored_ids,
    write_rows,
)
from volley.iceberg.upsert.tombstones import (
    Housekeeping,
    check_remembered,
    file_name,
    tombstones_of,
    with_required_values,
)
from volley.iceberg.upsert.versions import Versions
from volley.iceberg.write.writer import write_batches
from volley.iceberg.write.written import SnapshotFiles, WrittenFile

__all__ = ["SequencedUpsert"]

_log = logging.getLogger(__name__)
_BATCH_ROWS = 100_000

T = TypeVar("T")

_Numbers = np.ndarray[Any, Any]


def _settling_of(writer: UpsertWriter) -> Settling:
    """Return how the changes of a commit mode are settled."""
    if isinstance(writer.mode, History):
        return Versions(writer)
    return PartialChanges(writer) if writer.mode.is_partial else LastChange(writer)


@dataclass(frozen=True)
class _Remembered:
    """A file of remembered changes that a task has written."""

    file: WrittenFile

    @property
    def path(self) -> str:
        return self.file.path


@dataclass(frozen=True)
class _Beaten:
    """The stored rows that an epoch replaces: by the number of a data file, a serialized bitmap of their positions."""

    positions: Mapping[int, bytes]


@dataclass(frozen=True)
class _ReadStored(FilesTask):
    """Writes, as changes, the rows of data files that have the key of a change, and matter.

    They have few columns, unless all of them matter.

    Args:
        remembered: True if the rows are remembered changes.
        all_keys: True if rows of all keys matter.
        numbers: The numbers of the files.
    """

    remembered: bool
    all_keys: bool
    numbers: tuple[int, ...]

    def __call__(self) -> WriteResult:
        truncations = self.writer.truncations_in(self.changes)
        changes = Changed(self.writer, self.writer.marked_keys(self.changes), truncations)
        keys, beaten = None if self.all_keys else self.writer.keys_of(changes.keys), dict[int, bytes]()
        finder = Finder(
            keys, self.writer, self.metadata, [*_settling_of(self.writer).read_first(self.remembered), *self._ids]
        )
        rows = (
            batch
            for number, planned in zip(self.numbers, self.files, strict=True)
            for batch in self._stored(number, planned, finder, changes, beaten)
        )
        written = self.writer.open(self.number).add_all(rows)
        return replace(written, committables=(*written.committables, _Beaten(beaten)))

    def _stored(
        self, number: int, planned: PlannedFile, finder: Finder, changes: Changed, beaten: dict[int, bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file as changes, without those that are known to be beaten: note their positions."""
        with storage_errors(planned.file.path, "reading"):
            found, rows = finder.find_rows(planned)
            # The rows that replace others take their ids.
            if len(found) and not self._ids and (is_beaten := _settling_of(self.writer).beaten(rows, changes)).any():
                if not self.remembered:
                    beaten[number] = BitMap64(found[is_beaten]).serialize()
                found, rows = found[~is_beaten], rows.filter(pa.array(~is_beaten))
            if planned.deletes and len(found):
                live = ~finder.deleted(planned)[found]
                found, rows = found[live], rows.filter(pa.array(live))
            if len(found) == 0:
                return
            matter, whole = _settling_of(self.writer).wanted(rows, changes, self.remembered)
            some = matter & ~whole
            yield self._as_changes(one_batch(rows.filter(pa.array(some))), number, found[some])
            if whole.any():
                columns = columns_of(self.metadata, [*self.writer.rows.rows_schema.names, *self._ids])
                reader = RowReader.of(self.metadata, columns, variants_as_stored=True)
                read = reader.rows_at(self.writer.rows.io, file_task(planned, self.metadata), found[whole])
                for batch, positions in read:
                    yield self._as_changes(batch, number, positions)

    @property
    def _ids(self) -> list[str]:
        """The column with the ids of the table's rows."""
        return [ROW_ID] if self.writer.rows.has_row_ids and not self.remembered else []

    def _as_changes(self, rows: pa.RecordBatch, number: int, positions: _Numbers) -> pa.RecordBatch:
        count = rows.num_rows
        if self.remembered:
            rows = _settling_of(self.writer).recalled(rows)
        else:
            rows = with_stored_ids(rows) if self._ids else rows
            rows = rows.append_column(DELETED, pa.repeat(pa.scalar(False), count))
            rows = rows.append_column(STORED_AT, pa.array(positions, pa.int64()))
        rows = rows.append_column(STORED_IN, pa.repeat(pa.scalar(number, pa.int32()), count))
        return conform(rows, self.writer.schema)


@dataclass(frozen=True)
class _Settle(UpsertTask):
    """Writes what the changes of some buckets come to: rows, and changes to remember.

    Args:
        written_at: The time of these, in seconds since 1970.
    """

    buckets: range
    written_at: float

    def __call__(self) -> WriteResult:
        changes = self.writer.changes_in(self.changes, self.buckets)
        outcome = _settling_of(self.writer).settle(changes)
        written = write_rows(self.writer, self.number, outcome.rows)
        try:
            remembered = _write_remembered(self.writer, self.number, self._own(outcome.remembered), self.written_at)
        except BaseException:
            delete_new_files(self.writer.rows.io, [file.path for file in written.committables])
            raise
        beaten = _Beaten(_positions(changes.take(pa.array(outcome.beaten))))
        return replace(written, committables=(*written.committables, *remembered, beaten))

    def _own(self, changes: pa.Table) -> pa.Table:
        """Return changes without those that concern all buckets, which one task remembers for all."""
        return changes if self.buckets.start == 0 else changes.filter(changes[self.writer.keys[0]].is_valid())


def _write_remembered(writer: UpsertWriter, number: int, changes: pa.Table, at: float) -> list[_Remembered]:
    """Write changes to files, those that concern all keys to files of their own, which are always read."""
    has_key, written = changes[writer.keys[0]].is_valid(), list[_Remembered]()
    for of_all_keys, part in ((False, changes.filter(has_key)), (True, changes.filter(pc.invert(has_key)))):
        batches = _settling_of(writer).as_rows(part).to_batches(max_chunksize=_BATCH_ROWS)
        rows = (with_required_values(batch, writer.rows.rows_schema) for batch in batches)
        try:
            result = write_batches(writer.rows.open_named(file_name(number, at, of_all_keys)), rows)
        except BaseException:
            delete_new_files(writer.rows.io, [file.path for file in written])
            raise
        written += map(_Remembered, result.committables)
    return written


def _positions(stored: pa.Table) -> dict[int, bytes]:
    """Return the positions of stored rows by the number of their file."""
    numbers, positions = stored[STORED_IN].to_numpy(), stored[STORED_AT].to_numpy()
    return {int(number): BitMap64(positions[numbers == number]).serialize() for number in np.unique(numbers)}


@dataclass(frozen=True)
class _ReplaceBeaten(Replace):
    """Takes the rows that are beaten out of data files.

    Args:
        positions: A serialized bitmap for each file.
    """

    positions: tuple[bytes, ...]

    def _places(self) -> Places:
        known = {file.file.path: found for file, found in zip(self.files, self.positions, strict=True)}
        return _Known(known, self.writer, self.metadata)


class _Known(Deletions):
    """Positions that are known already."""

    def __init__(self, positions: Mapping[str, bytes], writer: UpsertWriter, metadata: TableMetadata) -> None:
        super().__init__(writer, metadata)
        self._positions = positions

    def find(self, planned: PlannedFile) -> _Numbers:
        return np.asarray(BitMap64.deserialize(self._positions[planned.file.path]).to_array(), np.int64)


@dataclass(frozen=True)
class _MergeRemembered(FilesTask):
    """Writes the remembered changes of some files to one, without those that no longer count."""

    written_at: float

    def __call__(self) -> WriteResult:
        schema = columns_of(self.metadata, [*self.writer.keys, *_settling_of(self.writer).read_first(True)])
        batches = [self._as_changes(batch) for file in self.files for batch in self._read(file, schema)]
        merged = _settling_of(self.writer).merged(pa.Table.from_batches(batches, self.writer.schema))
        return WriteResult(committables=tuple(_write_remembered(self.writer, self.number, merged, self.written_at)))

    def _as_changes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return conform(_settling_of(self.writer).recalled(rows), self.writer.schema)


class SequencedUpsert(EpochUpsert):
    """One epoch's upsert by sequence, over all attempts of its commit.

    Args:
        retention: How long changes are remembered; None = for ever.
    """

    def __init__(self, *arguments: Any, retention: timedelta | None) -> None:
        super().__init__(*arguments)
        self._retention = retention
        self._settled: SnapshotFiles | None = None
        self._settled_from: tuple[object, ...] = ()
        self._files: list[WrittenFile] = []

    @property
    def written(self) -> list[WrittenFile]:
        return [*self._unused, *self._files]

    def _mattering(self, table: Table, writer: UpsertWriter) -> BooleanExpression:
        """Return a filter for the versions that have not ended before all changes, those of a history."""
        if not isinstance(writer.mode, History):
            return AlwaysTrue()
        ranges = union(file.ranges[len(writer.keys)] for file in self._changes)
        first, *others = writer.mode.sequence_fields
        name = f"{writer.mode.valid_to}.{first}" if others else writer.mode.valid_to
        return since(table.schema().find_field(name), name, ranges)

    def changes(self, table: Table) -> SnapshotFiles:
        self._attempts += 1
        writer = self._writer(table)
        check_remembered(table, self._branch, writer.mode)
        candidates = {version_of(planned): planned for planned in self._candidates(table, writer)}
        tombstones = tombstones_of(table, self._branch)
        settled_from = frozenset(candidates), tombstones and tombstones.snapshot_id
        if self._settled is None or settled_from != self._settled_from:
            # What was settled for an earlier state of the table is of no use, unless that attempt lands after all.
            self._unused += self._files
            self._files = []
            self._settled = self._settle(table, writer, [*candidates.values()])
            self._settled_from = settled_from
        return self._settled

    def _settle(self, table: Table, writer: UpsertWriter, files: Sequence[PlannedFile]) -> SnapshotFiles:
        metadata = without_history(table.metadata)
        keys = self._searched(table, writer)
        due = Housekeeping.of(table, self._branch, self._retention, frozenset(field.field_id for field, _ in keys))
        stored, beaten = self._stored(writer, metadata, files, [*having(keys, due.of_keys)], due.of_all_keys)
        changes = (*stored, *self._without_ranges)
        parts = enumerate(parts_of(changes))
        settles = [_Settle(writer, number, changes, buckets, due.now) for number, buckets in parts]
        settled = self._do(suited(settles, changes, ()))
        replaced = _of(self._do(_replaces(writer, metadata, files, [*beaten, *_of(settled, _Beaten)])), Replaced)
        merges = [_MergeRemembered(writer, number, (), metadata, *group) for number, group in enumerate(due.merged)]
        merged = self._do(merges)
        if due.forgotten:
            _log.info("forgot %s remembered changes, older than %s", f"{due.rows_forgotten:,}", self._retention)
        return SnapshotFiles(
            added=[*_of(settled, WrittenFile), *chain.from_iterable(item.added for item in replaced)],
            deletes=[*chain.from_iterable(item.deletes for item in replaced)],
            removed=[to_data_file(item.file) for item in replaced if item.removed],
            tombstones=[item.file for item in _of([*settled, *merged], _Remembered)],
            forgotten=[to_data_file(planned.file) for planned in due.removed],
        )

    def _stored(
        self,
        writer: UpsertWriter,
        metadata: TableMetadata,
        files: Sequence[PlannedFile],
        remembered: Sequence[PlannedFile],
        of_all_keys: Sequence[PlannedFile],
    ) -> tuple[list[ChangeFile], list[_Beaten]]:
        """Read the stored rows and the remembered changes with the keys of changes; return also which are beaten."""
        tasks = list[_ReadStored]()
        all_keys = self._concerns_all
        for is_remembered, reads_all, read in (
            (False, all_keys, files),
            (True, all_keys, remembered),
            (True, True, of_all_keys),
        ):
            first = 0
            for group in shared(read):
                numbers = tuple(range(first, first := first + len(group)))
                marks = is_remembered, reads_all, numbers
                tasks.append(_ReadStored(writer, len(tasks), self._without_ranges, metadata, group, *marks))
        items = self._do(suited(tasks, self._changes, [*files, *remembered, *of_all_keys]))
        stored = _of(items, ChangeFile)
        self.temporary += [file.path for file in stored]
        return stored, _of(items, _Beaten)

    def _do(self, tasks: Sequence[ExecutorTask]) -> list[Any]:
        """Run tasks, note the files that they have written, and return their results."""
        items = [item for result in (self._run(tasks) if tasks else ()) for item in result.committables]
        for item in items:
            if isinstance(item, Replaced):
                self._files += [*item.added, *item.deletes]
            elif isinstance(item, WrittenFile | _Remembered):
                self._files.append(item if isinstance(item, WrittenFile) else item.file)
        return items


def _of(items: Iterable[object], kind: type[T]) -> list[T]:
    return [item for item in items if isinstance(item, kind)]


def _replaces(
    writer: UpsertWriter, metadata: TableMetadata, files: Sequence[PlannedFile], found: Iterable[_Beaten]
) -> list[_ReplaceBeaten]:
    """Return the tasks that take the stored rows that are beaten out of their files."""
    beaten: dict[str, BitMap64] = {}
    for item in found:
        for number, positions in item.positions.items():
            path = files[number].file.path
            beaten[path] = beaten.get(path, BitMap64()) | BitMap64.deserialize(positions)
    changed = [planned for planned in files if planned.file.path in beaten]
    tasks = [
        _ReplaceBeaten(writer, number, (), metadata, group, tuple(beaten[each.file.path].serialize() for each in group))
        for number, group in enumerate(shared(changed))
    ]
    return suited(tasks, (), changed)

"""Deletes the rows of a table whose time is too long ago: whole files by their bounds, rows of others by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    NestedField,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from volley.contracts.epoch import WriteResult
from volley.errors import ConfigError
from volley.iceberg.commit.loop import Staged, commit_to, new_snapshot_id, write_manifests
from volley.iceberg.commit.marks import maintenance_summary
from volley.iceberg.maintain.options import Runner
from volley.iceberg.maintain.rewrites import FileRewrite, Opened, format_of
from volley.iceberg.maintain.told import told
from volley.iceberg.read.entries import FileEntry, PlannedFile, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.pruning import decoded_bounds
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.read.skipping import Positions
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.task.failpoints import ROW_TTL_POINT, reach

__all__ = ["Aged", "check_time", "delete_old_rows"]

_PER_SECOND: dict[type, int] = {
    TimestampType: 10**6,
    TimestamptzType: 10**6,
    TimestampNanoType: 10**9,
    TimestamptzNanoType: 10**9,
}
_DAY = 86_400
# Data files that one task reads.
_FILES_OF_A_TASK = 64


@dataclass(frozen=True)
class Aged:
    """What the deletion of old rows has done.

    Args:
        rows: The number of rows that it has deleted, of removed files those that deletes had hidden, too.
        files: The number of data files that were removed as wholes.
    """

    rows: int = 0
    files: int = 0
    snapshot_id: int | None = None


def check_time(name: str, column: str, schema: Schema) -> NestedField | None:
    """Return the column of a table that tells how old its rows are; None if the table has none of this name.

    Raises:
        ConfigError: If it has no dates or timestamps.
    """
    field = next((field for field in schema.fields if field.name == column), None)
    if field is not None and not isinstance(field.field_type, (DateType, *_PER_SECOND)):
        raise ConfigError(
            f"rows of table {name} can't be deleted by the age of column {column!r}: it is {field.field_type}",
            hint="row_ttl_column names a column of dates or timestamps",
        )
    return field


@told("row_ttl", lambda done: bool(done.snapshot_id))
def delete_old_rows(ref: TableRef, column: str, before: datetime, run: Runner | None) -> Aged:
    """Delete the rows of a table's branch whose time is before another, in one commit; rows without a time stay.

    Raises:
        ConfigError: If the table has no delete files, or the column no times.
    """
    opened = Opened.of(ref, None)
    field = check_time(ref.name, column, opened.table.schema())
    if opened.table.format_version < 2:
        raise ConfigError(
            f"rows of table {ref.name} can't be deleted by age: format version 1 has no deletes",
            hint="upgrade it: IcebergTable(table).upgrade(2)",
        )
    if field is None or opened.head is None:
        return Aged()
    seconds = before.timestamp()
    per_second = _PER_SECOND.get(type(field.field_type))
    cutoff = int(seconds // _DAY) if per_second is None else int(seconds * 10**6) * (per_second // 10**6)
    return _Aging(opened, _Old(Schema(field), cutoff), run).delete()


@dataclass(frozen=True)
class _Old:
    """The rows whose time is below a number, in the unit of its column; picklable."""

    schema: Schema
    cutoff: int

    def positions(self, rows: pa.Table) -> Positions:
        numbers = rows[0].cast(pa.int32() if pa.types.is_date32(rows[0].type) else pa.int64())
        return np.flatnonzero(pc.fill_null(pc.less(numbers, self.cutoff), False).to_numpy())

    def _bounds(self, file: FileEntry) -> tuple[Any, Any]:
        (field,) = self.schema.fields
        return decoded_bounds(field.field_type, file.lower.get(field.field_id), file.upper.get(field.field_id))

    def are_in(self, file: FileEntry) -> bool:
        """Return True if a file may have such rows."""
        low, _ = self._bounds(file)
        return low is None or low < self.cutoff

    def are_all(self, file: FileEntry) -> bool:
        """Return True if a file has no other rows."""
        _, high = self._bounds(file)
        return high is not None and high < self.cutoff and file.nulls.get(self.schema.fields[0].field_id) == 0


_State = tuple[str, frozenset[tuple[str, int | None]]]


def _state(file: FileEntry, deletes: Sequence[FileEntry]) -> _State:
    return file.path, frozenset((delete.path, delete.blob_offset) for delete in deletes)


@dataclass(frozen=True)
class _Deleted:
    """The deletes of the old rows of a data file, in the state in which it was read."""

    state: _State
    rows: int
    file: WrittenFile


@dataclass(frozen=True)
class _FindOld:
    """Executor work: writes deletes of the old rows of some data files."""

    format: TableFormat
    reader: RowReader
    old: _Old
    tasks: tuple[FileTask, ...]

    def __call__(self) -> WriteResult:
        """Return a `_Deleted` for each data file with old rows as the committables."""
        found = [(task, *self._found(task)) for task in self.tasks]
        found = [(task, new, positions) for task, new, positions in found if new]
        written = write_deletes(self.format, [(to_data_file(task.file), positions) for task, _, positions in found])
        return WriteResult(
            files=len(written),
            committables=tuple(
                _Deleted(_state(task.file, task.deletes), new, file)
                for (task, new, _), file in zip(found, written, strict=True)
            ),
        )

    def _found(self, task: FileTask) -> tuple[int, Positions]:
        """Return how many old rows are to be deleted, and their positions; for a vector with those of all deleted."""
        with storage_errors(task.file.path, "reading"):
            old = self.reader.find(self.format.io, task, self.old.positions, self.old.are_in)
            if not len(old) or not task.deletes:
                return len(old), old
            deleted = self.reader.deleted(self.format.io, task)
        new = old[~deleted[old]]
        deleted[new] = True
        return len(new), np.flatnonzero(deleted) if self.format.has_row_ids else new


@dataclass(frozen=True)
class _StagedAging(Staged):
    aged: Aged
    deletes: Sequence[WrittenFile]


class _Aging(FileRewrite[_StagedAging, _Deleted]):
    """Deletes old rows. Files that others have changed since they were read are left for the next time."""

    action = "deleting old rows"
    maintenance = "row_ttl"

    def __init__(self, opened: Opened, old: _Old, run: Runner | None) -> None:
        super().__init__(opened, format_of(opened.table, opened.ref), "old", run)
        self._old = old

    def delete(self) -> Aged:
        metadata = self._opened.table.metadata
        partly = [planned for planned in self._files(self._opened.table) if not self._old.are_all(planned.file)]
        reader = RowReader.of(metadata, self._old.schema)
        self._run_tasks(
            [
                _FindOld(
                    self._format,
                    reader,
                    self._old,
                    tuple(file_task(planned, metadata) for planned in partly[start : start + _FILES_OF_A_TASK]),
                )
                for start in range(0, len(partly), _FILES_OF_A_TASK)
            ]
        )
        commit = commit_to(self._ref, self)
        self._delete_unused(commit.table, commit.staged.deletes if commit.staged else ())
        return commit.staged.aged if commit.staged else Aged()

    def _files(self, table: Table) -> list[PlannedFile]:
        """Return the data files of the branch that may have old rows."""
        head = head_of(table, self._ref.branch)
        ids = frozenset(field.field_id for field in self._old.schema.fields)
        files = plan(table.io, table.metadata, head, statistics=ids).files if head else ()
        return [planned for planned in files if self._old.are_in(planned.file)]

    def _written(self) -> set[str]:
        return {deleted.file.path for deleted in self._results}

    def stage(self, table: Table) -> _StagedAging | None:
        head = head_of(table, self._ref.branch)
        files = self._files(table)
        whole = [planned.file for planned in files if self._old.are_all(planned.file)]
        states = {_state(planned.file, planned.deletes) for planned in files}
        deleted = [deleted for deleted in self._results if deleted.state in states]
        if head is None or not (whole or deleted):
            return None
        changes = SnapshotFiles(deletes=[each.file for each in deleted], removed=[to_data_file(file) for file in whole])
        transaction, snapshot_id = table.transaction(), new_snapshot_id()
        summary = maintenance_summary(self.maintenance, table.metadata, head)
        with storage_errors(table.location()):
            write_manifests(transaction, changes, snapshot_id, summary, self._ref.branch)
        reach(ROW_TTL_POINT, 0)
        rows = sum(each.rows for each in deleted) + sum(file.rows for file in whole)
        return _StagedAging(transaction, Aged(rows, len(whole), snapshot_id), changes.deletes)

"""Reads the rows of a table's data files on executors: projected to one schema, without deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import IdentityTransform

from volley.columns.batches import no_table
from volley.errors import StorageError
from volley.formats.parquet import OpenParquet
from volley.iceberg.read.data_files import OpenDataFile, check_format, open_data_file
from volley.iceberg.read.delete_files import Mask, columns_of, deleted_by_position, equal_positions
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, Residual
from volley.iceberg.read.pruning import Predicate, file_predicate
from volley.iceberg.read.skipping import Positions, matching_parts
from volley.iceberg.schema.mapping import mapped_fields
from volley.iceberg.schema.types import arrow_schema, rows_schema
from volley.secrets import redact_uri

__all__ = ["FileTask", "RowReader", "file_task"]

_BATCH_ROWS = 65_536
# Values that are decoded in the time that the page index takes.
_SMALL_ROWS = 1 << 18
_ALL_ROWS = AlwaysTrue()


@dataclass(frozen=True)
class FileTask:
    """A data file, or a part of it, for an executor to read; small and picklable.

    Args:
        constants: The values of the columns that its partition determines, by field id.
        keys: The columns that each equality-delete file compares, by its path.
        part: The number of the part to read and the number of parts; parts are row groups.
        residual: Leaves out rows that its catalog wants to be left out; only `RowReader.read` heeds it.
        io: Opens the files, in place of the table's; see `PlannedFile`.
    """

    file: FileEntry
    deletes: tuple[FileEntry, ...] = ()
    constants: Mapping[int, Any] = field(default_factory=dict)
    keys: Mapping[str, Schema] = field(default_factory=dict)
    part: tuple[int, int] = (0, 1)
    residual: Residual | None = None
    io: FileIO | None = field(default=None, compare=False)


def file_task(planned: PlannedFile, table: TableMetadata) -> FileTask:
    """Return the task that reads a planned file.

    Raises:
        SourceError: If a file is in a format that can't be read.
        StorageError: If a delete file compares a field that the table never had.
    """
    file = planned.file
    for stored in (file, *planned.deletes):
        check_format(stored)
    constants = {
        field.source_id: value
        for field, value in zip(_partition_fields(table, file), file.partition, strict=True)
        if isinstance(field.transform, IdentityTransform) and value is not None
    }
    keys = {delete.path: columns_of(table, delete) for delete in _of(planned.deletes, Content.EQUALITY_DELETES)}
    deletes = tuple(delete.without_statistics() for delete in planned.deletes)
    return FileTask(file.without_statistics(), deletes, constants, keys, residual=planned.residual, io=planned.io)


def _joined(schema: Schema, other: Schema) -> Schema:
    """Return a schema with the columns of another one that it lacks."""
    return Schema(*schema.fields, *(field for field in other.fields if field.field_id not in schema.field_ids))


def _partition_fields(table: TableMetadata, file: FileEntry) -> Sequence[PartitionField]:
    spec = table.specs().get(file.spec_id)
    if spec is None or len(spec.fields) != len(file.partition):
        fields = "does not exist" if spec is None else f"has {len(spec.fields)} fields"
        raise StorageError(
            f"data file {redact_uri(file.path)} has {len(file.partition)} partition values, but partition spec "
            f"{file.spec_id} of the table {fields}",
            hint="its manifest is damaged, or another table's: roll the table back to a snapshot without it",
        )
    return spec.fields


def _of(deletes: Sequence[FileEntry], content: Content) -> list[FileEntry]:
    return [delete for delete in deletes if delete.content == content]


@dataclass(frozen=True)
class RowReader:
    """Reads rows of data files under one schema; picklable.

    Args:
        schema: The columns to read, of the table's schema.
        names: The table's name mapping, for files without field ids.
        dictionaries: True: yield columns that are stored with a small dictionary as dictionary arrays.
        row_filter: Row groups and pages without rows that match it are left out; other rows are not filtered.
        filter_schema: The schema whose names the filter uses; None = `schema`.
        count: Called with the number of rows of each batch that is read from a file; None = not counted.
    """

    schema: Schema
    names: tuple[MappedField, ...] = ()
    dictionaries: bool = False
    batch_rows: int = _BATCH_ROWS
    row_filter: BooleanExpression = _ALL_ROWS
    filter_schema: Schema | None = None
    count: Callable[[int], None] | None = None

    @classmethod
    def of(cls, table: TableMetadata, schema: Schema | None = None, variants_as_stored: bool = False) -> RowReader:
        """Return the reader of a table; `schema` None = its current one. See `rows_schema`."""
        return cls(rows_schema(schema or table.schema(), variants_as_stored), mapped_fields(table))

    def read(self, io: FileIO, task: FileTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a data file, or of its part, that no delete file deletes, in the file's order.

        Raises:
            SourceError: If a file is gone, damaged or in a format that can't be read.
            StorageError: If the storage fails, or the file has neither field ids nor a name mapping.
        """
        residual = task.residual
        schema = self.schema if residual is None else _joined(self.schema, residual.schema)
        with self._open(io, task) as file:
            for rows, _, kept in self._batches(io, task, file, schema):
                rows = rows if kept is None else rows.filter(pa.array(kept))
                if residual is not None:
                    rows = residual.kept(rows, schema).select([field.name for field in self.schema.fields])
                if rows.num_rows:
                    yield rows

    def rows_to_read(self, io: FileIO, task: FileTask) -> int:
        """Return how many rows of a data file `read` would read, those that are left out by pages not among them."""
        with self._open(io, task) as file:
            groups, ranges = self._matching(file)
            if groups is None:
                return len(file.positions)
            rows = {group: file.stored.groups[group].rows for group in groups}
            return sum(sum(map(len, ranges[group])) if group in ranges else rows[group] for group in groups)

    def read_located(
        self, io: FileIO, task: FileTask, chosen: Callable[[pa.RecordBatch], Mask], by: Schema | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """Yield some of the rows that `read` yields, each batch with their positions in the whole file.

        Args:
            task: The data file, a whole one.
            chosen: Which rows of a batch to yield; it is called with deleted rows, too.
            by: The columns that it is called with; the others are read of the rows to yield alone. None = all columns.
        """
        with self._open(io, task) as file:
            if by is None:
                yield from self._located(io, task, file, chosen, self.schema)
                return
            places = [positions for _, positions in self._located(io, task, file, chosen, by)]
            if places:
                yield from file.rows_at(self.schema, np.concatenate(places))

    def rows_at(self, io: FileIO, task: FileTask, positions: Positions) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """Yield some rows of a data file, deleted ones too, each batch with their positions in the whole file.

        Args:
            task: The data file, a whole one.
            positions: The rows' positions, ascending.
        """
        with self._open(io, task) as file:
            yield from file.rows_at(self.schema, positions)

    def _located(
        self, io: FileIO, task: FileTask, file: OpenDataFile, chosen: Callable[[pa.RecordBatch], Mask], schema: Schema
    ) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        for rows, first, kept in self._batches(io, task, file, schema):
            mask = chosen(rows)
            numbers = np.flatnonzero(mask if kept is None else mask & kept)
            if len(numbers):
                yield rows.take(pa.array(numbers)), first + numbers

    def _batches(
        self, io: FileIO, task: FileTask, file: OpenDataFile, schema: Schema
    ) -> Iterator[tuple[pa.RecordBatch, int, Mask | None]]:
        """Yield all rows, each batch with the position of its first row, and which rows are not deleted; None = all."""
        kept = ~self._deleted(io, task, file) if task.deletes else None
        first = file.positions.start if task.deletes else 0
        # A dictionary would keep the values of deleted rows, and so bring them into the files of a sink.
        dictionaries = self.dictionaries and kept is None and task.residual is None
        groups, ranges = self._matching(file)
        for batch, position in file.batches(schema, dictionaries, self.batch_rows, groups, ranges):
            self._note(batch)
            start = position - first
            yield batch, position, None if kept is None else kept[start : start + batch.num_rows]

    def read_deleted(self, io: FileIO, task: FileTask, by: FileTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task that the delete files of another task of the same file delete, in the file's order.

        Pages without such a row are not read.
        """
        with self._open(io, task) as file:
            deleted = self._deleted(io, by, file)
            if task.deletes and deleted.any():
                deleted &= ~self._deleted(io, task, file)
            first = file.positions.start
            groups, ranges = self._pages_of(file, np.flatnonzero(deleted))
            for batch, position in file.batches(self.schema, self.dictionaries, self.batch_rows, groups, ranges):
                self._note(batch)
                start = position - first
                yield batch.filter(pa.array(deleted[start : start + batch.num_rows]))

    def read_difference(self, io: FileIO, one: FileTask, other: FileTask | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that the deletes of one task leave, and those of another don't; None = all do."""
        if other is None:
            return self.read(io, one)
        # Those that both have delete the same rows.
        only_others = tuple(delete for delete in other.deletes if delete not in one.deletes)
        return self.read_deleted(io, one, replace(other, deletes=only_others))

    def _pages_of(self, file: OpenDataFile, rows: Positions) -> tuple[list[int], dict[int, list[range]]]:
        """Return the row groups of some rows of the part, and the rows of pages to read of them."""
        ids = {field.field_id for field in self.schema.fields}
        names = [field.name for field in file.fields if field.field_id in ids]
        borders = np.cumsum([0, *(file.stored.groups[group].rows for group in file.groups)])
        groups, ranges = list[int](), dict[int, list[range]]()
        for group, start, end in zip(file.groups, borders[:-1], borders[1:], strict=True):
            low, high = np.searchsorted(rows, (start, end))
            if low == high:
                continue
            groups.append(group)
            if (pages := file.pages_with(names, group, rows[low:high] - start)) is not None:
                ranges[group] = pages
        return groups, ranges

    def _note(self, batch: pa.RecordBatch) -> None:
        if self.count is not None:
            self.count(batch.num_rows)

    def deleted(self, io: FileIO, task: FileTask) -> Mask:
        """Return which rows of a task its delete files delete. Raises like `read`."""
        with self._open(io, task) as file:
            return self._deleted(io, task, file)

    def find(
        self, io: FileIO, task: FileTask, matches: Callable[[pa.Table], Positions], may_have: Predicate[FileEntry]
    ) -> Positions:
        """Return the positions of the rows that match in a data file, deleted ones too. Raises like `read`.

        Args:
            task: The data file, a whole one.
            matches: Returns the numbers of the matching rows of a table, ascending.
            may_have: Whether a file with some statistics may have matching rows.
        """
        return self.find_rows(io, task, matches, may_have)[0]

    def find_rows(
        self,
        io: FileIO,
        task: FileTask,
        matches: Callable[[pa.Table], Positions],
        may_have: Predicate[FileEntry],
        more: Schema | None = None,
    ) -> tuple[Positions, pa.Table]:
        """Return the positions of the rows that match in a data file, and these rows; see `find`.

        Args:
            more: The columns to return; None = those that `matches` is called with.
        """
        with self._open(io, task) as file:
            groups, ranges = self._parts_with(file, may_have)
            batches = list(file.batches(self.schema, False, self.batch_rows, groups, ranges))
            rows = pa.Table.from_batches((batch for batch, _ in batches), arrow_schema(self.schema))
            found = matches(rows)
            if len(found) == 0:
                return found, no_table(arrow_schema(more or self.schema))
            starts = np.cumsum([0, *(rows.num_rows for rows, _ in batches[:-1])])
            shifts = np.array([position for _, position in batches]) - starts
            positions: Positions = found + shifts[np.searchsorted(starts, found, "right") - 1]
            if more is None:
                return positions, rows.take(pa.array(found))
            return positions, pa.Table.from_batches(batch for batch, _ in file.rows_at(more, positions))

    def _parts_with(
        self, file: OpenDataFile, may_have: Predicate[FileEntry]
    ) -> tuple[list[int] | None, dict[int, list[range]]]:
        """Return the row groups and pages to read of a file; all of a small one, whose statistics cost more."""
        if not isinstance(file.stored, OpenParquet) or len(file.positions) <= _SMALL_ROWS:
            return None, {}
        ids = {field.field_id for field in self.schema.fields}
        return matching_parts(file.stored, file.paged, file.fields, file.groups, self.schema, may_have, ids)

    def _matching(self, file: OpenDataFile) -> tuple[list[int] | None, dict[int, list[range]]]:
        """Return the row groups that may have matching rows, and the rows of those of which most rows do not match."""
        parquet = file.stored
        if self.row_filter == _ALL_ROWS or not isinstance(parquet, OpenParquet):
            return None, {}
        schema = self.filter_schema or self.schema
        return matching_parts(parquet, file.paged, file.fields, file.groups, schema, *self._filter)

    @cached_property
    def _filter(self) -> tuple[Predicate[FileEntry], set[int]]:
        """Whether a part of a file may have rows that match the filter, and the ids of the fields that this names."""
        schema = self.filter_schema or self.schema
        return file_predicate(schema, self.row_filter), extract_field_ids(bind(schema, self.row_filter, True))

    def __getstate__(self) -> dict[str, Any]:
        # Without the compiled filter, which can't be pickled.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _open(self, io: FileIO, task: FileTask) -> AbstractContextManager[OpenDataFile]:
        return open_data_file(task.io or io, task.file, self.names, task.constants, task.part)

    def _deleted(self, io: FileIO, task: FileTask, file: OpenDataFile) -> Mask:
        rows, io = file.positions, task.io or io
        deleted = deleted_by_position(io, task.file.path, task.deletes, rows)
        equality = _of(task.deletes, Content.EQUALITY_DELETES)
        for positions in equal_positions(io, file, self.names, equality, task.keys):
            deleted[positions - rows.start] = True
        return deleted

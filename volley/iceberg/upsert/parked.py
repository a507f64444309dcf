"""First step of an upsert on executors: parks a task's rows by key in a temporary file beside the data files."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.locations import load_location_provider

from volley.columns.batches import conform
from volley.columns.compiled import whole
from volley.columns.keys.buckets import buckets_of, divided
from volley.columns.keys.equality import rows_among
from volley.columns.keys.normal import normal_rows
from volley.columns.uuids import stored
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import SchemaMismatchError
from volley.iceberg.modes import Upsert
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.write.writer import IcebergWriter

__all__ = [
    *("BUCKETS", "DELETED", "ORDER", "UNCHANGED"),
    *("KeyRange", "ParkedFile", "ParkingTaskWriter", "UpsertWriter", "is_partial", "lacks"),
    *("rekeyed_from", "truncates"),
]

BUCKETS = 32
"""The number of parts of a parked file, by a hash of the keys; a merge holds at least one part in memory."""

_DELETES, _TRUNCATES = pa.array(["d", "delete"]), pa.array(["t", "truncate"])
_BUFFER_BYTES = 64 << 20
_PIECES = 32
DELETED = "_volley_deleted"
"""The column of parked rows that marks deletions."""
ORDER = "_volley_order"
"""The column of parked rows with their order, if that is not a column of the table."""
UNCHANGED = "_volley_unchanged"
"""The column of parked rows with the names of the columns whose values are those of the replaced row."""
KeyRange = tuple[Any, Any]
"""A lowest and a highest value, in the form of Iceberg's bounds."""


@dataclass(frozen=True)
class ParkedFile:
    """A temporary file of one task's rows, one row group per key bucket; never part of a snapshot.

    Args:
        path: The file's path.
        buckets: The bucket of each row group.
        sizes: The size of each row group, in bytes.
        ranges: For each key column, ranges that contain its values; None = unknown.
        layout: The fingerprint of the layout that the rows will be written for.
        unchanged: The columns whose values some of the rows do not have.
        rekeyed: True if some of these rows had another key before.
        truncated: The order of the last truncation; None = there is none.
    """

    path: str
    buckets: tuple[int, ...]
    sizes: tuple[int, ...]
    ranges: tuple[tuple[KeyRange, ...] | None, ...]
    layout: str
    unchanged: frozenset[str] = frozenset()
    rekeyed: bool = False
    truncated: int | None = None


@dataclass(frozen=True)
class UpsertWriter(Writer):
    """Parks the rows of one epoch on executors. Picklable.

    Args:
        rows: The writer of the table's data files.
        mode: The key, order and operation columns.
    """

    suits_driver: ClassVar[bool] = True
    rows: IcebergWriter
    mode: Upsert

    def open(self, task: int) -> ParkingTaskWriter:
        return ParkingTaskWriter(self, f"{self.rows.file_prefix}{task:05}-{uuid.uuid4()}-parked.parquet")

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of parked rows; all columns are nullable, since a deletion needs only the keys."""
        order = [] if self.mode.write_order else [(ORDER, pa.int64())]
        unchanged = [] if self.mode.unchanged_field is None else [(UNCHANGED, pa.list_(pa.string()))]
        columns = (field.with_nullable(True) for field in self.rows.rows_schema)
        return pa.schema([*columns, (DELETED, pa.bool_()), *order, *unchanged])

    @property
    def order_by(self) -> str | None:
        """The column of parked rows that orders those of one key; None = their order of arrival."""
        return self.mode.order_by if self.mode.write_order else ORDER

    @property
    def keys(self) -> list[str]:
        return list(self.mode.keys)

    @cached_property
    def key_schema(self) -> pa.Schema:
        """The schema of the keys, with names that can't collide with ours; UUIDs as bytes, which Arrow can join."""
        columns = self.rows.rows_schema
        return pa.schema([(f"k{number}", stored(columns.field(key).type)) for number, key in enumerate(self.keys)])

    def location(self, name: str) -> str:
        """Return a path among the table's data files, where orphan files are searched."""
        return load_location_provider(self.rows.location, self.rows.table_properties).new_data_location(name)

    def to_parked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the schema of parked rows.

        Raises:
            SchemaMismatchError: If a key or a required column of the table is null.
            SourceError: If a value can't be cast without loss.
        """
        deleted = _deletions(batch, self.mode.op_field)
        rows = conform(batch, self.rows.rows_schema)
        for field, values in zip(self.rows.rows_schema, rows.columns, strict=True):
            if field.name in self.mode.keys and values.null_count:
                raise SchemaMismatchError(
                    f"key column {field.name!r} has {values.null_count} nulls: such rows can't be told apart",
                    hint="filter those rows out before the sink, or give the sink a dead letter",
                )
            if not field.nullable and pc.any(pc.and_(values.is_null(), self._must_have(batch, deleted, field))).as_py():
                raise SchemaMismatchError(
                    f"column {field.name!r} has nulls, the table requires values",
                    hint="filter those rows out before the sink, or make the table's column optional",
                )
        order = [] if self.mode.write_order else [batch.column(self.mode.order_by).cast(pa.int64())]
        unchanged = [] if self.mode.unchanged_field is None else [batch.column(self.mode.unchanged_field)]
        return pa.RecordBatch.from_arrays([*rows.columns, deleted, *order, *unchanged], schema=self.schema)

    def without_truncations(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int | None]:
        """Return the rows that are no truncations, and the order of the last one that is; None if there is none."""
        if self.mode.write_order or self.mode.op_field is None:
            return batch, None
        truncations = truncates(batch.column(self.mode.op_field))
        if truncations.true_count == 0:
            return batch, None
        orders = batch.column(self.mode.order_by).cast(pa.int64()).filter(truncations)
        return batch.filter(pc.invert(truncations)), pc.max(orders).as_py()

    def _must_have(self, batch: pa.RecordBatch, deleted: pa.BooleanArray, field: pa.Field) -> pa.BooleanArray:
        """Return for each row whether it must have a value of a required column."""
        if self.mode.unchanged_field is None:
            return pc.invert(deleted)
        return pc.invert(pc.or_(deleted, pa.array(lacks(batch.column(self.mode.unchanged_field), field.name))))

    def earlier(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the table in the schema of parked rows: they come before all others."""
        nulls = [pa.nulls(rows.num_rows, field.type) for field in self.schema][len(self.rows.rows_schema) :]
        nulls[0] = pa.repeat(pa.scalar(False), rows.num_rows)
        return pa.RecordBatch.from_arrays([*conform(rows, self.rows.rows_schema).columns, *nulls], schema=self.schema)

    def all_keys(self, files: Sequence[ParkedFile]) -> pa.Table:
        """Return the keys of all parked rows, with duplicates."""
        tables = [self._read(file, range(len(file.buckets)), self.keys) for file in files]
        return pa.concat_tables(tables).select(self.keys).rename_columns(self.key_schema.names)

    def partial_keys(self, files: Sequence[ParkedFile]) -> pa.Table:
        """Return the keys of the rows that have the values that others leave out, with duplicates.

        They are the keys of these rows, and those that they had before.
        """
        partial = [self.steps([file]) for file in files if file.unchanged]
        rows = pa.concat_tables([*(rows.filter(is_partial(rows)) for rows in partial), *map(rekeyed_from, partial)])
        return rows.select(self.keys).rename_columns(self.key_schema.names)

    def steps(self, files: Sequence[ParkedFile]) -> pa.Table:
        """Return of all parked rows the keys, and what tells how they follow from each other."""
        columns = [*self.keys, *self.schema.names[len(self.rows.rows_schema) :]]
        return pa.concat_tables(self._read(file, range(len(file.buckets)), columns) for file in files)

    def rows_of(self, files: Sequence[ParkedFile], keys: pa.Table) -> pa.Table:
        """Return the parked rows with one of these keys, in order of arrival."""
        names = self.key_schema.names
        chosen = [self.schema.empty_table()]
        for parked, group in ((file, group) for file in files for group in range(len(file.buckets))):
            rows = self._read(parked, [group], None)
            found = rows_among(normal_rows(rows.select(self.keys).rename_columns(names)), keys)
            chosen.append(rows.take(pa.array(found)))
        return pa.concat_tables(chosen)

    def bucket_rows(self, files: Sequence[ParkedFile], buckets: range) -> pa.Table:
        """Return the parked rows of some buckets, in order of arrival."""
        return pa.concat_tables(
            self._read(file, [number for number, bucket in enumerate(file.buckets) if bucket in buckets], None)
            for file in files
        )

    def _read(self, file: ParkedFile, groups: Sequence[int], columns: list[str] | None) -> pa.Table:
        with storage_errors(file.path, "reading"), self.rows.io.new_input(file.path).open() as stream:
            return pq.ParquetFile(stream).read_row_groups(list(groups), columns=columns)

    def __getstate__(self) -> dict[str, Any]:
        return {"rows": self.rows, "mode": self.mode}


def is_partial(rows: pa.Table) -> pa.ChunkedArray:
    """Return for each parked row whether it leaves out values."""
    return pc.greater(pc.list_value_length(rows[UNCHANGED]), 0).fill_null(False)


def rekeyed_from(rows: pa.Table) -> pa.Table:
    """Return the deletions among parked rows that come just before a row that leaves out values: it had their key."""
    if ORDER not in rows.column_names:
        return rows.slice(0, 0)
    partial = rows.filter(is_partial(rows))
    before = pc.is_in(rows[ORDER], pc.subtract(partial[ORDER], 1).combine_chunks())
    return rows.filter(pc.and_(rows[DELETED], before))


def lacks(unchanged: pa.ListArray, column: str) -> np.ndarray[Any, Any]:
    """Return for each row whether it does not have the value of a column."""
    missing = np.zeros(len(unchanged), np.bool_)
    of_column = pc.equal(pc.list_flatten(unchanged), column).fill_null(False)
    missing[pc.list_parent_indices(unchanged).filter(of_column).to_numpy()] = True
    return missing


def _deletions(batch: pa.RecordBatch, op_field: str | None) -> pa.BooleanArray:
    """Return for each row whether it is a deletion."""
    if op_field is None:
        return pa.repeat(pa.scalar(False), batch.num_rows)
    operations = batch.column(op_field)
    if not pa.types.is_boolean(operations.type):
        operations = _has_operation(operations, _DELETES)
    return operations.fill_null(False)


def truncates(operations: pa.Array) -> pa.BooleanArray:
    """Return for each operation of a row whether it is a truncation."""
    return _has_operation(operations, _TRUNCATES)


def _has_operation(operations: pa.Array, names: pa.Array) -> pa.BooleanArray:
    """Return for each operation whether it has one of these names, in any case."""
    if pa.types.is_boolean(operations.type):
        return pa.repeat(pa.scalar(False), len(operations))
    return pc.is_in(pc.utf8_lower(operations.cast(pa.string())), names)


class ParkingTaskWriter(TaskWriter):
    """Parks the rows of one task attempt; up to 64 MiB of them are in memory."""

    def __init__(self, writer: UpsertWriter, name: str) -> None:
        self._writer = writer
        self._path = writer.location(name)
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._stream: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._buckets: list[int] = []
        self._ranges: list[list[KeyRange] | None] = [[] for _ in writer.keys]
        self._unchanged: set[str] = set()
        self._is_rekeyed = False
        self._last: list[pa.RecordBatch] = []
        self._truncated: int | None = None
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.to_parked(self._writer.without_truncations(batch)[0])

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        changes, truncated = self._writer.without_truncations(batch)
        if truncated is not None:
            self._truncated = truncated if self._truncated is None else max(truncated, self._truncated)
        rows = self._writer.to_parked(changes)
        if self._writer.mode.unchanged_field is not None:
            self._note_unchanged(rows)
        self.park(rows)
        self._result = self._result.with_batch(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def _note_unchanged(self, rows: pa.RecordBatch) -> None:
        unchanged = {*pc.unique(pc.list_flatten(rows[UNCHANGED])).to_pylist()}
        if unchanged and not self._is_rekeyed:
            # A row that had another key follows its deletion, perhaps in the batch before.
            both = pa.Table.from_batches([*self._last, rows])
            self._is_rekeyed = rekeyed_from(both).num_rows > 0
        self._unchanged |= unchanged
        self._last = [rows.slice(max(0, rows.num_rows - 1))]

    def park(self, rows: pa.RecordBatch) -> None:
        """Add rows in the schema of parked rows."""
        if rows.num_rows == 0:
            return
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _BUFFER_BYTES:
            self._flush()

    def close(self) -> WriteResult:
        began = time.perf_counter()
        self._flush()
        if self._truncated is not None:
            self._open()
        files = (self._finished(self._parquet),) if self._parquet else ()
        return replace(self._result, seconds=self._seconds + time.perf_counter() - began, committables=files)

    def abort(self) -> None:
        # Ignore errors: the attempt has failed already.
        for part in (self._parquet, self._stream):
            with suppress(Exception):
                part.close()  # type: ignore[union-attr]
        with suppress(Exception):
            self._writer.rows.io.delete(self._path)

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held).combine_chunks()
        self._held, self._bytes = [], 0
        keys = normal_rows(rows.select(self._writer.keys))
        self._note_ranges(keys)
        by_bucket = divided(rows, buckets_of(list(map(whole, keys.columns)), BUCKETS, keys.num_rows))
        with storage_errors(self._path):
            for bucket, part in by_bucket.parts():
                self._open().write_table(part, row_group_size=part.num_rows)
                self._buckets.append(bucket)

    def _open(self) -> pq.ParquetWriter:
        if self._parquet is None:
            self._stream = self._writer.rows.io.new_output(self._path).create(overwrite=True)
            # Read once and deleted: dictionaries and statistics would cost more than they save.
            self._parquet = pq.ParquetWriter(
                self._stream, self._writer.schema, compression="lz4", use_dictionary=False, write_statistics=False
            )
        return self._parquet

    def _note_ranges(self, keys: pa.Table) -> None:
        for number, column in enumerate(keys.columns):
            known, new = self._ranges[number], _ranges(column)
            self._ranges[number] = None if known is None or new is None else known + new

    def _finished(self, parquet: pq.ParquetWriter) -> ParkedFile:
        with storage_errors(self._path, "closing"):
            parquet.close()
            self._stream.close()
        groups = parquet.writer.metadata
        return ParkedFile(
            self._path,
            tuple(self._buckets),
            tuple(groups.row_group(number).total_byte_size for number in range(groups.num_row_groups)),
            tuple(None if ranges is None else tuple(ranges) for ranges in self._ranges),
            self._writer.rows.layout.fingerprint,
            frozenset(self._unchanged),
            self._is_rekeyed,
            self._truncated,
        )


def _as_numbers(column: pa.ChunkedArray) -> np.ndarray[Any, Any] | None:
    """Return whole numbers, dates and times as Iceberg's integers; None for other types."""
    data_type = column.type
    if pa.types.is_date32(data_type):
        column = column.cast(pa.int32())
    elif not (pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type)):
        return None
    return np.asarray(column.cast(pa.int64()).to_numpy())


def _ranges(column: pa.ChunkedArray) -> list[KeyRange] | None:
    """Return ranges that contain all values; several for numbers, so that gaps between them are known."""
    numbers = _as_numbers(column)
    if numbers is not None:
        pieces = np.array_split(np.sort(numbers), min(_PIECES, len(numbers)))
        return [(int(piece[0]), int(piece[-1])) for piece in pieces]
    try:
        limits = pc.min_max(column).as_py()
    except pa.ArrowNotImplementedError:
        return None
    return [(limits["min"], limits["max"])]

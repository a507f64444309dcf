"""The changes of an epoch by key: each task writes its own to a temporary file, which further tasks read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from volley.columns.batches import conform, no_rows
from volley.columns.exact import stored
from volley.columns.keys.buckets import buckets_of, divided
from volley.columns.keys.equality import rows_among
from volley.columns.keys.normal import normal_rows
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import SchemaMismatchError, StorageError
from volley.iceberg.modes import History, KeyedMode
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.upsert.columns import check_nulls, deletions, truncates, with_computed, without_earlier
from volley.iceberg.upsert.incomplete import UNCHANGED, check_whole, ignores_nulls, is_incomplete, lacks, unchanged_in
from volley.iceberg.upsert.ranges import KeyRange, ranges_of
from volley.iceberg.write.defaults import defaults_of, with_defaults
from volley.iceberg.write.variants import with_variants
from volley.iceberg.write.writer import IcebergWriter
from volley.storage.envelope import StateFormat
from volley.store.batch_file import BatchFileWriter, open_batches
from volley.store.files import checked

__all__ = [
    *("BUCKETS", "DELETED", "EVERYWHERE", "ORDER", "STORED_AT", "STORED_ID", "STORED_IN"),
    *("ChangeFile", "ChangeWriter", "UpsertWriter", "are_changes", "damaged", "read_all_changes"),
]

BUCKETS = 32
"""The number of parts of a change file, by a hash of the keys; a merge holds at least one part in memory."""
EVERYWHERE = BUCKETS
"""The part of a change file with the truncates of a history: deletions without keys, which concern all buckets."""
DELETED = "_volley_deleted"
"""The column of changes that tells deletions."""
ORDER = "_volley_order"
"""The column of changes with their order, if that is not a column of the table."""
STORED_IN, STORED_AT, STORED_ID = "_volley_stored_in", "_volley_stored_at", "_volley_stored_id"
"""The columns of changes by sequence with the file, by its number, and the position of a row that the table has
already, and with its id, if rows have ids, which the row that replaces it takes; null for new changes."""

_NAME_END = "-changes"
_FORMAT = StateFormat("upsert-changes")
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_BUFFER_BYTES = 64 << 20


@dataclass(frozen=True)
class ChangeFile:
    """A temporary file of one task's changes; never part of a snapshot.

    It has two batches for each part of a bucket: keys with what a change does, and the other columns, which most tasks
    need not read.

    Args:
        rows: The number of changes of each part.
        sizes: The size of each part in Arrow bytes.
        ranges: For each column of `UpsertWriter.searched`, ranges that contain its values; None = unknown.
        layout: The fingerprint of the layout that the rows will be written for.
        unchanged: The columns that some of the changes leave out.
        moves: True if some of these give a row another key.
        truncated: The order of the last truncation; None = there is none.
    """

    path: str
    buckets: tuple[int, ...]
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    ranges: tuple[tuple[KeyRange, ...] | None, ...]
    layout: str
    unchanged: frozenset[str] = frozenset()
    moves: bool = False
    truncated: int | None = None

    @property
    def concerns_all(self) -> bool:
        """True if some of the changes concern the rows of all keys."""
        return self.truncated is not None or EVERYWHERE in self.buckets


@dataclass(frozen=True)
class UpsertWriter(Writer):
    """Writes the changes of one epoch on executors, and reads them. Picklable."""

    suits_driver: ClassVar[bool] = True
    rows: IcebergWriter
    mode: KeyedMode

    def open(self, task: int) -> ChangeWriter:
        # Table buckets of SeaweedFS take no file with an extension that Iceberg's data files don't have.
        return ChangeWriter(self, self.rows.new_path(f"{task:05}-{uuid.uuid4()}{_NAME_END}"))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of changes; all columns are nullable, since a deletion needs only the keys."""
        order = [] if self.mode.write_order else [(ORDER, pa.int64())]
        unchanged = [(UNCHANGED, pa.list_(pa.string()))] if self.mode.is_partial else []
        stored_in = [(STORED_IN, pa.int32()), (STORED_AT, pa.int64())] if self.mode.sequence else []
        row_ids = [(STORED_ID, pa.int64())] if self.mode.sequence and self.rows.has_row_ids else []
        columns = (field.with_nullable(True) for field in self.rows.rows_schema)
        return pa.schema([*columns, (DELETED, pa.bool_()), *order, *unchanged, *stored_in, *row_ids])

    @property
    def order_by(self) -> str | None:
        """The column that orders the changes of one key; None = their order of arrival."""
        return self.mode.order_by if self.mode.write_order else ORDER

    @property
    def keys(self) -> list[str]:
        return list(self.mode.keys)

    @cached_property
    def key_schema(self) -> pa.Schema:
        """The schema of the keys, with names that can't collide with ours; UUIDs as bytes, which Arrow can join."""
        columns = self.rows.rows_schema
        return pa.schema([(f"k{number}", stored(columns.field(key).type)) for number, key in enumerate(self.keys)])

    def keys_of(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the keys of rows, under the names of `key_schema`."""
        keys = rows.select(self.keys).rename_columns(self.key_schema.names)
        return pa.Table.from_batches([keys]) if isinstance(keys, pa.RecordBatch) else keys

    def changes_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the stream's rows as changes.

        Raises:
            SchemaMismatchError: If a key, a sequence or a required column of the table is null, or if a row of a
                history leaves out values.
            SourceError: If a value can't be cast without loss.
        """
        batch = without_earlier(batch, self.mode)
        deleted = deletions(batch, self.mode.op_field)
        check_whole(batch, deleted, self.mode)
        rows = with_computed(self.mode, batch)
        whole = with_defaults(rows, self.rows.schema)
        # A row with a part of the columns leaves the others as they are.
        given = whole.select(rows.schema.names) if self.mode.is_partial else whole
        rows = conform(with_variants(given, self.rows.schema), self.rows.rows_schema)
        unchanged = unchanged_in(rows, batch, deleted, self.mode)
        rows = self._if_new(rows, given)
        for field, values in zip(self.rows.rows_schema, rows.columns, strict=True):
            check_nulls(self.mode, field.name, values.null_count)
            if (
                field.name not in self.mode.own_columns
                and not field.nullable
                and pc.any(pc.and_(values.is_null(), self._must_have(unchanged, deleted, field))).as_py()
            ):
                raise SchemaMismatchError(
                    f"column {field.name!r} has nulls, the table requires values",
                    hint="filter those rows out before the sink, or make the table's column optional",
                )
        order = [] if self.mode.write_order else [self._orders_of(batch)]
        columns = [*rows.columns, deleted, *order, *([] if unchanged is None else [unchanged])]
        stored_in = (pa.nulls(batch.num_rows, field.type) for field in list(self.schema)[len(columns) :])
        return pa.RecordBatch.from_arrays([*columns, *stored_in], schema=self.schema)

    def _orders_of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return what orders the changes of a key; by operations, a row is deleted before another one comes."""
        if self.mode.order_by == self.mode.op_field:
            return pc.invert(deletions(batch, self.mode.op_field)).cast(pa.int64())
        return batch.column(self.mode.order_by).cast(pa.int64())

    def _if_new(self, rows: pa.RecordBatch, given: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with defaults for the values that they leave as they are: those of a new key get them."""
        for name in self.defaults if self.mode.is_partial else ():
            if name not in given.schema.names or ignores_nulls(self.mode, name):
                number = rows.schema.get_field_index(name)
                values = self.or_default(name, rows.column(number), rows.column(number).is_null())
                rows = rows.set_column(number, rows.schema.field(number), values)
        return rows

    def or_default(self, name: str, values: pa.Array, lacking: pa.BooleanArray) -> pa.Array:
        """Return values of a column, with its default, if it has one, where they are lacking."""
        if (default := self.defaults.get(name)) is None:
            return values
        places = pc.if_else(lacking, len(values), pa.array(np.arange(len(values))))
        return pa.concat_arrays([values, default]).take(places)

    @cached_property
    def defaults(self) -> dict[str, pa.Array]:
        """The defaults of the table's columns, each an array of one value."""
        row = defaults_of(self.rows.schema)
        row = conform(row, pa.schema([self.rows.rows_schema.field(name) for name in row.schema.names]))
        return dict(zip(row.schema.names, row.columns, strict=True))

    def _must_have(self, unchanged: pa.ListArray | None, deleted: pa.BooleanArray, field: pa.Field) -> pa.BooleanArray:
        """Return for each row whether it must have a value of a required column."""
        if unchanged is None or self.mode.sequence is not None:
            return pc.invert(deleted)
        return pc.invert(pc.or_(deleted, pa.array(lacks(unchanged, field.name))))

    @cached_property
    def written(self) -> frozenset[str]:
        """The table's columns."""
        return frozenset(self.rows.rows_schema.names)

    def truncations_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the truncations among the stream's rows as changes without keys, which a history has.

        Raises:
            SchemaMismatchError: If a sequence is null.
            SourceError: If a value can't be cast without loss.
        """
        if not isinstance(self.mode, History) or self.mode.op_field is None:
            return no_rows(self.schema)
        found = with_computed(self.mode, batch.filter(truncates(batch.column(self.mode.op_field))))
        rows = found.select(self.mode.sequence_fields)
        for name, values in zip(rows.schema.names, rows.columns, strict=True):
            check_nulls(self.mode, name, values.null_count)
        return conform(rows.append_column(DELETED, pa.repeat(pa.scalar(True), rows.num_rows)), self.schema)

    def without_truncations(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int | None]:
        """Return the rows that are no truncations, and the order of the last one that is; None if there is none."""
        if self.mode.op_field is None:
            return batch, None
        if isinstance(self.mode, History):
            return batch.filter(pc.invert(truncates(batch.column(self.mode.op_field)))), None
        if self.mode.write_order:
            return batch, None
        truncations = truncates(batch.column(self.mode.op_field))
        if truncations.true_count == 0:
            return batch, None
        orders = self._orders_of(batch).filter(truncations)
        return batch.filter(pc.invert(truncations)), pc.max(orders).as_py()

    def stored_as_changes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the table as changes: without an order, they come before all others."""
        return conform(rows.append_column(DELETED, pa.repeat(pa.scalar(False), rows.num_rows)), self.schema)

    def all_keys(self, files: Sequence[ChangeFile]) -> pa.Table:
        """Return the keys of all changes, with duplicates."""
        return self.keys_of(self.marked_keys(files))

    def truncations_in(self, files: Sequence[ChangeFile]) -> pa.Table:
        """Return the truncations of a history: their sequences, and no keys."""
        parts = (part for file in files for part in self._read(file, range(EVERYWHERE, EVERYWHERE + 1), only_keys=True))
        return pa.Table.from_batches(parts, self._marked_keys)

    def incomplete_keys(self, files: Sequence[ChangeFile]) -> pa.Table:
        """Return the keys of the rows that have the values that changes leave out, with duplicates.

        They are the keys of these changes, and those that their rows had before.
        """
        tables = [self.marked_keys([file]) for file in files if file.unchanged]
        incomplete = (rows.filter(is_incomplete(rows)) for rows in tables)
        return self.keys_of(pa.concat_tables([*incomplete, *map(self.moves, tables)]))

    def moves(self, changes: pa.Table) -> pa.Table:
        """Return the deletions whose rows got another key: those just before an incomplete change, of that key."""
        if self.mode.unchanged_field is None or ORDER not in changes.column_names:
            return changes.slice(0, 0)
        incomplete = changes.filter(is_incomplete(changes))
        before = pc.is_in(changes[ORDER], pc.subtract(incomplete[ORDER], 1).combine_chunks())
        return changes.filter(pc.and_(changes[DELETED], before))

    def marked_keys(self, files: Sequence[ChangeFile]) -> pa.Table:
        """Return the keys of all changes, and what tells how they follow from each other."""
        parts = (part for file in files for part in self._read(file, only_keys=True))
        return pa.Table.from_batches(parts, self._marked_keys)

    def changes_with(self, files: Sequence[ChangeFile], keys: pa.Table) -> pa.Table:
        """Return the changes with one of these keys, in order of arrival."""
        parts = (part for file in files for part in self._read(file))
        matches = (part.take(pa.array(rows_among(normal_rows(self.keys_of(part)), keys))) for part in parts)
        return pa.Table.from_batches(matches, self.schema)

    def changes_in(self, files: Sequence[ChangeFile], buckets: range) -> pa.Table:
        """Return the changes of some buckets, in order of arrival, and those that concern all."""
        return pa.Table.from_batches(
            (part for file in files for part in self._read(file, {*buckets, EVERYWHERE})), self.schema
        )

    @cached_property
    def searched(self) -> list[str]:
        """The columns whose ranges tell which data files matter: the keys, and the first one of a history's order."""
        return [*self.keys, *(self.mode.sequence_fields[:1] if isinstance(self.mode, History) else ())]

    def halves(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the two batches of a part of a file."""
        first = self._marked_keys.names
        return changes.select(first), changes.select([name for name in self.schema.names if name not in first])

    @cached_property
    def _marked_keys(self) -> pa.Schema:
        marks = self.schema.names[len(self.rows.rows_schema) :]
        return pa.schema([self.schema.field(name) for name in (*self.keys, *self.mode.sequence_fields, *marks)])

    def _read(
        self, file: ChangeFile, buckets: Container[int] = range(BUCKETS), only_keys: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the parts of a file that are in some buckets."""
        schema = self._marked_keys if only_keys else self.schema
        opened = self.rows.io.new_input(file.path).open
        with storage_errors(file.path, "reading"), opened() as stream, checked(file.path, damaged):
            batches = open_batches(pa.PythonFile(stream, "r"), _FORMAT, file.path)
            for number in (number for number, bucket in enumerate(file.buckets) if bucket in buckets):
                halves = [batches.batch(2 * number + half) for half in range(1 if only_keys else 2)]
                columns = {name: half.column(name) for half in halves for name in half.schema.names}
                # Changes that were written before the table was upgraded have no columns of ids.
                yield conform(pa.RecordBatch.from_pydict(columns), schema)

    def __getstate__(self) -> dict[str, Any]:
        return {"rows": self.rows, "mode": self.mode}


def are_changes(path: str) -> bool:
    """Return True if a file has changes of an epoch, by its name."""
    return path.endswith(_NAME_END)


def read_all_changes(io: FileIO, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the changes in a file that a dead task has left.

    Raises:
        StorageError: If it can't be read.
    """
    with storage_errors(path, "reading"), io.new_input(path).open() as stream, checked(path, damaged):
        batches = open_batches(pa.PythonFile(stream, "r"), _FORMAT, path)
        for number in range(0, len(batches), 2):
            halves = [batches.batch(number + half) for half in range(2)]
            yield pa.RecordBatch.from_pydict({name: half.column(name) for half in halves for name in half.schema.names})


def damaged(path: str, fault: str) -> StorageError:
    """Return the error for a temporary file of an epoch with a fault."""
    return StorageError(
        f"the changes in {path}: the file {fault}",
        hint="nothing was committed; start the job again, it writes the epoch anew",
    )


class ChangeWriter(TaskWriter):
    """Writes the changes of one task attempt to a file; up to 64 MiB of them are in memory."""

    def __init__(self, writer: UpsertWriter, path: str) -> None:
        self._writer = writer
        self._path = path
        self._stream: Any = None
        self._file: BatchFileWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._parts: list[tuple[int, int, int]] = []
        self._ranges: list[list[KeyRange] | None] = [[] for _ in writer.searched]
        self._unchanged: set[str] = set()
        self._moves = False
        self._last: list[pa.RecordBatch] = []
        self._truncations: list[int] = []
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.changes_of(self._writer.without_truncations(batch)[0])
        self._writer.truncations_of(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        rows, truncated = self._writer.without_truncations(batch)
        if truncated is not None:
            self._truncations.append(truncated)
        changes = self._writer.changes_of(rows)
        if self._writer.mode.is_partial:
            self._note_unchanged(changes)
        self.add(changes)
        self.add(self._writer.truncations_of(batch))
        self._result = self._result.with_batch(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def _note_unchanged(self, changes: pa.RecordBatch) -> None:
        named = pc.unique(pc.list_flatten(changes[UNCHANGED])).to_pylist()
        unchanged = self._writer.written.intersection(named)
        if unchanged and not self._moves:
            # The deletion of the earlier key comes just before, perhaps in the batch before.
            self._moves = self._writer.moves(pa.Table.from_batches([*self._last, changes])).num_rows > 0
        self._unchanged |= unchanged
        self._last = [changes.slice(max(0, changes.num_rows - 1))]

    def add(self, changes: pa.RecordBatch) -> None:
        """Add changes."""
        if changes.num_rows == 0:
            return
        self._waiting.append(changes)
        self._bytes += changes.nbytes
        if self._bytes >= _BUFFER_BYTES:
            self._flush()

    def add_all(self, changes: Iterable[pa.RecordBatch]) -> WriteResult:
        """Write changes, and close the file, whose ranges nobody asks for."""
        self._ranges = [None] * len(self._ranges)
        try:
            for batch in changes:
                self.add(batch)
            return self.close()
        except BaseException:
            self.abort()
            raise

    def close(self) -> WriteResult:
        began = time.perf_counter()
        self._flush()
        if self._truncations:
            self._open()
        files = () if self._file is None else (self._finished(self._file),)
        return replace(self._result, seconds=self._seconds + time.perf_counter() - began, committables=files)

    def abort(self) -> None:
        # Ignore errors: the attempt has failed already.
        with suppress(Exception):
            self._stream.close()
        with suppress(Exception):
            self._writer.rows.io.delete(self._path)

    def _flush(self) -> None:
        if not self._waiting:
            return
        changes = pa.concat_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        searched = normal_rows(changes.select(self._writer.searched))
        self._note_ranges(searched)
        buckets = buckets_of(searched.columns[: len(self._writer.keys)], BUCKETS, changes.num_rows)
        if searched.column(0).null_count:
            buckets[searched.column(0).is_null().to_numpy(zero_copy_only=False)] = EVERYWHERE
        with storage_errors(self._path):
            for bucket, part in divided(changes, buckets).parts():
                for half in self._writer.halves(part):
                    self._open().write_batch(half)
                self._parts.append((bucket, part.num_rows, part.nbytes))

    def _open(self) -> BatchFileWriter:
        if self._file is None:
            self._stream = self._writer.rows.io.new_output(self._path).create(overwrite=True)
            self._file = BatchFileWriter(self._stream, _FORMAT, _LZ4)
        return self._file

    def _note_ranges(self, searched: pa.RecordBatch) -> None:
        for number, column in enumerate(searched.columns):
            if (known := self._ranges[number]) is not None:
                new = ranges_of(column.drop_null() if column.null_count else column)
                self._ranges[number] = None if new is None else known + new

    def _finished(self, file: BatchFileWriter) -> ChangeFile:
        with storage_errors(self._path, "closing"):
            file.close()
            self._stream.close()
        return ChangeFile(
            self._path,
            buckets=tuple(bucket for bucket, _, _ in self._parts),
            rows=tuple(rows for _, rows, _ in self._parts),
            sizes=tuple(size for _, _, size in self._parts),
            ranges=tuple(None if ranges is None else tuple(ranges) for ranges in self._ranges),
            layout=self._writer.rows.layout.fingerprint,
            unchanged=frozenset(self._unchanged),
            moves=self._moves,
            truncated=max(self._truncations, default=None),
        )

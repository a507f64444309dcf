"""Writes the rows of a task to the tables that they name; parks those whose table can't take them yet."""

from __future__ import annotations

import pickle
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.roles import ChangeColumns
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import ConfigError, SchemaMismatchError, VolleyError
from volley.formats.packed_rows import key_fields_of, unpack_rows
from volley.iceberg.modes import History, KeyedMode
from volley.iceberg.route.parking import ParkingWriter
from volley.iceberg.route.routing import Routing
from volley.iceberg.route.rows import Keys, divide, keys_of, written
from volley.iceberg.upsert.changes import UpsertWriter
from volley.iceberg.upsert.columns import check_nulls, truncates
from volley.iceberg.write.writer import IcebergWriter

__all__ = ["RouteResult", "RoutedWriter", "TableWriter", "TableWriters"]

TableWriter = IcebergWriter | UpsertWriter
_HELD_ROWS = 131_072
_HELD_BYTES = 32 << 20
# The Arrow bytes that a task's open writers may hold together; then the fullest one closes its file.
_OPEN_BYTES = 256 << 20
_OTHER_NAMES = r"""the route may tell other names: routed(col("name").str.replace_pattern(r"[^\w.]", "_"))"""


@dataclass(frozen=True)
class RouteResult:
    """What one task wrote for one table; its committables may be `ParkedRows`, in the rows' order of arrival."""

    key: str
    result: WriteResult


@dataclass(frozen=True)
class TableWriters:
    """The tables of an epoch, by the keys of their rows; a key that is in none of them is a new table's.

    Args:
        open: The pickled writer of each table, with the schema of the rows that it takes. Each is unpickled only where
            a task has rows for it.
        landed: The keys of tables that have the epoch already.
        waiting: The keys of known tables whose rows are parked in this epoch.
    """

    open: Mapping[str, bytes]
    landed: frozenset[str]
    waiting: frozenset[str]

    def __contains__(self, key: str) -> bool:
        return key in self.open or key in self.waiting or key in self.landed

    def __len__(self) -> int:
        return len(self.open) + len(self.landed) + len(self.waiting)


@dataclass(frozen=True)
class RoutedWriter(Writer):
    """Opens the writers of one epoch's tasks. Picklable.

    Args:
        parking: What the URLs of the epoch's parked rows start with.
    """

    suits_driver: ClassVar[bool] = True
    routing: Routing
    schema: pa.Schema
    tables: TableWriters
    parking: str
    file_prefix: str

    def open(self, task: int) -> _RoutedTask:
        return _RoutedTask(self, task)

    @cached_property
    def keys(self) -> Keys:
        """Computes the keys of rows."""
        return keys_of(self.routing.names, self.schema)

    def tabled(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one table as they are written: without the omitted columns, or unpacked."""
        packed = self.routing.rows
        if packed is None:
            yield rows.select(written(self.routing, rows.schema).names)
            return
        for value in rows.column(packed):
            if value.is_valid:
                yield from (batch for batch in unpack_rows(value.as_buffer()) if batch.num_rows)

    def writer_of(self, key: str) -> tuple[TableWriter, pa.Schema]:
        """Return the writer of a table for this epoch, and the schema of the rows that it takes."""
        writer, schema = pickle.loads(self.tables.open[key])
        return _for_epoch(writer, self.file_prefix), schema

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _for_epoch(writer: TableWriter, file_prefix: str) -> TableWriter:
    """Return the writer for another epoch, whose files have this prefix."""
    if isinstance(writer, UpsertWriter):
        return replace(writer, rows=replace(writer.rows, file_prefix=file_prefix))
    return replace(writer, file_prefix=file_prefix)


@dataclass
class _Open:
    """An open writer of one table: the table's own, or one that parks."""

    writer: TaskWriter
    parks: bool
    nbytes: int = 0


class _RoutedTask(TaskWriter):
    """One task attempt. Holds rows until there are enough to divide: dividing few costs as much as dividing many.

    A table's writer is closed before its time if too many are open, or if all of them together hold too much.
    """

    def __init__(self, epoch: RoutedWriter, task: int) -> None:
        self._epoch = epoch
        self._names = epoch.routing.names
        self._task = task
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._writers: dict[str, tuple[TableWriter, pa.Schema]] = {}
        self._checked: set[str] = set()
        self._parked: set[str] = set()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._closed: list[TaskWriter] = []
        self._results: dict[str, list[WriteResult]] = {}
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        for key, rows in divide(batch, self._epoch.keys):
            self._check_name(key)
            with self._named(key):
                for part in self._epoch.tabled(rows):
                    if self._fits(key, part.schema):
                        self._opened(key, part.schema).writer.check(part)
                    elif key not in self._epoch.tables.landed:
                        self._check_keys(key, part)

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= _HELD_ROWS or self._held_bytes >= _HELD_BYTES:
            self._divide()
        self._result = self._result.with_batch(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        began = time.perf_counter()
        try:
            self._divide()
            while self._open:
                self._close(next(iter(self._open)))
        except BaseException:
            self.abort()
            raise
        routes = tuple(RouteResult(key, _merged(results)) for key, results in self._results.items())
        if not routes:
            return self._result
        total = _merged([route.result for route in routes])
        return replace(
            self._result,
            rows=total.rows,
            bytes=total.bytes,
            files=total.files,
            seconds=self._seconds + time.perf_counter() - began,
            committables=routes,
        )

    def abort(self) -> None:
        for writer in (*self._closed, *(opened.writer for opened in self._open.values())):
            writer.abort()

    def _divide(self) -> None:
        if not self._held:
            return
        batch = self._held[0] if len(self._held) == 1 else pa.concat_batches(self._held)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        for key, rows in divide(batch, self._epoch.keys):
            self._check_name(key)
            if key not in self._epoch.tables.landed:
                with self._named(key):
                    for part in self._epoch.tabled(rows):
                        self._write(key, part)

    def _write(self, key: str, rows: pa.RecordBatch) -> None:
        opened = self._opened(key, rows.schema)
        opened.writer.write(rows)
        opened.nbytes += rows.nbytes
        if sum(other.nbytes for other in self._open.values()) > _OPEN_BYTES and len(self._open) > 1:
            self._close(max(self._open, key=lambda other: self._open[other].nbytes))

    def _opened(self, key: str, schema: pa.Schema) -> _Open:
        """Return the open writer of a table. After a row of it that is parked, all are, to keep their order."""
        parks = key in self._parked or not self._fits(key, schema)
        if key in self._open and self._open[key].parks != parks:
            self._close(key)
        if key not in self._open:
            if len(self._open) >= self._epoch.routing.max_open_writers:
                self._close(next(iter(self._open)))
            self._open[key] = _Open(self._new_writer(key, parks), parks)
        if parks:
            self._parked.add(key)
        self._open.move_to_end(key)
        return self._open[key]

    def _new_writer(self, key: str, parks: bool) -> TaskWriter:
        if parks:
            return ParkingWriter(f"{self._epoch.parking}{self._task:05}-")
        return self._writer(key)[0].open(self._task)

    def _writer(self, key: str) -> tuple[TableWriter, pa.Schema]:
        if key not in self._writers:
            self._writers[key] = self._epoch.writer_of(key)
        return self._writers[key]

    def _fits(self, key: str, schema: pa.Schema) -> bool:
        """Return True if the table takes rows of this schema as it is: it has all of their columns."""
        if key not in self._epoch.tables.open:
            return False
        known = self._writer(key)[1]
        return all(
            known.get_field_index(field.name) >= 0 and known.field(field.name).type == field.type for field in schema
        )

    def _close(self, key: str) -> None:
        opened = self._open.pop(key)
        self._closed.append(opened.writer)
        with self._named(key):
            result = opened.writer.close()
        if result.committables:
            self._results.setdefault(key, []).append(result)

    def _check_name(self, key: str) -> None:
        if key in self._checked:
            return
        try:
            self._names.identifier(key)
        except ConfigError as error:
            raise SchemaMismatchError(
                f"rows name a table that can't be: {error.message}", hint=f"{error.hint}; {_OTHER_NAMES}"
            ) from error
        self._checked.add(key)
        new = sum(other not in self._epoch.tables for other in self._checked)
        if len(self._epoch.tables) + new > self._epoch.routing.limit:
            raise ConfigError(
                f"rows name more than {self._epoch.routing.limit} tables, the last one {key!r}",
                hint="raise the sink's limit, or route by a column with fewer values",
            )

    @contextmanager
    def _named(self, key: str) -> Iterator[None]:
        """Name the table in errors of its rows."""
        try:
            yield
        except VolleyError as error:
            name = ".".join(self._names.identifier(key))
            if name in error.message:
                raise
            raise error.within(f"table {name}") from error

    def _check_keys(self, key: str, rows: pa.RecordBatch) -> None:
        mode = self._epoch.routing.key_fields.mode_of(self._names.identifier(key), key_fields_of(rows.schema))
        operation = mode.op_field if isinstance(mode, History) else None
        if (operation := operation or ChangeColumns.of(rows.schema).operation) is not None:
            rows = rows.filter(pc.invert(truncates(rows.column(operation))))
        if isinstance(mode, KeyedMode):
            for name, values in zip(rows.schema.names, rows.columns, strict=True):
                check_nulls(mode, name, values.null_count)


def _merged(results: Sequence[WriteResult]) -> WriteResult:
    """Return several results of one table as one."""
    return WriteResult(
        rows=sum(result.rows for result in results),
        bytes=sum(result.bytes for result in results),
        files=sum(result.files for result in results),
        seconds=sum(result.seconds for result in results),
        committables=tuple(file for result in results for file in result.committables),
    )

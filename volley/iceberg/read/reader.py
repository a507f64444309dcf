"""Runs an IcebergSource: asks the catalog for new snapshots, plans their files as splits, reads these as Arrow."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from volley.columns.nodes import CompiledSteps
from volley.contracts.reports import Lag
from volley.contracts.rows import BadRow, PositionedBatch, numbered
from volley.contracts.source import Offset, Reader, SourceContext, SplitReader
from volley.errors import CatalogUnreachableError, ConfigError, SchemaChangedError, SourceError
from volley.formats.files import Part, pack
from volley.iceberg.read.changed_files import ChangeSplit
from volley.iceberg.read.changes import change_schema, read_changes
from volley.iceberg.read.entries import added_rows_in
from volley.iceberg.read.history import changes_rows
from volley.iceberg.read.increments import Increment, Increments
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.read.scope import (
    Position,
    TableLoader,
    filtered,
    head_snapshot,
    is_pinned,
    names_needed,
    names_read,
    predicate_of,
    schema_of,
    selected,
    start_of,
)
from volley.iceberg.schema.types import arrow_schema, readable, with_included
from volley.iceberg.source_config import IcebergSourceConfig, Incremental
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import INITIAL_OFFSET
from volley.types.arrow import canonical_schema

__all__ = ["IcebergSplit", "open_reader", "reader_of"]

_log = logging.getLogger(__name__)
_NO_LIMIT = float("inf")
_SMALL_SPLITS = 1 << 20
# Of each split that is read at the same time: enough to keep the threads busy.
_READ_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True)
class IcebergSplit:
    """Files for one task.

    Args:
        io: Opens them, with credentials of the epoch.
        parts: The files whose rows to read, or the changes.
    """

    io: FileIO = field(compare=False)
    parts: tuple[FileTask | ChangeSplit, ...]


@dataclass(frozen=True)
class SplitRows(SplitReader):
    """Reads splits on executors: without the catalog.

    Args:
        steps: Drops rows and columns; None = nothing to drop.
    """

    rows: RowReader
    steps: CompiledSteps | None
    keys: tuple[str, ...] = ()

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        for part in split.parts:
            yield from self._read(split.io, part)

    def read_tolerant(self, split: IcebergSplit) -> Iterator[PositionedBatch | BadRow]:
        for part in split.parts:
            place = f"changes of snapshot {part.snapshot_id}" if isinstance(part, ChangeSplit) else part.file.path
            yield from numbered(self._read(split.io, part), place)

    def _read(self, io: FileIO, part: FileTask | ChangeSplit) -> Iterator[pa.RecordBatch]:
        if isinstance(part, ChangeSplit):
            batches = read_changes(io, part, self.rows, self.keys)
        else:
            batches = self.rows.read(io, part)
        return batches if self.steps is None else filter(len, map(self.steps, batches))


@dataclass(frozen=True)
class IcebergReader(Reader):
    """Reads a table; the driver's part, and that of the copy that is asked for offsets.

    Args:
        table_schema: The schema whose names the filter uses.
        row_filter: Leaves out files without matching rows.
        limit: The most files, or rows, per epoch; None = no limit.
        used: The columns that the job uses; None = all.
        hold: Keeps the snapshots after one from expiring; called with the last one that every sink has.
    """

    config: IcebergSourceConfig
    loader: TableLoader = field(compare=False)
    schema: pa.Schema
    initial: Offset
    rows: SplitRows
    table_schema: Schema
    row_filter: BooleanExpression
    parallelism: int
    limit: int | None
    used: frozenset[str] | None = None
    hold: Callable[[int | None], None] | None = None
    _loaded: list[tuple[float, Table]] = field(default_factory=list, compare=False)

    knows_lag = True

    @property
    def acknowledges(self) -> bool:
        return self.hold is not None

    def initial_offset(self) -> Offset:
        return self.initial

    def split_reader(self) -> SplitReader:
        return self.rows

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        begin = Position.from_offset(start)
        table = self._table()
        end = self._end(table) if target is None else Position.from_offset(target)
        increments = self._increments(table)
        goal = increments.goal(begin, end)
        if limit is None:
            increments.check(begin, goal)
            return goal.to_offset()
        return self._limited(increments, begin, goal, limit).to_offset()

    def splits(self, start: Offset, end: Offset) -> list[IcebergSplit]:
        table = self.loader.load()
        self._check_columns(table)
        return self.splits_of(table, Position.from_offset(start), Position.from_offset(end))

    def _check_columns(self, table: Table) -> None:
        """Raise SchemaChangedError if a reader that is opened now reads other columns: rows would lose values."""
        schema = schema_of(table, self.config, self.initial["snapshot"])
        if schema.fields == self.table_schema.fields:
            return
        before = self._columns_read(self.table_schema)
        try:
            now = self._columns_read(schema)
        except ConfigError as error:
            raise SchemaChangedError(f"{error.message}: the table was changed while the job runs") from error
        if now != before:
            other = sorted({field.name for field in (*before, *now) if not (field in before and field in now)})
            raise SchemaChangedError(
                f"table {self.config.ref.name} has other columns than the job was planned with ({', '.join(other)})",
                hint="start the job again, which reads the columns that the table has now",
            )

    def _columns_read(self, schema: Schema) -> tuple[NestedField, ...]:
        names = names_needed(names_read(self.config, self.used, schema), predicate_of(self.config, schema))
        return tuple(field for field in schema.fields if field.name in names)

    def splits_of(self, table: Table, start: Position, end: Position) -> list[IcebergSplit]:
        """Return the splits between two positions of a loaded table."""
        increments = self._increments(table).between(start, end)
        parts = [part for increment in increments for part in self._parts(increment, table)]
        packed = pack(parts, self.parallelism)
        return [IcebergSplit(table.io, tuple(_divided(part, number) for part, number in split)) for split in packed]

    def _parts(self, increment: Increment, table: Table) -> Iterator[tuple[FileTask | ChangeSplit, int, bool]]:
        """Yield what to read of an increment, each part with its size in bytes and whether it can be divided."""
        position = increment.position
        sequence = position.sequence if self.config.sequence else None
        for planned in increment.files:
            task = file_task(planned, table.metadata)
            if self.config.changes == "follow":
                assert position.snapshot is not None
                inserted = ChangeSplit.of_inserted(task, position.snapshot, position.committed_at)
                yield replace(inserted, sequence=sequence), task.file.size, False
            else:
                yield task, task.file.size, len(task.file.split_offsets) > 1
        for split in increment.changes:
            yield replace(split, sequence=sequence), split.size, False

    def lag(self, offset: Offset) -> Lag | None:
        position, name = Position.from_offset(offset), self.config.ref.name
        if is_pinned(self.config):
            return Lag(name, rows=0, seconds=0.0, snapshots=0)
        table = self._table()
        head = head_snapshot(table, self.config)
        unread = [] if head is None else self._increments(table).unread(position.snapshot, head.snapshot_id)
        rows = sum(added_rows_in(table.io, snapshot) for snapshot in unread if changes_rows(snapshot))
        age = time.time() - unread[0].timestamp_ms / 1000 if unread else 0.0
        return Lag(name, rows=rows, seconds=max(0.0, age), snapshots=len(unread))

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        return self.rows.read(split)

    def read_tolerant(self, split: IcebergSplit) -> Iterator[PositionedBatch | BadRow]:
        return self.rows.read_tolerant(split)

    def nothing(self) -> SourceError:
        return SourceError(
            f"table {self.config.ref.name} has no rows: nothing has written to {self.config.ref.branch} yet",
            hint="run the job that fills it first",
        )

    def committed(self, offset: Offset) -> None:
        if self.hold is not None:
            self.hold(Position.from_offset(offset).snapshot)

    def _end(self, table: Table) -> Position:
        if is_pinned(self.config):
            return Position.from_offset(self.initial).at_its_end()
        return Position.at_end(table, head_snapshot(table, self.config))

    def _increments(self, table: Table) -> Increments:
        config = self.config
        filtered = self.table_schema, self.row_filter
        head = head_snapshot(table, config)
        increments = Increments(
            config.ref, table, head, *filtered, config.changes, config.on_expired, config.keys, config.on_rollback
        )
        return replace(increments, columns=self.rows.rows.schema.fields)

    def _limited(self, increments: Increments, start: Position, goal: Position, limit: int) -> Position:
        """Return the last position up to the goal that the limits allow; at least one file is read."""
        if start == goal:
            return goal
        files, rows = 0, 0
        by_rows = self.config.max_files_per_epoch is None and self.config.max_rows_per_epoch is not None
        most_files = _NO_LIMIT if by_rows else limit
        most_rows = limit if by_rows else self.config.max_rows_per_epoch or _NO_LIMIT
        reached = start
        for increment in increments.between(start, goal):
            if increment.changes and rows and rows + increment.rows > most_rows:
                return reached
            rows += increment.rows
            for planned in increment.files:
                files, rows = files + 1, rows + planned.file.rows
                if reached != start and (files > most_files or rows > most_rows):
                    return reached
                if increment.divisible:
                    reached = increment.position.behind(planned.file.path)
            reached = increment.position
        return goal

    def _table(self) -> Table:
        """Return the table, loaded at most once per poll interval."""
        mode = self.config.mode
        interval = mode.poll_interval.total_seconds() if isinstance(mode, Incremental) else 0.0  # type: ignore[union-attr]
        if self._loaded and time.monotonic() - self._loaded[0][0] < interval:
            return self._loaded[0][1]
        try:
            table = self.loader.load()
        except CatalogUnreachableError as error:
            if not self._loaded or not isinstance(mode, Incremental):
                raise
            _log.warning("%s: can't look for new snapshots, will try again: %s", self.config.ref.name, error)
            table = self._loaded[0][1]
        self._loaded[:] = [(time.monotonic(), table)]
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": []}


def open_reader(config: IcebergSourceConfig, context: SourceContext) -> IcebergReader:
    """Return the reader of an IcebergSource.

    Raises:
        CatalogError: If the table does not exist, or the catalog can't be reached.
        SnapshotNotFoundError: If the table has no such snapshot, branch or tag.
        ConfigError: If the columns or the filter don't fit the table.
    """
    loader = TableLoader(config.ref)
    table = loader.load()
    initial = read_or_create(
        f"{context.state}/initial-offset.json", INITIAL_OFFSET, lambda: _encoded(start_of(table, config)), _decoded
    )
    return reader_of(loader, table, config, initial, context)


def reader_of(
    loader: TableLoader, table: Table, config: IcebergSourceConfig, initial: Offset, context: SourceContext
) -> IcebergReader:
    """Return the reader of a loaded table that starts at an offset. Raises like `open_reader`."""
    schema = schema_of(table, config, initial["snapshot"])
    predicate = predicate_of(config, schema)
    names = names_read(config, context.columns, schema)
    needed = names_needed(names, predicate)
    follows = config.changes == "follow"
    # Changes are found by comparing whole rows.
    known = with_included(schema, config.include)
    rows = RowReader.of(table.metadata, readable(known) if follows else selected(known, needed))
    row_filter = And(pruning(predicate, schema), pruning(context.predicate, schema))
    rows = replace(rows, dictionaries=context.dictionaries, batch_rows=config.batch_size)
    # Changes are compared as wholes; a part of their rows would look like others.
    rows = rows if follows else replace(rows, row_filter=row_filter, filter_schema=schema)
    read = canonical_schema(change_schema(rows.schema, config.sequence) if follows else arrow_schema(rows.schema))
    has_all = predicate is None and list(names) == read.names
    return IcebergReader(
        config,
        loader,
        pa.schema([read.field(name) for name in names]),
        initial,
        SplitRows(rows, None if has_all else filtered(predicate, names, read), tuple(config.keys)),
        schema,
        row_filter,
        context.parallelism,
        config.max_files_per_epoch or config.max_rows_per_epoch,
        context.columns,
    )


def _divided(part: FileTask | ChangeSplit, number: Part) -> FileTask | ChangeSplit:
    return replace(part, part=number) if isinstance(part, FileTask) else part


def _encoded(position: Position) -> bytes:
    return json.dumps(position.to_offset()).encode()


def _decoded(data: bytes) -> Offset:
    try:
        return Position.from_offset(json.loads(data)).to_offset()
    except TypeError as error:
        raise ValueError(str(error)) from error

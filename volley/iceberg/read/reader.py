"""Runs an IcebergSource: asks the catalog for new snapshots, plans their files as splits, reads these as Arrow."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot as TableSnapshot

from volley.arrow.nodes import CompiledSteps, lower
from volley.bad_rows import BadRow, PositionedBatch, numbered
from volley.errors import CatalogUnreachableError, ConfigError, SnapshotNotFoundError, near
from volley.formats.packing import pack
from volley.iceberg.catalogs.retry import retry_reads
from volley.iceberg.read.increments import Increments
from volley.iceberg.read.positions import Position
from volley.iceberg.read.predicates import parse_predicate, pruning
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.schema.types import arrow_schema
from volley.iceberg.source_config import IcebergSourceConfig, Incremental, Snapshot
from volley.plan import nodes
from volley.plan.expressions import Call, Column, ExprNode, column_names, lit
from volley.source import Offset, Reader, SourceContext, SplitReader
from volley.storage.remembered import read_or_create
from volley.types.arrow import canonical_schema

__all__ = ["IcebergReader", "IcebergSplit", "SplitRows", "open_reader", "table_schema"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IcebergSplit:
    """Files for one task.

    Args:
        io: Opens them, with credentials of the epoch.
        tasks: The files.
    """

    io: FileIO
    tasks: tuple[FileTask, ...]


@dataclass(frozen=True)
class SplitRows(SplitReader):
    """Reads splits on executors: without the catalog.

    Args:
        rows: Reads the files.
        steps: Drops rows, and the columns that only the filter needs; None = nothing to drop.
    """

    rows: RowReader
    steps: CompiledSteps | None

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        for task in split.tasks:
            yield from self._read(split.io, task)

    def read_tolerant(self, split: IcebergSplit) -> Iterator[PositionedBatch | BadRow]:
        for task in split.tasks:
            yield from numbered(self._read(split.io, task), task.file.path)

    def _read(self, io: FileIO, task: FileTask) -> Iterator[pa.RecordBatch]:
        batches = self.rows.read(io, task)
        return batches if self.steps is None else filter(len, map(self.steps, batches))


@dataclass(frozen=True)
class IcebergReader(Reader):
    """Reads a table; the driver's part, and that of Spark's planner process.

    Args:
        config: The source's settings.
        schema: The columns.
        initial: The offset where a new job starts.
        rows: Reads splits.
        table_schema: The schema whose names the filter uses.
        row_filter: Leaves out files without matching rows.
        parallelism: The number of splits that are read at the same time.
        limit: The most files, or rows, per epoch; None = no limit.
    """

    config: IcebergSourceConfig
    schema: pa.Schema
    initial: Offset
    rows: SplitRows
    table_schema: Schema
    row_filter: BooleanExpression
    parallelism: int
    limit: int | None
    _loaded: list[tuple[float, Table]] = field(default_factory=list, compare=False)

    def initial_offset(self) -> Offset:
        return self.initial

    def split_reader(self) -> SplitReader:
        return self.rows

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        begin = Position.from_offset(start)
        table = self._table()
        end = self._end(table) if target is None else Position.from_offset(target)
        increments = self._increments(table)
        return self._limited(increments, begin, increments.goal(begin, end), limit).to_offset()

    def splits(self, start: Offset, end: Offset) -> list[IcebergSplit]:
        table = retry_reads(self.config.ref.load)
        increments = self._increments(table).between(Position.from_offset(start), Position.from_offset(end))
        tasks = [file_task(planned, table.metadata) for increment in increments for planned in increment.files]
        packed = pack([(task, task.file.size, len(task.file.split_offsets) > 1) for task in tasks], self.parallelism)
        return [IcebergSplit(table.io, tuple(replace(task, part=part) for task, part in split)) for split in packed]

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        return self.rows.read(split)

    def read_tolerant(self, split: IcebergSplit) -> Iterator[PositionedBatch | BadRow]:
        return self.rows.read_tolerant(split)

    def _end(self, table: Table) -> Position:
        if _is_pinned(self.config):
            return Position.from_offset(self.initial)
        return Position.at_end(table, _head(table, self.config))

    def _increments(self, table: Table) -> Increments:
        config = self.config
        return Increments(table, self.table_schema, self.row_filter, config.changes, config.on_expired)

    def _limited(self, increments: Increments, start: Position, goal: Position, limit: int | None) -> Position:
        """Return the last position up to the goal that the limits allow; at least one file is read."""
        if limit is None or start == goal:
            return goal
        files, rows = 0, 0
        most_files = self.config.max_files_per_epoch or float("inf")
        most_rows = self.config.max_rows_per_epoch or float("inf")
        reached = start
        for increment in increments.between(start, goal):
            for planned in increment.files:
                files, rows = files + 1, rows + planned.file.rows
                if files > 1 and (files > most_files or rows > most_rows):
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
            table = retry_reads(self.config.ref.load)
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

    Args:
        config: The source's settings.
        context: The job's context of the source.

    Raises:
        CatalogError: If the table does not exist, or the catalog can't be reached.
        SnapshotNotFoundError: If the table has no such snapshot, branch or tag.
        ConfigError: If the columns or the filter don't fit the table.
    """
    table = retry_reads(config.ref.load)
    initial = read_or_create(f"{context.state}/start.json", lambda: _encoded(_start(table, config)), json.loads)
    schema = _schema(table, config, Position.from_offset(initial).snapshot)
    predicate = _predicate(config, schema)
    names = _names(config, schema)
    if context.columns is not None and context.columns <= set(names):
        # At least one column: batches without columns lose their number of rows on the way.
        names = [name for name in names if name in context.columns] or names[:1]
    needed = names if predicate is None else [*names, *sorted(column_names(predicate) - set(names))]
    rows = RowReader.of(table.metadata, _selected(schema, needed))
    rows = replace(rows, dictionaries=context.dictionaries, batch_rows=config.batch_size)
    read = canonical_schema(arrow_schema(rows.schema))
    return IcebergReader(
        config,
        pa.schema([read.field(name) for name in names]),
        initial,
        SplitRows(rows, _steps(predicate, names, read)),
        schema,
        pruning(_both(predicate, context.predicate), schema),
        context.parallelism,
        config.max_files_per_epoch or config.max_rows_per_epoch,
    )


def table_schema(config: IcebergSourceConfig) -> pa.Schema:
    """Return the columns that the source has; writes nothing. Raises like `open_reader`."""
    table = retry_reads(config.ref.load)
    schema = _schema(table, config, _start(table, config).snapshot)
    _predicate(config, schema)
    return canonical_schema(arrow_schema(_selected(schema, _names(config, schema))))


def _encoded(position: Position) -> bytes:
    return json.dumps(position.to_offset()).encode()


def _is_pinned(config: IcebergSourceConfig) -> bool:
    """Return True if the source reads one snapshot, however the table changes."""
    return config.as_of is not None or isinstance(config.mode, Snapshot)


def _start(table: Table, config: IcebergSourceConfig) -> Position:
    """Return the position where a new job starts."""
    mode = config.mode
    if isinstance(mode, Incremental) and mode.start_snapshot is not None:
        return Position.at_end(table, _by_id(table, mode.start_snapshot))
    if isinstance(mode, Incremental) and isinstance(mode.start_timestamp, datetime):
        return Position.at_end(table, table.snapshot_as_of_timestamp(_millis(mode.start_timestamp)))
    snapshot = _pinned(table, config) if _is_pinned(config) else _head(table, config)
    position = Position.at_end(table, snapshot)
    return position if snapshot is None else position.scanning()


def _pinned(table: Table, config: IcebergSourceConfig) -> TableSnapshot:
    if isinstance(config.mode, Snapshot):
        return _by_id(table, config.mode.snapshot_id)
    assert config.as_of is not None
    # From the log: after a rollback, the newest snapshot before that time need not have been current then.
    snapshot = table.snapshot_as_of_timestamp(_millis(config.as_of))
    if snapshot is None:
        first = min((entry.timestamp_ms for entry in table.history()), default=None)
        began = "it has no snapshot" if first is None else f"its history begins at {_instant(first)}"
        raise SnapshotNotFoundError(
            f"table {config.ref.name} had no snapshot at {config.as_of.isoformat()}: {began}",
            hint="a later time, or Snapshot(id) of one that is still there",
        )
    return snapshot


def _by_id(table: Table, snapshot_id: int) -> TableSnapshot:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        known = [str(known.snapshot_id) for known in table.metadata.snapshots]
        raise SnapshotNotFoundError(
            f"table {'.'.join(table.name())} has no snapshot {snapshot_id}: it has expired, or never existed",
            hint=f"the last of its {len(known)} snapshots: {', '.join(known[-5:])}",
        )
    return snapshot


def _head(table: Table, config: IcebergSourceConfig) -> TableSnapshot | None:
    """Return the current snapshot of the source's branch or tag."""
    name, refs = config.ref.branch, table.metadata.refs
    if name in refs:
        return table.metadata.snapshot_by_name(name)
    if name != "main":
        raise SnapshotNotFoundError(f"table {config.ref.name} has no branch or tag {name!r}", hint=near(name, refs))
    return table.current_snapshot()


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _instant(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def _schema(table: Table, config: IcebergSourceConfig, snapshot_id: int | None) -> Schema:
    """Return the schema to read under: of a pinned snapshot or a tag its own, else the table's current one."""
    ref = table.metadata.refs.get(config.ref.branch)
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    is_fixed = _is_pinned(config) or (ref is not None and ref.snapshot_ref_type == SnapshotRefType.TAG)
    if not is_fixed or snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _names(config: IcebergSourceConfig, schema: Schema) -> list[str]:
    known = [field.name for field in schema.fields]
    for name in config.columns or ():
        if name not in known:
            raise ConfigError(f"table {config.ref.name} has no column {name!r}", hint=near(name, known))
    return known if config.columns is None else list(config.columns)


def _selected(schema: Schema, names: Sequence[str]) -> Schema:
    """Return the schema of some top-level columns, whose names may contain dots."""
    by_name = {field.name: field for field in schema.fields}
    return Schema(*(by_name[name] for name in names))


def _predicate(config: IcebergSourceConfig, schema: Schema) -> ExprNode | None:
    predicate = config.partition_filter
    if not isinstance(predicate, str):
        return predicate
    return parse_predicate(predicate, schema)


def _both(one: ExprNode | None, other: ExprNode | None) -> ExprNode:
    """Return a predicate that is true where both are; None = always."""
    given = [predicate for predicate in (one, other) if predicate is not None]
    return Call("and_", tuple(given)) if len(given) == 2 else given[0] if given else lit(True).node


def _steps(predicate: ExprNode | None, names: Sequence[str], schema: pa.Schema) -> CompiledSteps | None:
    if predicate is None:
        return None
    rows = nodes.Filter(nodes.Union(()), predicate)
    return lower([rows, nodes.Select(rows, tuple(map(Column, names)))], schema)

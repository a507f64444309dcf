"""What an Iceberg source reads of its table: snapshots, positions between them, schema, columns and filter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot as TableSnapshot

from volley.columns.nodes import CompiledSteps, lower
from volley.contracts.source import Offset
from volley.errors import ConfigError, ExpressionError, SnapshotNotFoundError, near
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.read.changes import CHANGE_COLUMNS, SNAPSHOT_SEQUENCE
from volley.iceberg.read.history import snapshot_at, snapshot_of, snapshot_of_ref
from volley.iceberg.schema.types import arrow_schema, check_readable, check_row_ids, rows_schema, with_included
from volley.iceberg.source_config import IcebergSourceConfig, Incremental, Snapshot
from volley.iceberg.table import TableRef
from volley.plan import nodes
from volley.plan.expression_nodes import Column, ExprNode, column_names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = [
    "Position",
    "TableLoader",
    "column_names_of",
    "current_snapshot",
    "filtered",
    "head_snapshot",
    "is_pinned",
    "names_needed",
    "names_read",
    "pinned_snapshot",
    "predicate_of",
    "schema_of",
    "selected",
    "start_of",
]

_TOTAL_FILES = "total-data-files"


@dataclass(frozen=True)
class Position:
    """A snapshot that has been read, or up to which of its files, in the order of their paths.

    Args:
        snapshot: The snapshot's id; None = the table had none.
        sequence: Its sequence number, which orders files even when the snapshot has expired.
        live: The number of its data files, if known: while all of them are live, none was replaced since.
        scan: True if all of its files are read, not only those that it added.
        after: The path of the last file that has been read; None = all of them have been.
        committed_at: When the snapshot was committed, in milliseconds since 1970.
    """

    table: str
    snapshot: int | None = None
    sequence: int = 0
    live: int | None = 0
    scan: bool = False
    after: str | None = None
    committed_at: int = 0

    @classmethod
    def at_end(cls, table: Table, snapshot: TableSnapshot | None) -> Position:
        """Return the position behind all files of a snapshot; None = at the beginning of the table."""
        uuid = str(table.metadata.table_uuid)
        if snapshot is None:
            return cls(uuid)
        total = (snapshot.summary.additional_properties if snapshot.summary else {}).get(_TOTAL_FILES)
        # Unlike a manifest list, a summary is there also after the snapshot has expired. A total that is wrong, such as
        # DuckDB's, which never fall, proves nothing.
        live = int(total) if total and total.isdecimal() else None
        number = snapshot.sequence_number or 0
        return cls(uuid, snapshot.snapshot_id, number, live, committed_at=snapshot.timestamp_ms)

    def scanning(self, after: str | None = "") -> Position:
        """Return the position behind some files of a scan of the same snapshot; the default is its beginning."""
        return replace(self, scan=True, after=after)

    @classmethod
    def from_offset(cls, offset: Offset) -> Position:
        """Return the position that `to_offset` gave."""
        return cls(**offset)

    def to_offset(self) -> Offset:
        """Return the position as JSON values."""
        return asdict(self)

    def at_its_end(self) -> Position:
        """Return the position behind all files of the same snapshot."""
        return replace(self, after=None)

    def behind(self, path: str) -> Position:
        """Return the position behind one file of the same snapshot."""
        return replace(self, after=path)

    def is_with(self, other: Position) -> bool:
        """Return True if both are in the files of one snapshot, read in the same way."""
        return (self.snapshot, self.scan) == (other.snapshot, other.scan)


class TableLoader:
    """Loads the current metadata of a table. A copy made by pickling opens a catalog of its own.

    Opening a REST catalog takes a new connection and several requests, for tokens and for its settings.
    """

    def __init__(self, ref: TableRef) -> None:
        self._ref = ref
        self._catalog: Catalog | None = None

    def load(self) -> Table:
        """Load the table; try again while the catalog can't be reached. Raises like `TableRef.load`."""
        return retry_reads(self._load)

    def _load(self) -> Table:
        # A catalog whose call fails is not used again.
        catalog, self._catalog = self._catalog or self._ref.load_catalog(), None
        with self._ref.errors():
            table = catalog.load_table(self._ref.identifier)
        # Nor is one in a file: a connection would go on reading a file that has been deleted or replaced.
        if self._ref.file is None:
            self._catalog = catalog
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {"_ref": self._ref, "_catalog": None}


def is_pinned(config: IcebergSourceConfig) -> bool:
    """Return True if the source reads one snapshot, however the table changes."""
    return config.as_of is not None or isinstance(config.mode, Snapshot)


def start_of(table: Table, config: IcebergSourceConfig) -> Position:
    """Return the position where a new job starts."""
    mode = config.mode
    if isinstance(mode, Incremental) and mode.start_snapshot is not None:
        return Position.at_end(table, snapshot_of(table.metadata, mode.start_snapshot, config.ref.name))
    if isinstance(mode, Incremental) and isinstance(mode.start_timestamp, datetime):
        return Position.at_end(table, _before(table, config, mode.start_timestamp))
    snapshot = current_snapshot(table, config)
    position = Position.at_end(table, snapshot)
    return position if snapshot is None else position.scanning()


def _before(table: Table, config: IcebergSourceConfig, at: datetime) -> TableSnapshot | None:
    """Return the snapshot after which a stream starts that reads what came after a time; None = the first one."""
    if head_snapshot(table, config) is None:
        return None
    try:
        return snapshot_at(table.metadata, config.ref.branch, at, config.ref.name)
    except SnapshotNotFoundError:
        return None


def pinned_snapshot(table: Table, config: IcebergSourceConfig) -> TableSnapshot:
    """Return the snapshot that a source names by its id, or by a time."""
    if isinstance(config.mode, Snapshot):
        return snapshot_of(table.metadata, config.mode.snapshot_id, config.ref.name)
    assert config.as_of is not None
    return snapshot_at(table.metadata, config.ref.branch, config.as_of, config.ref.name)


def head_snapshot(table: Table, config: IcebergSourceConfig) -> TableSnapshot | None:
    """Return the current snapshot of the source's branch or tag; None for a table without snapshots."""
    if table.current_snapshot() is None and config.ref.branch == MAIN_BRANCH:
        return None
    return snapshot_of_ref(table.metadata, config.ref.branch, config.ref.name)


def current_snapshot(table: Table, config: IcebergSourceConfig) -> TableSnapshot | None:
    """Return the snapshot that a source would read now: the pinned one, or that of its branch or tag."""
    return pinned_snapshot(table, config) if is_pinned(config) else head_snapshot(table, config)


def schema_of(table: Table, config: IcebergSourceConfig, snapshot_id: int | None) -> Schema:
    """Return the schema to read under: of a pinned snapshot or a tag its own, else the table's current one.

    Args:
        snapshot_id: The pinned snapshot, which may have expired; of others it does not matter.
    """
    if config.sequence and table.format_version < 2:
        raise ConfigError(
            f"table {config.ref.name} has format version 1, whose snapshots have no sequence numbers",
            hint="leave sequence out, or upgrade the table to version 2",
        )
    if config.include and table.format_version < ROW_IDS_SINCE:
        raise ConfigError(
            f"table {config.ref.name} has format version {table.format_version}, whose rows have no ids",
            hint="leave include out, or upgrade the table: IcebergTable(table).upgrade(3)",
        )
    if config.include:
        check_row_ids(table.schema())
    ref = table.metadata.refs.get(config.ref.branch)
    if ref is not None and ref.snapshot_ref_type == SnapshotRefType.TAG:
        snapshot_id = ref.snapshot_id
    elif not is_pinned(config):
        return table.schema()
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    is_known = snapshot is not None and snapshot.schema_id is not None
    return table.schemas()[snapshot.schema_id] if is_known else table.schema()  # type: ignore[union-attr, index]


def column_names_of(config: IcebergSourceConfig, schema: Schema) -> list[str]:
    """Return the columns that a source reads, in their order; raise ConfigError for unknown ones."""
    schema = with_included(schema, config.include)
    known = [field.name for field in schema.fields]
    for key in config.keys:
        if key not in known:
            raise ConfigError(f"table {config.ref.name} has no column {key!r} for a key", hint=near(key, known))
    if config.changes == "follow":
        known += [*CHANGE_COLUMNS.names, *([SNAPSHOT_SEQUENCE] if config.sequence else [])]
    for name in config.columns or ():
        if name not in known:
            raise ConfigError(f"table {config.ref.name} has no column {name!r}", hint=near(name, known))
    names = known if config.columns is None else list(config.columns)
    _check_readable({*names, *config.keys}, config, schema)
    return names


def _check_readable(names: Collection[str], config: IcebergSourceConfig, schema: Schema) -> None:
    check_readable((field for field in schema.fields if field.name in names), f"table {config.ref.name}")


def names_read(config: IcebergSourceConfig, used: frozenset[str] | None, schema: Schema) -> list[str]:
    """Return the columns that a source yields, of those that the job uses; None = it uses all."""
    names = column_names_of(config, schema)
    if used is None or not used <= set(names):
        return names
    # At least one column: batches without columns lose their number of rows on the way.
    return [name for name in names if name in used] or names[:1]


def names_needed(names: Sequence[str], predicate: ExprNode | None) -> Sequence[str]:
    """Return the columns to read for some columns and a filter."""
    return names if predicate is None else [*names, *sorted(column_names(predicate) - set(names))]


def selected(schema: Schema, names: Sequence[str]) -> Schema:
    """Return the schema of some top-level columns, whose names may contain dots."""
    by_name = {field.name: field for field in schema.fields}
    return Schema(*(by_name[name] for name in names))


def filtered(predicate: ExprNode | None, names: Sequence[str], schema: pa.Schema) -> CompiledSteps:
    """Return the steps that keep the rows and columns that a source reads.

    Args:
        schema: The schema of the rows, which have the columns of the filter, too.
    """
    before = nodes.Union(())
    filters: list[nodes.Node] = [] if predicate is None else [nodes.Filter(before, predicate)]
    columns = [] if list(names) == schema.names else [nodes.Select(before, tuple(map(Column, names)))]
    return lower([*filters, *columns], schema)


def predicate_of(config: IcebergSourceConfig, schema: Schema) -> ExprNode | None:
    """Return a source's own filter; raise ConfigError if it does not fit the schema."""
    predicate = config.partition_filter
    if predicate is None:
        return None
    try:
        return _checked(_parsed(predicate, schema), config, schema)
    except (ConfigError, ExpressionError) as error:
        shown = f" {predicate!r}" if isinstance(predicate, str) else ""
        raise ConfigError(f"partition_filter{shown}: {error.message}", hint=error.hint) from error


def _parsed(predicate: str | ExprNode, schema: Schema) -> ExprNode:
    if isinstance(predicate, str):
        # Imports sqlglot.
        from volley.iceberg.read.filters import parse_predicate

        return parse_predicate(predicate, schema)
    return predicate


def _checked(predicate: ExprNode, config: IcebergSourceConfig, schema: Schema) -> ExprNode:
    schema = with_included(schema, config.include)
    named = column_names(predicate)
    known = [field.name for field in schema.fields]
    for name in sorted(named - set(known)):
        raise ConfigError(f"table {config.ref.name} has no column {name!r}", hint=near(name, known))
    _check_readable(named, config, schema)
    columns = arrow_schema(rows_schema(selected(schema, [name for name in known if name in named])))
    lower([nodes.Filter(nodes.Union(()), predicate)], columns)
    return predicate

"""The changes of a table's rows between two of its snapshots: inserts, updates and deletes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.checks import names
from volley.errors import ConfigError, brief, near
from volley.html_table import text_html

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from volley.iceberg.table import TableRef

__all__ = ["Change", "Changes", "Delete", "Insert", "Update", "changes_between"]

_log = logging.getLogger(__name__)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row.

    Args:
        row: Its values by column.
    """

    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """A row with new values under the same key.

    Args:
        before: The old values by column.
        after: The new ones.
    """

    before: Row
    after: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """A row that is gone.

    Args:
        row: Its last values by column.
    """

    row: Row


Change = Insert | Update | Delete
"""A change of one row."""


@brief
def changes_between(
    table: TableRef, start: int | None, end: int | None = None, keys: str | Sequence[str] = ()
) -> Changes:
    """Return the changes of a table's rows after one snapshot up to another, snapshot by snapshot.

    Right for tables of every engine, copy-on-write and merge-on-read: rows that a snapshot only wrote to other files
    are not changes, and compactions have none. All rows have the columns of the table's current schema, but those of
    types that can't be read: a warning names them.

    Args:
        table: The table; its branch determines the default end.
        start: The id of the snapshot before the first changes; None = the table's beginning.
        end: The id of the last snapshot; None = the branch's last one.
        keys: The columns that identify a row: a delete and an insert of one key in one snapshot are an update.
            Without keys, rows of one id are an update if the table has format version 3, unless the row has moved to
            another partition, or the files to compare have more than eight million rows; else there are no updates.

    Raises:
        ConfigError: If the table has no such key column, or has a column of the names that changes add.
        SnapshotNotFoundError: If the table has no such snapshot or branch.
        SnapshotExpiredError: If a snapshot between them has expired.
        SnapshotRolledBackError: If the start is not in the history of the end.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or rejects the request.
        StorageError: If metadata can't be read.

    Example:
        >>> from volley import IcebergStorage, TableRef
        >>> events = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"))
        >>> for change in changes_between(events, 6301935263872612342, keys="id"):  # doctest: +SKIP
        ...     print(change)
        Update(before={'id': 1, 'name': 'a'}, after={'id': 1, 'name': 'b'})
        Delete(row={'id': 2, 'name': 'c'})
    """
    from volley.iceberg.read.history import snapshots_between
    from volley.iceberg.schema.types import readable

    columns = names("keys", (keys,) if isinstance(keys, str) else keys)
    loaded = table.load()
    _check_columns(table.name, readable(loaded.schema()), columns)
    _warn_of_unreadable(table.name, loaded.schema())
    last = _head(loaded, table) if end is None else end
    with table.errors():
        snapshots = () if last is None else tuple(snapshots_between(loaded, start, last))
    return Changes(table.name, start, last, columns, loaded, snapshots)


def _head(table: Table, ref: TableRef) -> int | None:
    """Return the branch's last snapshot; None for an empty table."""
    from volley.iceberg.read.history import snapshot_of_ref

    if table.current_snapshot() is None and ref.branch == "main":
        return None
    return snapshot_of_ref(table.metadata, ref.branch, ref.name).snapshot_id


def _warn_of_unreadable(table: str, schema: Schema) -> None:
    from volley.iceberg.schema.types import readable

    kept = readable(schema)
    for column in schema.fields:
        if column not in kept.fields:
            _log.warning("changes of table %s lack column %r: its type can't be read", table, column.name)


def _check_columns(table: str, schema: Schema, keys: Sequence[str]) -> None:
    from volley.iceberg.read.changes import CHANGE_COLUMNS

    columns = [column.name for column in schema.fields]
    for key in keys:
        if key not in columns:
            raise ConfigError(f"table {table} has no key column {key!r}", hint=near(key, columns))
    if taken := sorted({*columns} & {*CHANGE_COLUMNS.names}):
        raise ConfigError(
            f"table {table} has columns of its own named {', '.join(taken)}",
            hint="rename them: changes add columns of these names",
        )


@dataclass(frozen=True, repr=False)
class Changes:
    """Changes of a table's rows, oldest snapshot first: iterate over them, or read them as Arrow.

    Each use reads the files again. Within a snapshot the order of changes is not defined, but that an update's old row
    comes before the new one, and a key's delete before its insert.

    Args:
        table: The table's name.
        start: The snapshot before the first changes; None = the table's beginning.
        end: The last snapshot; None = the table is empty.
        keys: The columns that identify a row.
    """

    table: str
    start: int | None
    end: int | None
    keys: tuple[str, ...]
    _loaded: Table = field(compare=False)
    _snapshots: tuple[Snapshot, ...] = field(compare=False)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: the table's columns, ``_change``, ``_snapshot`` and ``_committed_at``.

        ``_change`` is ``"insert"``, ``"update_before"``, ``"update_after"`` or ``"delete"``.
        """
        from volley.iceberg.read.changes import change_schema

        return change_schema(self._columns)

    @property
    def _columns(self) -> Schema:
        """The table's columns that can be read."""
        from volley.iceberg.schema.types import readable

        return readable(self._loaded.schema())

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The ids of the snapshots, oldest first, compactions too."""
        return tuple(snapshot.snapshot_id for snapshot in self._snapshots)

    def __iter__(self) -> Iterator[Change]:
        columns = [column.name for column in self._columns.fields]
        before: deque[Row] = deque()
        for batch in self.batches():
            changes = batch.column("_change").to_pylist()
            rows = batch.select(columns).to_pylist()
            for change, row in zip(changes, rows, strict=True):
                match change:
                    case "insert":
                        yield Insert(row)
                    case "delete":
                        yield Delete(row)
                    case "update_before":
                        before.append(row)
                    case "update_after":
                        yield Update(before.popleft(), row)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes as Arrow batches of `schema`; memory holds the changes of one partition and snapshot.

        Raises:
            SourceError: If a file is gone or damaged.
            StorageError: If a file can't be read.
        """
        from volley.iceberg.read.changed_files import change_splits
        from volley.iceberg.read.changes import read_changes
        from volley.iceberg.read.rows import RowReader

        table, io = self._loaded.metadata, self._loaded.io
        reader = RowReader.of(table, self._columns)
        key_ids = [reader.schema.find_field(key).field_id for key in self.keys]
        for snapshot in self._snapshots:
            for split in change_splits(io, snapshot, table, key_ids):
                yield from read_changes(io, split, reader, self.keys)

    def to_arrow(self) -> pa.Table:
        """Return all changes as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)

    def __repr__(self) -> str:
        keys = f", keys={list(self.keys)}" if self.keys else ""
        return f"Changes({self.table}, {self.start} to {self.end}: {len(self._snapshots)} snapshots{keys})"

    _repr_html_ = text_html

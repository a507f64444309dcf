"""A view's table: its columns, its rows, and the files by which some of these are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from volley.columns.keys.equality import matching_rows
from volley.columns.keys.order import sort_indices
from volley.errors import PlanError, SchemaMismatchError
from volley.iceberg.commit.tables import evolution, open_table
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.read.changes import rows_without
from volley.iceberg.read.delete_files import Mask, deleted_by_position
from volley.iceberg.read.entries import FileEntry, PlannedFile, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.read.scope import selected
from volley.iceberg.read.skipping import Positions
from volley.iceberg.schema.changes import DropColumn, Evolution
from volley.iceberg.schema.types import ROW_COLUMNS, ROW_ID, arrow_schema, iceberg_type, is_widened, with_row_ids
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.states import OWN_PREFIX
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.writer import IcebergWriter, write_batches
from volley.iceberg.write.written import SnapshotFiles, WrittenFile

__all__ = ["BATCH_ROWS", "Contents", "chosen", "needed_changes", "open_view", "ordered", "without"]

# A file is written anew without its replaced rows if it is small, or if this share of its rows is deleted: each data
# file has one delete file at most, and there are few small files, however often the view is refreshed.
_SMALL_ROWS = 65_536
_REWRITTEN_PART = 0.2
BATCH_ROWS = 100_000
"""Rows that are written at once."""


def open_view(config: IcebergSinkConfig, schema: pa.Schema, catalog: Catalog | None) -> Catalog:
    """Open a view's table, or make it, and return its catalog.

    Args:
        catalog: The catalog, if it is open already.
    """
    config = _evolving(config)
    try:
        return open_table(config, schema, catalog=catalog)[0]
    except SchemaMismatchError:
        # The columns of Volley's own need not fit: they are made anew.
        visible = pa.schema([field for field in schema if not field.name.startswith(OWN_PREFIX)])
        return open_table(config, visible, catalog=catalog)[0]


def needed_changes(config: IcebergSinkConfig, table: Table, schema: pa.Schema) -> Evolution:
    """Return the schema changes that a view's table needs; columns of Volley's own are dropped or made anew."""
    dropped = Evolution(tuple(DropColumn(field.name) for field in table.schema().fields if _is_stale(field, schema)))
    added = evolution(_evolving(config), dropped.of(table), schema)
    changes = Evolution((*dropped.changes, *added.changes))
    columns = {field.name for field in changes.of(table).schema().fields}
    if extra := sorted(columns - {*schema.names}):
        raise PlanError(
            f"table {config.table_name} has columns that the view's query has not: {', '.join(extra)}",
            hint=f'drop them by the next full refresh: into=config.with_schema_evolution("full", drops={extra})',
        )
    return changes


def _evolving(config: IcebergSinkConfig) -> IcebergSinkConfig:
    """Return the settings by which a view's table follows its query, whose columns may be wider now, unless strict."""
    if config.schema_evolution == "strict":
        return config
    return config.with_schema_evolution("full", config.renames, config.drops)


def _is_stale(column: NestedField, schema: pa.Schema) -> bool:
    """Return True for a column of Volley's own that the query does not need, or needs with other values."""
    if not column.name.startswith(OWN_PREFIX):
        return False
    if column.name not in schema.names:
        return True
    needed = iceberg_type(schema.field(column.name).type)
    return needed != column.field_type and not is_widened(column.field_type, needed)


@dataclass(frozen=True)
class Match:
    """Rows of one data file of a view.

    Args:
        planned: The file, with its delete files.
        positions: The rows' positions in it, ascending.
        ids: Their ids; null before format version 3.
    """

    planned: PlannedFile
    positions: Positions
    rows: pa.Table
    ids: pa.ChunkedArray


class Contents:
    """The rows of a view's table.

    Args:
        order: The columns by which new files are sorted, so that later refreshes read few pages; () = none.
    """

    def __init__(self, table: Table, branch: str, writer: IcebergWriter, order: Sequence[str]) -> None:
        self._table = table
        self._branch = branch
        self._writer = writer
        self._order = order
        self._number = 0
        self.written: list[WrittenFile] = []

    @property
    def schema(self) -> pa.Schema:
        """The schema of the view's rows."""
        return self._writer.rows_schema

    def matches(self, keys: Keys | None, columns: Sequence[str]) -> list[Match]:
        """Return the rows that have one of the keys, and perhaps others; all rows without keys.

        Args:
            columns: The columns of the matches, in their order.
        """
        table = self._table
        head = head_of(table, self._branch)
        if head is None:
            return []
        row_filter = pruning(None if keys is None else keys.predicate(), table.schema())
        planned = plan(table.io, table.metadata, head, row_filter, table.schema()).files
        # Columns that a changed query has added are the table's last ones.
        schema = selected(table.schema(), columns)
        reader = RowReader.of(table.metadata, with_row_ids(schema) if self._writer.has_row_ids else schema)
        reader = replace(reader, row_filter=row_filter, filter_schema=table.schema())
        matches = (self._matches(file, reader, keys) for file in planned)
        return [match for match in matches if len(match.positions)]

    def _matches(self, planned: PlannedFile, reader: RowReader, keys: Keys | None) -> Match:
        rows, places = list[pa.RecordBatch](), [np.empty(0, np.int64)]
        task, chosen = file_task(planned, self._table.metadata), _all_rows if keys is None else keys.mask
        by = None if keys is None else reader.schema.select(*keys.columns)
        for batch, positions in reader.read_located(self._table.io, task, chosen, by):
            rows.append(batch)
            places.append(positions)
        table = pa.Table.from_batches(rows, arrow_schema(reader.schema))
        if not self._writer.has_row_ids:
            return Match(planned, np.concatenate(places), table, pa.chunked_array([pa.nulls(len(table), pa.int64())]))
        return Match(planned, np.concatenate(places), table.drop_columns(ROW_COLUMNS), table[ROW_ID])

    def replaced(self, matches: Sequence[Match], rows: pa.Table, keys: Sequence[str] | None = None) -> SnapshotFiles:
        """Write the files that remove some rows and add others.

        Args:
            keys: The columns by which a new row replaces a removed one, whose id it takes; () = all rows are of one
                key. None = new rows replace none.
        """
        if self._writer.has_row_ids:
            rows = _with_ids(rows, matches, keys)
        deleted, removed, added = list[tuple[DataFile, Positions]](), list[PlannedFile](), [rows]
        for match in matches:
            file = match.planned
            positions = np.union1d(match.positions, np.flatnonzero(self._deleted(file)))
            if file.file.rows <= _SMALL_ROWS or len(positions) >= file.file.rows * _REWRITTEN_PART:
                removed.append(file)
                added.append(self._rest(file, positions))
            else:
                deleted.append((to_data_file(file.file), positions))
        deletes = write_deletes(self._writer, deleted)
        self.written += deletes
        new = ordered(pa.concat_tables(added), self._order)
        return SnapshotFiles(
            self.write(new.to_batches(BATCH_ROWS), self._writer.has_row_ids),
            deletes,
            [to_data_file(file.file) for file in removed],
            [delete.path for match in matches for delete in match.planned.deletes if _is_of(delete, match.planned)],
        )

    def _deleted(self, planned: PlannedFile) -> Mask:
        """Return which rows are deleted already: only position deletes are in a view's table."""
        file = planned.file
        return deleted_by_position(self._table.io, file.path, planned.deletes, range(file.rows))

    def _rest(self, planned: PlannedFile, positions: Positions) -> pa.Table:
        """Return the rows of a file that stay, with their ids."""
        schema = self._table.schema()
        reader = RowReader.of(self._table.metadata, with_row_ids(schema) if self._writer.has_row_ids else schema)
        task = file_task(PlannedFile(planned.file), self._table.metadata)
        rows = pa.Table.from_batches(reader.read(self._table.io, task), self._kept.rows_schema)
        return rows_without(rows, positions)

    @property
    def _kept(self) -> IcebergWriter:
        """Writes rows with their ids, if they have some."""
        return replace(self._writer, keeps_row_ids=self._writer.has_row_ids)

    def write(self, batches: Iterable[pa.RecordBatch], keeps_row_ids: bool = False) -> list[WrittenFile]:
        """Write rows to new data files."""
        self._number += 1
        writer = self._kept if keeps_row_ids else self._writer
        added = list(write_batches(writer.open(self._number), batches).committables)
        self.written += added
        return added

    def discard(self) -> None:
        """Delete all files that were written."""
        delete_new_files(self._table.io, (file.path for file in self.written))


def _with_ids(rows: pa.Table, matches: Sequence[Match], keys: Sequence[str] | None) -> pa.Table:
    """Return new rows with the ids of those that they replace; the others get new ones."""
    places, ids = np.full(len(rows), -1), pa.chunked_array([], pa.int64())
    if matches and keys is not None:
        ids = pa.chunked_array([chunk for match in matches for chunk in match.ids.chunks], pa.int64())
        if keys:
            before = pa.concat_tables([match.rows.select(keys) for match in matches])
            old, new = matching_rows(before, rows.select(keys), keys)
        else:
            old = new = np.arange(min(len(ids), len(rows)))
        places[new] = old
    found = ids.take(pa.array(places, mask=places < 0))
    row_id, changed_at = ROW_COLUMNS
    return rows.append_column(row_id, found).append_column(changed_at, pa.nulls(len(rows), pa.int64()))


def _all_rows(batch: pa.RecordBatch) -> Mask:
    return np.ones(batch.num_rows, np.bool_)


def _is_of(delete: FileEntry, planned: PlannedFile) -> bool:
    """Return True if a position-delete file has no rows of other data files; a new vector replaces others by itself."""
    return delete.blob_offset is None and delete.referenced_file == planned.file.path


def ordered(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return rows sorted by some columns; without a column, as they are."""
    return rows.take(sort_indices(rows, [(name, "ascending") for name in order])) if order else rows


def chosen(matches: Iterable[Match], rows: pa.Table) -> Iterator[Match]:
    """Yield those rows of matches that are equal to one of some rows in its columns; each of these is taken once."""
    for match in matches:
        places, taken = matching_rows(match.rows.select(rows.column_names), rows, rows.column_names)
        order = np.argsort(places)
        rows = rows_without(rows, taken)
        if len(places):
            yield _some(match, places[order])


def without(matches: Iterable[Match], rows: pa.Table) -> tuple[list[Match], pa.Table]:
    """Return matches and rows without those that are equal in the columns of the matches."""
    different = []
    for match in matches:
        columns = match.rows.column_names
        ours, theirs = matching_rows(match.rows, rows.select(columns), columns)
        rows = rows_without(rows, theirs)
        kept = np.setdiff1d(np.arange(len(match.rows)), ours)
        if len(kept):
            different.append(_some(match, kept))
    return different, rows


def _some(match: Match, numbers: Positions) -> Match:
    some = pa.array(numbers)
    return Match(match.planned, match.positions[numbers], match.rows.take(some), match.ids.take(some))

"""The work of an upsert on executors, once all tasks have written their changes.

`MergeChanges` writes the last change of each key to data files; `volley.iceberg.upsert.replace` takes the rows that
have these keys out of others. Changes that leave out values are completed before: `ReadStored` reads the rows that they
replace, as changes that come first, and `FollowMoves` makes whole changes of those that give a row another key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from volley.columns.batches import conform, one_batch
from volley.columns.keys.equality import distinct
from volley.columns.keys.normal import normal_rows
from volley.columns.keys.order import ascending_order, ranks
from volley.columns.keys.search import KeySearch
from volley.contracts.epoch import WriteResult
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.read.delete_files import Mask, deleted_by_position
from volley.iceberg.read.entries import Content, PlannedFile
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.schema.types import ROW_ID
from volley.iceberg.schema.types import with_row_ids as with_ids
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.upsert.changes import (
    DELETED,
    ORDER,
    STORED_ID,
    STORED_IN,
    ChangeFile,
    UpsertWriter,
)
from volley.iceberg.upsert.incomplete import UNCHANGED, is_incomplete
from volley.iceberg.upsert.lives import with_column
from volley.iceberg.upsert.partial import completed_rows, without_source
from volley.iceberg.upsert.ranges import SearchedKey, may_have, ranges_of
from volley.iceberg.upsert.row_ids import CHANGE, ChangeNumbers, RowIdFile, read_ids
from volley.iceberg.write.writer import write_batches

__all__ = [
    "Deletions",
    "FilesTask",
    "Finder",
    "FollowMoves",
    "MergeChanges",
    "Places",
    "ReadStored",
    "UpsertTask",
    "columns_of",
    "rows_of_mask",
    "with_stored_ids",
    "write_rows",
]

_AT = "at"
# How marks of the rows of a key are put together.
_FOLDS = {DELETED: "any", STORED_ID: "max"}
_BATCH_ROWS = 100_000

_Numbers = np.ndarray[Any, Any]
_Sources = Mapping[str, int]
"""By the name of a column, the number of the row that has its value."""


@dataclass(frozen=True)
class UpsertTask:
    """Work on the changes of an epoch.

    Args:
        changes: The change files, in the order in which later changes of equal order win.
        suits_driver: True if it is so little work that a Spark task would cost more.
    """

    writer: UpsertWriter
    number: int
    changes: tuple[ChangeFile, ...]
    suits_driver: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class MergeChanges(UpsertTask):
    """Writes the last change of each key of some buckets to the table's data files, unless it is a deletion.

    Args:
        completions: Rows of the table with values that changes leave out, as changes that come first.
        replaced: The ids of the rows that are replaced.
        replaced_in: The numbers of the data files whose rows these are; those of others have changed since.
    """

    buckets: range
    truncated: int | None = None
    completions: tuple[ChangeFile, ...] = ()
    replaced: tuple[RowIdFile, ...] = ()
    replaced_in: frozenset[int] = frozenset()

    def __call__(self) -> WriteResult:
        changes = self.writer.changes_in(self.changes, self.buckets)
        changes = self._with_ids(changes) if self.replaced else changes
        if self.completions:
            completions = self.writer.changes_in(self.completions, self.buckets)
            changes = pa.concat_tables([completions, changes], promote_options="default")
        return write_rows(self.writer, self.number, _last_of_each(_after(changes, self.truncated), self.writer))

    def _with_ids(self, changes: pa.Table) -> pa.Table:
        """Return changes with the ids of the rows that they replace: one change of each key has that of its row."""
        ids = read_ids(self.writer, self.replaced, self.buckets, self.replaced_in)
        places = ChangeNumbers(self.changes).places(ids[CHANGE].to_numpy(), self.buckets)
        if not self.writer.mode.is_partial:
            column = np.full(changes.num_rows, -1)
            np.maximum.at(column, places, ids[STORED_ID].to_numpy())
            return changes.append_column(STORED_ID, pa.array(column, mask=column < 0))
        # A row of the table comes before all changes of its key.
        rows = pa.table(
            self.writer.stored_as_changes(one_batch(changes.select(self.writer.keys).take(pa.array(places))))
        )
        for name in (STORED_IN, STORED_ID):
            rows = rows.append_column(name, ids[name])
        return pa.concat_tables([rows, changes], promote_options="default")


def write_rows(writer: UpsertWriter, number: int, rows: pa.Table) -> WriteResult:
    """Write rows to the table's data files; with the ids of the rows that they replace, if there are such."""
    format, names = writer.rows, writer.rows.rows_schema.names
    if _has_ids(rows):
        format, names = replace(format, keeps_row_ids=True), [*names, STORED_ID]
    batches = rows.select(names).to_batches(max_chunksize=_BATCH_ROWS)
    return write_batches(format.open(number), (_renamed(batch, STORED_ID, ROW_ID) for batch in batches))


def with_stored_ids(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that were read with their ids as changes have these."""
    return _renamed(rows, ROW_ID, STORED_ID)


def _renamed(rows: pa.RecordBatch, before: str, after: str) -> pa.RecordBatch:
    return rows.rename_columns([after if name == before else name for name in rows.schema.names])


def _after(changes: pa.Table, truncated: int | None) -> pa.Table:
    """Return the changes that come after a truncation."""
    return changes if truncated is None else changes.filter(pc.greater(changes[ORDER], truncated))


def _last_of_each(rows: pa.Table, writer: UpsertWriter) -> pa.Table:
    """Return the winning row of each key, in order of arrival, without deletions."""
    if writer.mode.is_partial and pc.any(is_incomplete(rows)).as_py():
        return completed_rows(rows, _order_of(rows, writer), writer)
    order = _ascending(rows, writer)
    keys = normal_rows(writer.keys_of(rows))
    has_deletions, has_ids = pc.any(rows[DELETED]).as_py(), _has_ids(rows)
    marks = [*([DELETED] if has_deletions else []), STORED_ID] if has_ids else []
    last = _last(keys, order, rows.select(marks)).sort_by(_AT)
    if has_deletions:
        last = last.filter(pc.invert(rows[DELETED].take(last[_AT])))
    found = rows.take(last[_AT])
    if not has_ids:
        return found
    ids = last[f"{STORED_ID}_max"]
    # A row that comes after a deletion is another one.
    ids = pc.if_else(last[f"{DELETED}_any"], None, ids) if has_deletions else ids
    return with_column(found, STORED_ID, ids)


def _has_ids(rows: pa.Table) -> bool:
    return STORED_ID in rows.column_names and rows[STORED_ID].null_count < rows.num_rows


def _ascending(rows: pa.Table, writer: UpsertWriter) -> _Numbers:
    """Return the rows' numbers in the order in which later ones replace earlier ones."""
    order = _order_of(rows, writer)
    return np.asarray(ascending_order(order)) if order else np.arange(rows.num_rows)


def _order_of(rows: pa.Table, writer: UpsertWriter) -> list[pa.Array]:
    """Return the columns that order rows; equal ones stay in order of arrival."""
    return [] if writer.order_by is None else ranks(rows[writer.order_by].combine_chunks())


def _last(keys: pa.Table, order: _Numbers, marks: pa.Table) -> pa.Table:
    """Return for each key of the rows with these numbers the number of its last row, and what its marks come to."""
    for name in marks.column_names:
        keys = keys.append_column(name, marks[name])
    ranked = keys.take(pa.array(order)).append_column(_AT, pa.array(np.arange(len(order))))
    asked = [(_AT, "max"), *((name, _FOLDS[name]) for name in marks.column_names)]
    names = [name for name in keys.column_names if name not in _FOLDS]
    last = ranked.group_by(names, use_threads=False).aggregate(asked)
    return last.append_column(_AT, pa.array(order[last[f"{_AT}_max"].to_numpy()]))


@dataclass(frozen=True)
class FilesTask(UpsertTask):
    """Work on the rows of some data files."""

    metadata: TableMetadata
    files: tuple[PlannedFile, ...]

    def _read(self, planned: PlannedFile, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a file in order, deleted ones too."""
        task = file_task(PlannedFile(planned.file), self.metadata)
        return RowReader.of(self.metadata, schema, variants_as_stored=True).read(self.writer.rows.io, task)


def columns_of(metadata: TableMetadata, names: Iterable[str]) -> Schema:
    """Return the columns of a table with these names; from format version 3 on, `ROW_ID` may be one."""
    names, schema = list(names), metadata.schema()
    schema = with_ids(schema) if ROW_ID in names and metadata.format_version >= ROW_IDS_SINCE else schema
    return Schema(*(schema.find_field(name) for name in names))


class Deletions:
    """Tells which rows of data files are deleted."""

    def __init__(self, writer: UpsertWriter, metadata: TableMetadata) -> None:
        self._io, self._metadata = writer.rows.io, metadata
        self._reader = RowReader.of(metadata, columns_of(metadata, writer.keys))

    def deleted(self, planned: PlannedFile) -> Mask:
        """Return which rows are deleted."""
        file, deletes = planned.file, planned.deletes
        if all(delete.content == Content.POSITION_DELETES for delete in deletes):
            return deleted_by_position(self._io, file.path, deletes, range(file.rows))
        return self._reader.deleted(self._io, file_task(planned, self._metadata))


class Finder(Deletions):
    """Finds the rows of data files with one of some keys.

    Args:
        keys: The keys; None = rows of all keys.
        more: Columns that `find_rows` returns besides the keys.
    """

    def __init__(
        self, keys: pa.Table | None, writer: UpsertWriter, metadata: TableMetadata, more: Iterable[str] = ()
    ) -> None:
        super().__init__(writer, metadata)
        self._schema = writer.key_schema
        self._more = RowReader.of(metadata, columns_of(metadata, [*writer.keys, *more]), variants_as_stored=True)
        columns = columns_of(metadata, writer.keys).fields
        self._keys: KeySearch | None = None
        self._ranges: list[SearchedKey] = [(field, None) for field in columns]
        if keys is not None:
            keys = keys.cast(self._schema)
            self._keys = KeySearch(keys)
            self._ranges = [(field, ranges_of(keys[number])) for number, field in enumerate(columns)]

    def find(self, planned: PlannedFile) -> _Numbers:
        """Return the positions of the rows with one of the keys, deleted ones too."""
        may_match = partial(may_have, self._ranges)
        return self._reader.find(self._io, file_task(planned, self._metadata), self._rows, may_match)

    def find_rows(self, planned: PlannedFile) -> tuple[_Numbers, pa.Table]:
        """Return the positions of the rows with one of the keys, deleted ones too, and their columns."""
        may_match = partial(may_have, self._ranges)
        return self._more.find_rows(self._io, file_task(planned, self._metadata), self._rows, may_match)

    def find_ids(self, planned: PlannedFile) -> tuple[_Numbers, pa.Table]:
        """Return the positions of the rows with one of the keys, deleted ones too, with ids and keys' numbers."""
        search, keys = self._keys, list[_Numbers]()
        assert search is not None

        def matches(stored_keys: pa.Table) -> _Numbers:
            rows, numbers = search.matches(self._normal(stored_keys))
            keys.append(numbers)
            return rows

        task, may_match = file_task(planned, self._metadata), partial(may_have, self._ranges)
        ids = columns_of(self._metadata, [ROW_ID])
        positions, found = self._reader.find_rows(self._io, task, matches, may_match, ids)
        return positions, found.append_column(CHANGE, pa.array(keys[0]))

    def _rows(self, stored_keys: pa.Table) -> _Numbers:
        return np.arange(stored_keys.num_rows) if self._keys is None else self._keys.rows(self._normal(stored_keys))

    def _normal(self, stored_keys: pa.Table) -> pa.Table:
        columns = stored_keys.select(range(len(self._schema))).rename_columns(self._schema.names)
        batches = [conform(batch, self._schema) for batch in columns.to_batches()]
        return pa.Table.from_batches(batches, self._schema)


class Places(Protocol):
    """Where the rows of data files are that are to be replaced."""

    def find(self, planned: PlannedFile) -> _Numbers:
        """Return their positions, ascending; some may be deleted."""

    def deleted(self, planned: PlannedFile) -> Mask:
        """Return which rows are deleted."""


class ReadStored(FilesTask):
    """Writes the rows of data files that have values which changes leave out, as changes."""

    def __call__(self) -> WriteResult:
        finder = Finder(self.writer.incomplete_keys(self.changes), self.writer, self.metadata)
        rows = chain.from_iterable(self._stored(planned, finder) for planned in self.files)
        return self.writer.open(self.number).add_all(map(self.writer.stored_as_changes, rows))

    def _stored(self, planned: PlannedFile, finder: Finder) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file with one of the keys, and the columns that changes leave out."""
        columns = sorted({*self.writer.keys, *_left_out(self.changes)})
        with storage_errors(planned.file.path, "reading"):
            matching = finder.find(planned)
            if len(matching):
                deleted = finder.deleted(planned)
                mask = np.zeros(len(deleted), np.bool_)
                mask[matching[~deleted[matching]]] = True
                yield from rows_of_mask(self._read(planned, columns_of(self.metadata, columns)), mask)


def rows_of_mask(batches: Iterator[pa.RecordBatch], kept: Mask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, in order, that a mask of its rows has."""
    start = 0
    for batch in batches:
        yield batch.filter(pa.array(kept[start : start + batch.num_rows]))
        start += batch.num_rows


def _left_out(files: Iterable[ChangeFile]) -> frozenset[str]:
    return frozenset(chain.from_iterable(file.unchanged for file in files))


@dataclass(frozen=True)
class FollowMoves(UpsertTask):
    """Writes whole changes in place of those that give a row another key and leave out values."""

    truncated: int | None

    def __call__(self) -> WriteResult:
        changes = _after(self.writer.changes_with(self.changes, self._keys()), self.truncated)
        columns = _left_out(self.changes)
        completed = dict(_completed(changes, self.writer, columns))
        return self.writer.open(self.number).add_all(_whole(changes, completed, columns).to_batches())

    def _keys(self) -> pa.Table:
        """Return all keys that the rows in question have or had, each once."""
        changes = self.writer.marked_keys([file for file in self.changes if file.moves])
        deletions = self.writer.moves(changes)
        orders = pc.add(deletions[ORDER], 1).combine_chunks()
        moved = changes.filter(pc.and_(is_incomplete(changes), pc.is_in(changes[ORDER], orders)))
        return distinct(normal_rows(self.writer.keys_of(pa.concat_tables([deletions, moved]))))


def _completed(rows: pa.Table, writer: UpsertWriter, columns: frozenset[str]) -> Iterator[tuple[int, _Sources]]:
    """Yield the number of each change that moves a row, and where the values are that it leaves out.

    Few rows change their key without their large values: a loop over those of the same keys is fast enough.
    """
    keys = list(zip(*(column.to_pylist() for column in normal_rows(rows.select(writer.keys)).columns), strict=True))
    orders, deleted, unchanged = (rows[name].to_pylist() for name in (ORDER, DELETED, UNCHANGED))
    # Where the values of the row of each key are now, and those of the row that was deleted last.
    current: dict[Any, _Sources] = {}
    deleted_order: int | None = None
    deleted_row: _Sources = {}
    for row in _ascending(rows, writer).tolist():
        if deleted[row]:
            deleted_order, deleted_row = orders[row], current.pop(keys[row], {})
            continue
        moves_row = orders[row] is not None and deleted_order == orders[row] - 1
        earlier = deleted_row if moves_row else current.get(keys[row], {})
        missing = unchanged[row] or ()
        if moves_row and missing:
            if lacking := [column for column in missing if column not in earlier]:
                raise without_source(1, lacking[0])
            yield row, {column: earlier[column] for column in missing}
        own = {column: row for column in columns if column not in missing}
        current[keys[row]] = {**own, **{column: earlier[column] for column in missing if column in earlier}}


def _whole(rows: pa.Table, completed: Mapping[int, _Sources], columns: frozenset[str]) -> pa.Table:
    """Return these changes with all values."""
    whole = rows.take(pa.array(list(completed), pa.int64()))
    for column in columns:
        sources = pa.array([sources.get(column, row) for row, sources in completed.items()], pa.int64())
        whole = whole.set_column(
            whole.column_names.index(column), rows.schema.field(column), rows[column].take(sources)
        )
    at = whole.column_names.index(UNCHANGED)
    return whole.set_column(at, whole.schema.field(at), pa.nulls(whole.num_rows, whole.schema.field(at).type))

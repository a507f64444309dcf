"""Reads the rows that a snapshot changed; rows that it only wrote to other files cancel out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from volley.columns.keys.buckets import Divided, buckets_of, divided
from volley.columns.keys.equality import differing, matching_rows
from volley.iceberg.read.changed_files import ChangedFile, ChangeSplit
from volley.iceberg.read.entries import Content
from volley.iceberg.read.lineage import PAIR, differing_by_ids, gained, lost
from volley.iceberg.read.rows import FileTask, RowReader
from volley.iceberg.schema.types import arrow_schema, rows_schema
from volley.store.rows import RowStore

__all__ = ["CHANGE_COLUMNS", "SNAPSHOT_SEQUENCE", "change_schema", "read_changes", "rows_without", "weight_of"]

CHANGE_COLUMNS = pa.schema(
    [
        pa.field("_change", pa.string(), nullable=False),
        pa.field("_snapshot", pa.int64(), nullable=False),
        pa.field("_committed_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""The columns that follow the table's: insert, update_before, update_after or delete; the snapshot's id; its time."""

SNAPSHOT_SEQUENCE = "_sequence"
"""The column behind these, of rows that have the sequence number of their snapshot."""

# Rows of files up to this size in bytes are compared in memory; as Arrow they take two to four times as much.
_PART_BYTES = 32 << 20
# More parts of as many runs would be batches of few rows.
_MOST_PARTS = 256
# Two sides have the same rows in the same order if less than half of these differ, and of all after them.
_FIRST_ROWS = 65_536

Batches = Iterator[pa.RecordBatch]


def weight_of(batch: pa.RecordBatch) -> int:
    """Return whether the rows of a batch of changes, which are of one kind, were added (1) or removed (-1)."""
    return 1 if batch.column("_change")[0].as_py() in ("insert", "update_after") else -1


def change_schema(schema: Schema, sequence: bool = False) -> pa.Schema:
    """Return the Arrow schema of changes of rows that are read under a schema of the table.

    Args:
        sequence: True if they have the sequence number of their snapshot.
    """
    number = [pa.field(SNAPSHOT_SEQUENCE, pa.int64(), nullable=False)] if sequence else []
    return pa.schema([*arrow_schema(rows_schema(schema)), *CHANGE_COLUMNS, *number])


def read_changes(io: FileIO, split: ChangeSplit, reader: RowReader, keys: Sequence[str] = ()) -> Batches:
    """Yield the changed rows of a split with `CHANGE_COLUMNS`: of each part of it deletes and old rows, then new ones.

    The nth row with ``update_before`` and the nth with ``update_after`` are a pair: rows of one key, or without keys of
    one id, if rows have ids (of format version 3) and stay in their partition. A file that is only added or
    removed is read batch by batch. Else memory holds the rows of 32 MB of files and the changed rows among them: the
    rows of more are divided on the local disk first, into 256 parts at most. If keys do not determine the partition,
    memory holds all changed rows of the snapshot.

    Args:
        reader: Reads rows, under the schema that the changes have.
        keys: The columns that pair a deleted with an inserted row as an update; () = their ids do.
    """
    reader = replace(reader, dictionaries=False)
    label = _Label(split, change_schema(reader.schema, split.sequence is not None), reader.batch_rows)
    if len(split.groups) == 1 and len(split.groups[0]) == 1:
        (file,) = split.groups[0]
        if not (file.loses_rows and file.gains_rows):
            change, batches = ("delete", lost) if file.loses_rows else ("insert", gained)
            yield from label.batches(change, batches(io, file, reader))
            return
    sides = (side for group in split.groups for side in _GroupComparison(io, group, reader, keys).sides())
    for removed, added in _joined(sides) if len(split.groups) > 1 else sides:
        yield from _paired(removed, added, keys, label)


_Sides = tuple[pa.Table, pa.Table]
"""The rows that were removed and those that were added."""


def _joined(sides: Iterable[_Sides]) -> Iterator[_Sides]:
    removed, added = zip(*sides, strict=True)
    yield pa.concat_tables(removed), pa.concat_tables(added)


def _paired(removed: pa.Table, added: pa.Table, keys: Sequence[str], label: _Label) -> Batches:
    before, after = np.empty(0, np.int64), np.empty(0, np.int64)
    if not keys and PAIR in removed.column_names:
        keys = [PAIR]
    if keys:
        before, after = matching_rows(removed.select(keys), added.select(keys), keys)
    yield from label.rows("delete", rows_without(removed, before))
    yield from label.rows("update_before", removed.take(pa.array(before)))
    yield from label.rows("update_after", added.take(pa.array(after)))
    yield from label.rows("insert", rows_without(added, after))


def _is_cheap(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_temporal(data_type))


def rows_without(rows: pa.Table, numbers: np.ndarray) -> pa.Table:
    """Return rows, in their order, without those of some numbers."""
    keep = np.ones(rows.num_rows, bool)
    keep[numbers] = False
    return rows.filter(pa.array(keep))


@dataclass(frozen=True)
class _Label:
    """Adds the columns of changes to rows."""

    split: ChangeSplit
    schema: pa.Schema
    batch_rows: int

    def batches(self, change: str, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Yield batches with one kind of change."""
        committed_at = pa.scalar(self.split.committed_at * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
        names = self.schema.names[: -len(CHANGE_COLUMNS) - (self.split.sequence is not None)]
        for batch in batches:
            values = [pa.scalar(change), pa.scalar(self.split.snapshot_id, pa.int64()), committed_at]
            if self.split.sequence is not None:
                values.append(pa.scalar(self.split.sequence, pa.int64()))
            columns = [pa.repeat(value, batch.num_rows) for value in values]
            yield pa.RecordBatch.from_arrays([*batch.select(names).columns, *columns], schema=self.schema)

    def rows(self, change: str, rows: pa.Table) -> Batches:
        """Yield rows with one kind of change."""
        return self.batches(change, rows.to_batches(self.batch_rows))


@dataclass(frozen=True)
class _GroupComparison:
    """Compares the rows that a group of files loses and gains.

    Args:
        keys: The columns that identify a row; () = all do.
    """

    io: FileIO
    files: Sequence[ChangedFile]
    reader: RowReader
    keys: Sequence[str]

    def sides(self) -> Iterator[_Sides]:
        """Yield the rows that differ; with keys, all rows of one key at once."""
        in_part = sum(_size(file) for file in self.files if file.before and file.after)
        by_ids = differing_by_ids(self.io, self.files, self.reader) if in_part <= _PART_BYTES else None
        if by_ids is not None:
            # An engine may have written a row anew, with another id.
            removed, added = self._cancelled(*by_ids)
            # Rows of all groups are paired by keys.
            names = [*(field.name for field in self.reader.schema.fields), *([] if self.keys else [PAIR])]
            yield removed.select(names), added.select(names)
            return
        aligned = self._aligned() if _have_equal_lengths(self.files) else None
        if aligned is not None:
            yield self._cancelled(*aligned)
            return
        parts = min(-(-sum(map(_size, self.files)) // _PART_BYTES), _MOST_PARTS)
        if parts == 1:
            yield self._cancelled(self._table(self._rows(lost)), self._table(self._rows(gained)))
            return
        removed, added = (self._divided(self._rows(side), parts) for side in (lost, gained))
        for part in range(parts):
            yield self._cancelled(self._table(removed.read(part)), self._table(added.read(part)))

    def _divided(self, batches: Batches, parts: int) -> RowStore:
        """Divide rows into parts by the values that identify them."""

        def arrange(rows: pa.RecordBatch) -> Divided:
            keys = rows.select(list(self.keys)).columns if self.keys else rows.columns
            return divided(rows, buckets_of(keys, parts, rows.num_rows))

        store = RowStore(_PART_BYTES, arrange, compressed=True)
        for batch in batches:
            store.append(batch)
        return store

    def _rows(self, side: Callable[[FileIO, ChangedFile, RowReader], Batches]) -> Batches:
        return chain.from_iterable(side(self.io, file, self.reader) for file in self.files)

    def _table(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, arrow_schema(self.reader.schema))

    def _cancelled(self, removed: pa.Table, added: pa.Table) -> _Sides:
        """Return two sides without the rows that both have."""
        # Hashing few columns is cheap; it finds all equal rows unless several rows have the same values there.
        columns = arrow_schema(self.reader.schema)
        some = list(self.keys) or [field.name for field in columns if _is_cheap(field.type)]
        for hashed in (some, columns.names) if some else (columns.names,):
            before, after = matching_rows(removed.select(columns.names), added.select(columns.names), hashed)
            removed, added = rows_without(removed, before), rows_without(added, after)
        return removed, added

    def _aligned(self) -> _Sides | None:
        """Return the rows that differ from those at the same places; None if the rows have moved."""
        losing = sorted((file for file in self.files if file.loses_rows), key=lambda file: file.file.rows)
        gaining = sorted((file for file in self.files if file.gains_rows), key=lambda file: file.file.rows)
        before = chain.from_iterable(lost(self.io, file, self.reader) for file in losing)
        after = chain.from_iterable(gained(self.io, file, self.reader) for file in gaining)
        differ: list[tuple[pa.RecordBatch, pa.RecordBatch]] = []
        rows = changed = size = 0
        for old, new in _in_step(before, after):
            is_changed = differing(old, new)
            rows, changed = rows + len(is_changed), changed + int(is_changed.sum())
            keep = pa.array(is_changed)
            differ.append((old.filter(keep), new.filter(keep)))
            size += differ[-1][0].nbytes + differ[-1][1].nbytes
            if (rows >= _FIRST_ROWS and changed * 2 > rows) or size > _PART_BYTES:
                return None
        if changed * 2 > rows or rows < sum(file.file.rows for file in losing):
            return None
        return self._table(old for old, _ in differ), self._table(new for _, new in differ)


def _have_equal_lengths(files: Iterable[ChangedFile]) -> bool:
    """Return True if removed and added files have the same numbers of rows, none deleted."""
    if any((file.before and file.after) or _task(file).deletes for file in files):
        return False
    old, new = (sorted(file.file.rows for file in files if (file.before is None) == is_new) for is_new in (False, True))
    return old == new


def _size(file: ChangedFile) -> int:
    """Return about how many bytes of a file have its changed rows, at least one."""
    if file.before is None or file.after is None:
        return file.file.size
    before, after = file.before.deletes, file.after.deletes
    deletes = [delete for delete in (*before, *after) if (delete in before) != (delete in after)]
    if any(delete.content == Content.EQUALITY_DELETES for delete in deletes):
        return file.file.size
    return 1 + file.file.size * min(sum(delete.rows for delete in deletes), file.file.rows) // max(file.file.rows, 1)


def _task(file: ChangedFile) -> FileTask:
    task = file.before or file.after
    assert task is not None
    return task


def _in_step(old: Batches, new: Batches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield batches of two sides in pieces of the same length, as long as both have rows."""
    ours, theirs = next(old, None), next(new, None)
    while ours is not None and theirs is not None:
        rows = min(ours.num_rows, theirs.num_rows)
        yield ours.slice(0, rows), theirs.slice(0, rows)
        ours = ours.slice(rows) if ours.num_rows > rows else next(old, None)
        theirs = theirs.slice(rows) if theirs.num_rows > rows else next(new, None)

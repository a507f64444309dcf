"""Finds the rows that changed files lose and gain by their ids, without reading the values of the others.

A row of format version 3 that is only written to another file keeps its id, and the number of the snapshot that changed
it last: https://iceberg.apache.org/spec/#row-lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from volley.columns.keys.normal import Bools
from volley.columns.keys.search import Numbers
from volley.iceberg.read.changed_files import ChangedFile
from volley.iceberg.read.rows import FileTask, RowReader
from volley.iceberg.schema.types import (
    CHANGED_AT,
    CHANGED_AT_ID,
    ROW_COLUMNS,
    ROW_ID,
    ROW_ID_ID,
    arrow_schema,
    with_row_ids,
)

__all__ = ["PAIR", "differing_by_ids", "gained", "lost"]

PAIR = "_volley_row_id"
"""The column with the ids of the rows that `differing_by_ids` returns: a removed and an added row of one id are one."""

# Rows whose ids are in memory at once, sixteen bytes each; and bytes of files whose changed rows are.
_MOST_ROWS = 1 << 23
_MOST_BYTES = 128 << 20
# Most ids of a file follow each other: they are found by a table, of at most so many numbers for each of them.
_MOST_SPREAD = 4
# Rows of a file whose values are read together with the ids, and bytes of all files that are read so.
_FEW_ROWS, _FEW_BYTES = 1 << 16, 32 << 20

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class _Rows:
    """Rows that a file loses or gains.

    Args:
        changed_at: For each, the number of the snapshot that changed it last.
        read: Reads some of them.
        size: Their size in the file in bytes, about.
    """

    ids: Numbers
    changed_at: Numbers
    read: Callable[[Bools], Batches]
    size: int


def differing_by_ids(io: FileIO, files: Sequence[ChangedFile], reader: RowReader) -> tuple[pa.Table, pa.Table] | None:
    """Return the rows that files lose, and those that they gain, without those that were only written to another file.

    Args:
        reader: Reads rows; the result has its columns, and `PAIR`.

    Returns:
        The rows; None if some have no ids, or if there are too many for the memory.
    """
    whole = [file.file for file in files if file.before is None or file.after is None]
    few_rows = _FEW_ROWS if sum(file.size for file in whole) <= _FEW_BYTES else 0
    if sum(file.rows for file in whole) > _MOST_ROWS or any(file.file.first_row_id is None for file in files):
        return None
    if any(
        field.name in ROW_COLUMNS and field.field_id not in (ROW_ID_ID, CHANGED_AT_ID) for field in reader.schema.fields
    ):
        return None  # columns of the table's own
    old = [_rows_of(io, file.before, file.after, reader, few_rows) for file in files if file.loses_rows]
    new = [_rows_of(io, file.after, file.before, reader, few_rows) for file in files if file.gains_rows]
    kept = _differing(old, new)
    if kept is None or sum(_size_of(*side) for side in zip((old, new), kept, strict=True)) > _MOST_BYTES:
        return None
    removed, added = (_table(*side, reader) for side in zip((old, new), kept, strict=True))
    return removed, added


def _rows_of(io: FileIO, one: FileTask | None, other: FileTask | None, reader: RowReader, few_rows: int) -> _Rows:
    assert one is not None
    if other is None and one.file.rows > few_rows:
        marks = replace(reader, schema=with_row_ids(Schema()))
        located = list(marks.read_located(io, one, _all))
        batches, positions = [batch for batch, _ in located], np.concatenate([_NONE, *(place for _, place in located)])
        return _Rows(
            *_marks(pa.Table.from_batches(batches, arrow_schema(marks.schema))),
            lambda chosen: (rows for rows, _ in reader.rows_at(io, one, positions[chosen])),
            one.file.size,
        )
    whole = replace(reader, schema=with_row_ids(reader.schema))
    rows = pa.Table.from_batches(whole.read_difference(io, one, other), arrow_schema(whole.schema))
    names = [field.name for field in reader.schema.fields]
    return _Rows(*_marks(rows), lambda chosen: iter(rows.select(names).filter(pa.array(chosen)).to_batches()), 0)


_NONE = np.empty(0, np.int64)


def _all(rows: pa.RecordBatch) -> Bools:
    return np.ones(rows.num_rows, np.bool_)


def _marks(rows: pa.Table) -> tuple[Numbers, Numbers]:
    return rows[ROW_ID].to_numpy(), rows[CHANGED_AT].to_numpy()


def _differing(old: Sequence[_Rows], new: Sequence[_Rows]) -> tuple[Bools, Bools] | None:
    """Return which rows are not on both sides, with one id and one number; None if ids don't tell them apart."""
    (old_ids, old_numbers), (new_ids, new_numbers) = (
        (
            np.concatenate([_NONE, *(rows.ids for rows in side)]),
            np.concatenate([_NONE, *(rows.changed_at for rows in side)]),
        )
        for side in (old, new)
    )
    at = _places(old_ids, new_ids)
    same = at >= 0
    same[same] = old_numbers[at[same]] == new_numbers[same]
    kept = np.ones(len(old_ids), np.bool_)
    kept[at[same]] = False
    return None if len(old_ids) - np.count_nonzero(kept) != np.count_nonzero(same) else (kept, ~same)


def _places(ids: Numbers, sought: Numbers) -> Numbers:
    """Return for each sought id where it stands among others; -1 = it does not."""
    least, most = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
    if most - least < _MOST_SPREAD * len(ids):
        # A table takes a tenth of the time that sorting does.
        table = np.full(most - least + 1, -1, np.int32)
        table[ids - least] = np.arange(len(ids), dtype=np.int32)
        places = np.full(len(sought), -1, np.int64)
        inside = (sought >= least) & (sought <= most)
        places[inside] = table[sought[inside] - least]
        return places
    order = np.append(np.argsort(ids, kind="stable"), -1)
    places = order[np.searchsorted(ids, sought, sorter=order[:-1])]
    places[np.append(ids, -1)[places] != sought] = -1
    return places


def _size_of(side: Sequence[_Rows], chosen: Bools) -> int:
    return sum(rows.size * int(part.sum()) // max(1, len(part)) for rows, part in _parts(side, chosen))


def _table(side: Sequence[_Rows], chosen: Bools, reader: RowReader) -> pa.Table:
    parts = [(rows, part) for rows, part in _parts(side, chosen) if part.any()]
    batches = (batch for rows, part in parts for batch in rows.read(part))
    ids = np.concatenate([_NONE, *(rows.ids[part] for rows, part in parts)])
    return pa.Table.from_batches(batches, arrow_schema(reader.schema)).append_column(PAIR, pa.array(ids))


def _parts(side: Sequence[_Rows], chosen: Bools) -> Iterator[tuple[_Rows, Bools]]:
    ends = np.cumsum([len(rows.ids) for rows in side])
    return zip(side, np.split(chosen, ends[:-1]) if side else [], strict=True)


def lost(io: FileIO, file: ChangedFile, reader: RowReader) -> Batches:
    """Yield the rows of a file that were there before the snapshot and are not since."""
    return reader.read_difference(io, file.before, file.after) if file.before and file.loses_rows else iter(())


def gained(io: FileIO, file: ChangedFile, reader: RowReader) -> Batches:
    """Yield the rows of a file that are there since the snapshot and were not before."""
    return reader.read_difference(io, file.after, file.before) if file.after and file.gains_rows else iter(())

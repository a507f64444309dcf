"""Applies the changes of a joined table to the indices of its rows, instead of reading the table again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import conform
from volley.columns.join_history import GONE, SINCE, WEIGHT, later_versions
from volley.columns.join_index import JoinBuckets, JoinIndex, build_index, key_columns, known_since
from volley.columns.keys.buckets import bucket_bounds, key_hashes
from volley.columns.keys.equality import matching_rows
from volley.contracts.dimension import DimensionReader, Version
from volley.engine.join_indices import needed_schema, parts
from volley.plan.joins import TableJoin

__all__ = ["NotApplicableError", "changed_indices"]


class NotApplicableError(Exception):
    """The table has to be read: its changes are not known, or don't fit."""


def changed_indices(
    reader: DimensionReader, join: TableJoin, before: Version, after: Version, buckets: JoinBuckets
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number and the new index of each bucket that the changes between two versions touch.

    Raises:
        NotApplicableError: If the changes are not known, are too many, or have rows that the buckets don't have.
        VolleyError: If the table can't be read.
    """
    keys, time, columns = parts(join, reader.schema)
    changes = _changes(reader, join, before, after)
    changed = JoinIndex.of(build_index(changes, keys, time, [*columns, *_marks(join)], break_ties=False))
    bounds = bucket_bounds(key_hashes(changed.keys.columns), buckets.bits)
    table = changed.table()
    for bucket in np.flatnonzero(np.diff(bounds)).tolist():
        part = table.slice(bounds[bucket], bounds[bucket + 1] - bounds[bucket])
        yield bucket, _changed(join, buckets.load(bucket), part, columns)


def _changed(join: TableJoin, index: JoinIndex, changes: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the index of a bucket after its changes."""
    rows = _continued(index, changes) if join.by_history else _applied(index.table(), changes)
    if rows.nbytes > join.max_bytes:
        raise NotApplicableError
    keys, time = key_columns(len(join.on), index.times is not None)
    if not join.by_history:
        return build_index(rows, keys, time, columns)
    return known_since(build_index(rows, keys, SINCE, [*columns, GONE], break_ties=False), index.known_since)


def _marks(join: TableJoin) -> tuple[str, ...]:
    """Return the columns that mark a change: its WEIGHT, and in a history its time."""
    return (SINCE, WEIGHT) if join.by_history else (WEIGHT,)


def _changes(reader: DimensionReader, join: TableJoin, before: Version, after: Version) -> pa.Table:
    """Return the rows that were added and removed, with the marks of each."""
    schema = needed_schema(join, reader.schema)
    read = reader.later_history if join.by_history else reader.changes
    changes = read(before, after, schema.names)
    if changes is None:
        raise NotApplicableError
    marked = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in _marks(join))])
    tables, size = [marked.empty_table()], 0
    for weight, *time, batch in changes:
        marks = (pa.repeat(pa.scalar(value, pa.int64()), len(batch)) for value in (*time, weight))
        tables.append(pa.Table.from_arrays([*conform(batch, schema).columns, *marks], schema=marked))
        size += tables[-1].nbytes
        if size > join.max_bytes:
            raise NotApplicableError
    return pa.concat_tables(tables)


def _continued(index: JoinIndex, changes: pa.Table) -> pa.Table:
    """Return the versions of an index, and those that the changes make."""
    try:
        return later_versions(index, changes)
    except ValueError as error:
        raise NotApplicableError from error


def _applied(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the rows with those that were added, without those that were removed."""
    is_added = pc.greater(changes.column(WEIGHT), 0)
    changes = changes.drop_columns([WEIGHT])
    rows = pa.concat_tables([rows, changes.filter(is_added)])
    removed = changes.filter(pc.invert(is_added))
    gone, _ = matching_rows(rows, removed, rows.column_names)
    if len(gone) < len(removed):
        raise NotApplicableError
    is_left = np.ones(len(rows), bool)
    is_left[gone] = False
    return rows.filter(pa.array(is_left))

"""Reads the rows of a joined table, or its changes, and indexes them by key: one index, or one for each bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import conform, no_table
from volley.columns.join_history import GONE, SINCE, WEIGHT, later_versions, versions
from volley.columns.join_index import JoinBuckets, JoinIndex, build_index, key_columns, known_since
from volley.columns.keys.buckets import Divided, bucket_bounds, key_hashes
from volley.columns.keys.equality import matching_rows
from volley.columns.keys.normal import are_valid
from volley.contracts.dimension import DimensionReader, Version
from volley.errors import PlanError
from volley.plan.joins import TableJoin
from volley.store.rows import RowStore, one_bucket

__all__ = ["Indices", "KeyBuckets", "NotApplicableError", "changed_indices", "needed_schema", "parts", "read_indices"]

# A bucket has an eighth of the bytes that memory is meant for, at most: a task goes from one to the next.
_SHARE = 8
_MOST_BITS = 12

_HASH = "_volley_hash"


@dataclass(frozen=True)
class Indices:
    """The indexed rows of a version of a table.

    Args:
        bits: The table has ``2 ** bits`` buckets.
        batches: The index of each bucket, built as it is taken.
    """

    bits: int
    batches: Iterator[pa.RecordBatch]


def parts(join: TableJoin, schema: pa.Schema) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """Return the keys, the validity column and the added columns of a join's rows."""
    return join.right_keys, join.valid_from, join.added(schema.names)


def needed_schema(join: TableJoin, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table that a join needs."""
    keys, time, columns = parts(join, schema)
    return pa.schema([schema.field(name) for name in dict.fromkeys([*keys, *([time] if time else []), *columns])])


def read_indices(reader: DimensionReader, join: TableJoin, version: Version) -> Indices:
    """Read the rows of a version that a join needs, and index them by key.

    Raises:
        PlanError: If the rows of one key take too many bytes; also when a batch is taken.
        VolleyError: If the table can't be read.
    """
    keys, time, columns = parts(join, reader.schema)
    schema = needed_schema(join, reader.schema)
    if join.by_history:
        return _history(reader, join, version, schema)
    buckets = KeyBuckets(schema, keys, join.max_bytes, join.nulls_match)
    for batch in reader.read(version, schema.names):
        buckets.add(conform(batch, schema))
    return _indices(join, buckets, lambda rows: build_index(rows, keys, time, columns, nulls_match=join.nulls_match))


def _history(reader: DimensionReader, join: TableJoin, version: Version, schema: pa.Schema) -> Indices:
    """Read the rows up to a version that a join needs, each with its times. Raises like `read_indices`."""
    keys, _, columns = parts(join, reader.schema)
    marked = pa.schema([*schema, pa.field(SINCE, pa.int64()), pa.field(WEIGHT, pa.int64())])
    buckets, history = KeyBuckets(marked, keys, join.max_bytes), reader.history(version, schema.names)
    for weight, time, batch in history.events:
        marks = (pa.repeat(pa.scalar(value, pa.int64()), len(batch)) for value in (time, weight))
        buckets.add(pa.RecordBatch.from_arrays([*conform(batch, schema).columns, *marks], schema=marked))

    def build(rows: pa.Table) -> pa.RecordBatch:
        index = build_index(versions(rows, keys), keys, SINCE, [*columns, GONE], break_ties=False)
        return known_since(index, history.since)

    return _indices(join, buckets, build)


def _indices(join: TableJoin, buckets: KeyBuckets, build: Callable[[pa.Table], pa.RecordBatch]) -> Indices:
    def batches() -> Iterator[pa.RecordBatch]:
        for rows in buckets.tables():
            if rows.nbytes > join.max_bytes:
                raise PlanError(
                    f"the rows of {join.table!r} that have one key, or few, take more than {join.max_bytes:,} bytes in "
                    "memory",
                    hint='join fewer columns: columns=["…"]; or rows: IcebergTable(…).rows.filter("…"); or allow more, '
                    "up to 2 GiB: max_bytes=…",
                )
            yield build(rows)

    return Indices(buckets.bits, batches())


class KeyBuckets:
    """Collects rows, then returns them by bucket, in their order; those with a null key are left out.

    Rows beyond `max_bytes` wait on local disk, in runs that are sorted by the hash of the key.

    Args:
        schema: The rows' columns.
        max_bytes: The most bytes of rows in memory; up to this size all rows are one bucket.
        nulls_match: False leaves rows with a null key out.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], max_bytes: int, nulls_match: bool = False) -> None:
        self._schema = schema
        self._keys = keys
        self._nulls_match = nulls_match
        self._max_bytes = max_bytes
        self._rows = RowStore(max_bytes, self._by_hash)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            StorageError: If the local disk is full.
        """
        keys = rows.select(list(self._keys)).columns
        if not self._nulls_match and any(key.null_count for key in keys):
            rows = rows.filter(pa.array(are_valid(keys)))
        self._rows.append(rows)

    @property
    def bits(self) -> int:
        """The number of bits of a hash that number its bucket: there are ``2 ** bits`` buckets."""
        size = self._rows.size
        buckets = _SHARE * size // self._max_bytes if size > self._max_bytes else 0
        return min(buckets.bit_length(), _MOST_BITS)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each bucket.

        Raises:
            StorageError: If the local disk is full.
        """
        bits = self.bits
        if not bits:
            yield pa.Table.from_batches(self._rows.waiting, self._schema)
            return
        hashed = self._rows.read(0)
        bounds = [bucket_bounds(run.column(_HASH).to_numpy(), bits) for run in hashed]
        runs = [run.drop_columns([_HASH]) for run in hashed]
        for bucket in range(1 << bits):
            places = [(run, *at[bucket : bucket + 2].tolist()) for run, at in zip(runs, bounds, strict=True)]
            yield pa.Table.from_batches([run.slice(start, end - start) for run, start, end in places], self._schema)

    def _by_hash(self, rows: pa.RecordBatch) -> Divided:
        hashed = key_hashes(rows.select(list(self._keys)).columns)
        order = np.argsort(hashed, kind="stable")
        return one_bucket(rows.take(pa.array(order)).append_column(_HASH, pa.array(hashed[order])))


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
    marked = [*columns, *_marks(join)]
    changed = JoinIndex.of(build_index(changes, keys, time, marked, break_ties=False, nulls_match=join.nulls_match))
    bounds = bucket_bounds(key_hashes(changed.keys.columns), buckets.bits)
    table = changed.table()
    for bucket in np.flatnonzero(np.diff(bounds)).tolist():
        part = table.slice(bounds[bucket], bounds[bucket + 1] - bounds[bucket])
        index = buckets.load(bucket)
        if not index.rows.select(columns).schema.equals(changed.rows.select(columns).schema):
            raise NotApplicableError
        yield bucket, _changed(join, index, part, columns)


def _changed(join: TableJoin, index: JoinIndex, changes: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the index of a bucket after its changes."""
    rows = _continued(index, changes) if join.by_history else _applied(index.table(), changes)
    if rows.nbytes > join.max_bytes:
        raise NotApplicableError
    keys, time = key_columns(len(join.on), index.times is not None)
    if not join.by_history:
        return build_index(rows, keys, time, columns, nulls_match=join.nulls_match)
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
    tables, size = [no_table(marked)], 0
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

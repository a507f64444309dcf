"""Compiles the join of a stream with a table to a function on Arrow batches; checks joins with streams, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import one_batch
from volley.columns.dictionaries import decode_rows, make_batch
from volley.columns.join_history import GONE
from volley.columns.join_index import JoinBuckets, JoinIndex, JoinKeys, is_ordered
from volley.columns.keys.equality import Indices
from volley.columns.keys.normal import comparable_type
from volley.columns.operators import time_text
from volley.errors import ExpressionError, near
from volley.plan import nodes
from volley.plan.joins import KeyJoin, TableJoin
from volley.types.arrow import type_name

__all__ = ["check_stream", "joined_schema", "lower_join", "schema_with_table"]

# An index of more keys does not fit into the processor's caches: keys are looked up faster in order, sorting included.
_MANY = 1 << 17

_Matches = tuple[pa.Array | None, pa.RecordBatch]
"""The stream's rows in the result, and the table's beside them; None = all of the stream's, once each."""


def lower_join(node: nodes.Join, schema: pa.Schema) -> tuple[Callable[[pa.RecordBatch], pa.RecordBatch], pa.Schema]:
    """Check a join against the schema of its input, and compile it; its table must be open.

    Raises:
        ExpressionError: If a column is unknown, two have the same name, or keys or times have types that don't fit.
    """
    join, rows = node.join, node.rows
    assert rows is not None, f"the table of {node.label()} is not open"
    out = schema_with_table(join, schema, rows.schema)
    added = join.added(rows.schema.names)

    def match(index: JoinIndex, keys: JoinKeys, time: pa.Array | None) -> _Matches:
        starts, counts = _match_version(index, keys, time) if join.by_history else index.match(keys, time)
        left, right = _pairs(starts, counts, outer=join.how == "left")
        return left, index.rows.select(added).take(right)

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        buckets: JoinBuckets = rows.buckets()
        keys = JoinKeys.of([batch.column(left) for left in join.left_keys], join.nulls_match)
        time = None if join.time is None else batch[join.time]
        index = None if buckets.bits else buckets.load(0)
        if index is None or len(index.hashes) > _MANY:
            left, right = _match_in_order(buckets, keys, time, match)
        else:
            left, right = match(index, keys, time)
        batch = batch if left is None else decode_rows(batch).take(left)
        return make_batch([*batch.columns, *right.columns], out)

    return step, out


def _match_in_order(
    buckets: JoinBuckets,
    keys: JoinKeys,
    time: pa.Array | None,
    match: Callable[[JoinIndex, JoinKeys, pa.Array | None], _Matches],
) -> _Matches:
    """Match the rows of a stream in the order of their hashes, with one bucket of a table after the other.

    The result has the order of the stream.
    """
    order = np.argsort(keys.hashes)
    keys, time = keys.take(order), None if time is None else time.take(pa.array(order))
    left, right = [], []
    for part, index in buckets.divide(keys.hashes):
        lines, rows = match(index, keys[part], None if time is None else time[part])
        left.append(order[part] if lines is None else order[part][lines.to_numpy()])
        right.append(rows)
    if not left:
        return match(buckets.load(0), keys, time)
    ours = np.concatenate(left)
    order = np.argsort(ours, kind="stable")
    return pa.array(ours[order]), one_batch(pa.Table.from_batches(right)).take(pa.array(order))


def _match_version(index: JoinIndex, keys: JoinKeys, time: pa.Array | None) -> tuple[Indices, Indices]:
    """Return the rows that the table had at the time of each row, as `JoinIndex.match` does.

    Raises:
        ExpressionError: If a row is older than what is known of the table.
    """
    assert time is not None
    since, earliest = index.known_since, pc.min(time.cast(pa.int64())).as_py()
    if since is not None and earliest is not None and earliest < since:
        raise ExpressionError(
            f"join as of {time_text(earliest)}: the first snapshot that the table still has is of {time_text(since)}",
            hint="keep snapshots longer; give the sink a dead letter for such rows, or filter them out before",
        )
    return index.match_version(keys, time, GONE)


def _pairs(starts: Indices, counts: Indices, outer: bool) -> tuple[pa.Array | None, pa.Array]:
    """Return the rows of both sides that form the result; None = all of the left side, once each.

    Args:
        starts: For each row of the left side, its first match on the right.
        counts: The number of its matches, which follow each other.
        outer: True keeps rows without a match, with a null for the right one.
    """
    unmatched = counts == 0
    repeats = np.maximum(counts, 1) if outer else counts
    if (repeats == 1).all():
        return None, pa.array(starts, mask=unmatched)
    left = np.repeat(np.arange(len(counts)), repeats)
    first = np.cumsum(repeats) - repeats
    right = starts[left] + np.arange(len(left)) - first[left]
    return pa.array(left), pa.array(right, mask=unmatched[left])


def schema_with_table(join: TableJoin, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """Check a join with a table by the schemas of both; return the schema of its rows. Raises like `lower_join`."""
    _check_as_of(join, left, right)
    return joined_schema(join, left, right, repr(join.table))


def check_stream(join: TableJoin, schema: pa.Schema) -> None:
    """Check the columns of the stream that a join with a table names. Raises like `lower_join`."""
    _check_names(join.left_columns, schema, "the stream")


def joined_schema(join: KeyJoin, left: pa.Schema, right: pa.Schema, side: str) -> pa.Schema:
    """Check a join against the schemas of both sides; return the schema of its rows.

    Args:
        side: The right side, as errors name it.

    Raises:
        ExpressionError: If a column is unknown, two have the same name, or keys have types that don't fit.
    """
    names = join.added(right.names)
    _check_names(join.left_keys, left, "the stream")
    _check_names((*join.right_keys, *names), right, side)
    for ours, theirs in join.on:
        _check_key(ours, left.field(ours).type, theirs, right.field(theirs).type)
    added = [right.field(name).with_name(name + join.suffix) for name in names]
    if twice := sorted({field.name for field in added} & {*left.names}):
        raise ExpressionError(
            f"join: the stream and {side} both have a column {twice[0]!r}",
            hint='end the names of the added columns with something: suffix="_2"; or choose some: columns=["…"]',
        )
    return pa.schema([*_own(join, left, right), *added])


def _own(join: KeyJoin, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """Return the stream's columns of the result, where keys may be the right side's."""
    for ours, theirs in join.on if join.keeps_right else ():
        field = left.field(ours)
        if field.type != right.field(theirs).type:
            left = left.set(left.get_field_index(ours), field.with_type(comparable_type(field.type)))
    return left


def _check_as_of(join: TableJoin, left: pa.Schema, right: pa.Schema) -> None:
    if join.time is None:
        return
    _check_names([join.time], left, "the stream")
    data_type = left.field(join.time).type
    if join.by_history and not (pa.types.is_timestamp(data_type) and data_type.tz):
        raise ExpressionError(
            f"join as of: the stream's {join.time!r} is {type_name(data_type)}",
            hint=f'a timestamp with a time zone, as snapshots have; cast: col("{join.time}").cast("timestamp")',
        )
    if join.valid_from is not None:
        _check_names([join.valid_from], right, repr(join.table))
        _check_times(join.time, join.valid_from, left, right)


def _check_names(names: Iterable[str], schema: pa.Schema, side: str) -> None:
    for name in names:
        if name not in schema.names:
            raise ExpressionError(f"join: {side} has no column {name!r}", hint=near(name, schema.names))


def _check_key(left: str, ours: pa.DataType, right: str, theirs: pa.DataType) -> None:
    if comparable_type(ours) is None or comparable_type(ours) != comparable_type(theirs):
        raise ExpressionError(
            f"join: the stream's {left!r} is {type_name(ours)}, the other side's {right!r} {type_name(theirs)}",
            hint="keys are columns of one type that is not nested, with int as long and float as double; cast one: "
            f'.with_column("{left}", col("{left}").cast("{type_name(theirs)}"))',
        )


def _check_times(ours: str, theirs: str, left: pa.Schema, right: pa.Schema) -> None:
    types = left.field(ours).type, right.field(theirs).type
    if not is_ordered(types[0]) or comparable_type(types[0]) != comparable_type(types[1]):
        raise ExpressionError(
            f"join as of: the stream's {ours!r} is {type_name(types[0])}, the table's {theirs!r} {type_name(types[1])}",
            hint="both are of one type: a timestamp, a date, int or long; cast one of them",
        )

"""Keeps aggregates as states that can be merged: a row becomes a state, states of a group become one, then a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.aggregates import aggregate_type, value_of
from volley.columns.compiled import CompiledExpression
from volley.columns.exact import doubles, has_uuids, restored, storage_of, stored
from volley.columns.groups import (
    ArrowMerge,
    GroupBounds,
    Merge,
    RowMerge,
    StateColumns,
    as_lists,
    list_items,
    merge_distinct,
    merge_lists,
    merge_top,
)
from volley.columns.keys.normal import normal
from volley.columns.sketches import DIGEST, HYPERLOGLOG, Sketch
from volley.plan.aggregates import Aggregation

__all__ = ["Accumulator", "accumulator"]

_ITEMS = pa.large_list
# These keep values of any type; the others keep UUIDs as their bytes, which Arrow groups and compares.
_AS_THEY_ARE = ("first", "last")


@dataclass(frozen=True)
class Accumulator:
    """An aggregate as a state that can be merged.

    Args:
        value: Its compiled expression.
        result: The type of its results.
        types: The types of the state's columns.
        lift: Returns the state of each row, from its value and its event time in microseconds.
        merge: Makes one state of those of a group.
        finish: Returns the results of states.
    """

    value: CompiledExpression
    result: pa.DataType
    types: tuple[pa.DataType, ...]
    lift: Callable[[pa.Array, pa.Array], StateColumns]
    merge: Merge
    finish: Callable[[StateColumns], pa.Array]

    def states(self, batch: pa.RecordBatch, times: pa.Array) -> StateColumns:
        """Return the state of each row of a batch."""
        return self.lift(self.value.column(batch), times)


def accumulator(aggregation: Aggregation, schema: pa.Schema) -> Accumulator:
    """Compile an aggregate for rows of a schema.

    Raises:
        ExpressionError: See `aggregate_type`.
        MissingDependencyError: If it needs a package that is not installed.
    """
    value, result = value_of(aggregation, schema), aggregate_type(aggregation, schema)
    if aggregation.function in _AS_THEY_ARE or not has_uuids(value.type):
        return Accumulator(value, result, *_PARTS[aggregation.function](aggregation, value.type, result))
    types, lift, merge, finish = _PARTS[aggregation.function](aggregation, stored(value.type), stored(result))
    return Accumulator(
        *(value, result, types, lambda values, times: lift(storage_of(values), times), merge),
        lambda state: restored(finish(state), result),
    )


_Lift = Callable[[pa.Array, pa.Array], StateColumns]
_Parts = tuple[tuple[pa.DataType, ...], _Lift, Merge, Callable[[StateColumns], pa.Array]]


def _count(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    return (
        (pa.int64(),),
        lambda values, _: [pc.cast(pc.is_valid(values), pa.int64())],
        ArrowMerge(("sum",)),
        lambda state: state[0],
    )


def _sum(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    return (result,), lambda values, _: [values.cast(result)], ArrowMerge(("sum",)), lambda state: state[0].cast(result)


def _extreme(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    function = aggregation.function
    if not pa.types.is_floating(value):
        return (value,), lambda values, _: [values], ArrowMerge((function,)), lambda state: state[0]

    # Arrow passes over NaN: keep whether there was one beside the other numbers.
    def lift(values: pa.Array, times: pa.Array) -> StateColumns:
        is_nan = pc.is_nan(values)
        return [pc.if_else(is_nan, pa.scalar(None, value), values), is_nan]

    def finish(state: StateColumns) -> pa.Array:
        nan = pc.fill_null(state[1], False)
        if function == "min":
            nan = pc.and_(nan, pc.is_null(state[0]))
        return pc.if_else(nan, pa.scalar(float("nan"), value), state[0])

    return (value, pa.bool_()), lift, ArrowMerge((function, "max")), finish


def _avg(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    def finish(state: StateColumns) -> pa.Array:
        total, count = state
        return pc.divide(total, pc.cast(count, pa.float64()))

    return (
        (pa.float64(), pa.int64()),
        lambda values, _: [doubles(values), pc.cast(pc.is_valid(values), pa.int64())],
        ArrowMerge(("sum", "sum")),
        finish,
    )


def _variance(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    """Keep count, mean and sum of squared distances, merged by Chan, Golub and LeVeque's method (1979)."""

    def lift(values: pa.Array, times: pa.Array) -> StateColumns:
        means = pc.fill_null(doubles(values), 0.0)
        return [pc.cast(pc.is_valid(values), pa.float64()), means, pc.multiply(means, 0.0)]

    def merge(state: StateColumns, offsets: GroupBounds) -> StateColumns:
        counts, means, squares = (column.to_numpy(zero_copy_only=False) for column in state)
        starts, sizes = offsets[:-1], np.diff(offsets)
        count = np.add.reduceat(counts, starts)
        mean = np.add.reduceat(counts * means, starts) / np.maximum(count, 1)
        apart = means - np.repeat(mean, sizes)
        square = np.add.reduceat(squares + counts * apart * apart, starts)
        return [pa.array(count), pa.array(mean), pa.array(square)]

    def finish(state: StateColumns) -> pa.Array:
        count, _, squares = state
        several = pc.greater(count, 1.0)
        return pc.if_else(several, pc.divide(squares, pc.subtract(count, 1.0)), pa.scalar(None, pa.float64()))

    return (pa.float64(),) * 3, lift, RowMerge(merge), finish


def _at_end(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    """Keep the value of the earliest or latest time."""
    is_first = aggregation.function == "first"
    smallest = np.minimum if is_first else np.maximum
    bound = np.iinfo(np.int64).max if is_first else np.iinfo(np.int64).min

    def merge(state: StateColumns, offsets: GroupBounds) -> StateColumns:
        times = pc.fill_null(state[0], int(bound)).to_numpy(zero_copy_only=False)
        ends = smallest.reduceat(times, offsets[:-1])
        rows = np.flatnonzero(times == np.repeat(ends, np.diff(offsets)))
        # Of equal times the first, or the last, in the order of arrival.
        places = np.searchsorted(rows, offsets[:-1]) if is_first else np.searchsorted(rows, offsets[1:]) - 1
        return [column.take(pa.array(rows[places])) for column in state]

    def lift(values: pa.Array, times: pa.Array) -> StateColumns:
        return [pc.if_else(pc.is_valid(values), times, pa.scalar(None, pa.int64())), values]

    return (pa.int64(), value), lift, RowMerge(merge), lambda state: state[1]


def _count_distinct(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    return (
        (_ITEMS(value),),
        lambda values, _: [list_items(normal(values))],
        RowMerge(merge_distinct),
        lambda state: pc.cast(pc.list_value_length(state[0]), pa.int64()),
    )


def _list(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    assert aggregation.parameter is not None

    def lift(values: pa.Array, times: pa.Array) -> StateColumns:
        valid = pa.scalar(None, pa.int64())
        return [list_items(values), list_items(pc.if_else(pc.is_valid(values), times, valid))]

    merge = RowMerge(partial(merge_lists, int(aggregation.parameter)))
    return (_ITEMS(value), _ITEMS(pa.int64())), lift, merge, partial(_listed, result)


def _listed(result: pa.DataType, state: StateColumns) -> pa.Array:
    """Return lists as results: null for an empty one."""
    is_empty = pc.equal(pc.list_value_length(state[0]), 0)
    return pc.if_else(is_empty, pa.scalar(None, result), state[0].cast(result))


def _top(aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    assert aggregation.parameter is not None

    def lift(pairs: pa.Array, times: pa.Array) -> StateColumns:
        values, ranks = pairs.flatten()
        is_ranked = pc.and_(values.is_valid(), ranks.is_valid())
        offsets = np.concatenate([[0], np.cumsum(is_ranked.to_numpy(zero_copy_only=False))])
        return [as_lists(offsets.astype(np.int64), column.filter(is_ranked)) for column in (values, times, ranks)]

    merge = RowMerge(partial(merge_top, int(aggregation.parameter)))
    first, rank = value
    return (_ITEMS(first.type), _ITEMS(pa.int64()), _ITEMS(rank.type)), lift, merge, partial(_listed, result)


def _sketched(sketch: Sketch, aggregation: Aggregation, value: pa.DataType, result: pa.DataType) -> _Parts:
    sketch.check()
    return (
        (_ITEMS(sketch.item), pa.large_binary()),
        lambda values, _: [list_items(sketch.items(normal(values))), pa.nulls(len(values), pa.large_binary())],
        RowMerge(sketch.merge),
        partial(sketch.results, aggregation.parameter),
    )


_PARTS: dict[str, Callable[[Aggregation, pa.DataType, pa.DataType], _Parts]] = {
    "count": _count,
    "sum": _sum,
    "min": _extreme,
    "max": _extreme,
    "avg": _avg,
    "first": _at_end,
    "last": _at_end,
    "count_distinct": _count_distinct,
    "approx_distinct": partial(_sketched, HYPERLOGLOG),
    "quantile": partial(_sketched, DIGEST),
    "variance": _variance,
    "list": _list,
    "top": _top,
}

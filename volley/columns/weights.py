"""Aggregates of rows of which some are not valid any more: a row has the weight 1, and −1 where it is deleted.

Counts and exact sums add up weights. What can't be subtracted keeps each value with the sum of its weights, and is
computed of the values that are left: extremes, distinct counts, variances, and sums of doubles, whose subtraction would
leave a rest. The algebra is that of Z-sets (Budiu et al., DBSP, VLDB 2023).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.accumulators import Accumulator, accumulator
from volley.columns.aggregates import aggregate_type, value_of
from volley.columns.compiled import CompiledExpression, whole
from volley.columns.exact import restored, storage_of, stored
from volley.columns.groups import (
    ArrowMerge,
    GroupBounds,
    RowMerge,
    StateColumns,
    as_lists,
    combine,
    items_of,
    list_items,
    sum_type,
)
from volley.columns.keys.normal import normal
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column
from volley.plan.keyed_nodes import CHANGE

__all__ = ["weighted_accumulator", "weights_of"]

_GROUP, _VALUE, _WEIGHT = "group", "value", "weight"


def weights_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the weight of each row of changes."""
    is_deleted = pc.equal(batch.column(CHANGE), "delete")
    return pc.if_else(is_deleted, pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))


def weighted_accumulator(aggregation: Aggregation, schema: pa.Schema) -> Accumulator:
    """Compile an aggregate that can take rows back, for rows of changes: its states are of values and weights.

    Raises:
        ExpressionError: If its expression does not fit the schema.
    """
    value, result = value_of(aggregation, schema), aggregate_type(aggregation, schema)
    if aggregation.function == "count":
        return Accumulator(value, result, (pa.int64(),), _counted, ArrowMerge(("sum",)), lambda state: state[0])
    if aggregation.function in ("sum", "avg") and not pa.types.is_floating(value.type):
        return _summed(aggregation, value, result)
    return _of_values(aggregation, value, result)


def _counted(values: pa.Array, weights: pa.Array) -> StateColumns:
    return [pc.if_else(pc.is_valid(values), weights, pa.scalar(0, pa.int64()))]


def _summed(aggregation: Aggregation, value: CompiledExpression, result: pa.DataType) -> Accumulator:
    total = sum_type(value.type)

    def lift(values: pa.Array, weights: pa.Array) -> StateColumns:
        known = pc.fill_null(values.cast(total), pa.scalar(0).cast(total))
        return [pc.if_else(pc.less(weights, 0), pc.negate(known), known), *_counted(values, weights)]

    def finish(state: StateColumns) -> pa.Array:
        totals, counts = state
        known = pc.if_else(pc.not_equal(counts, 0), totals, pa.scalar(None, total))
        if aggregation.function == "sum":
            return known.cast(result)
        return pc.divide(known.cast(pa.float64()), counts.cast(pa.float64()))

    return Accumulator(value, result, (total, pa.int64()), lift, ArrowMerge(("sum", "sum")), finish)


def _of_values(aggregation: Aggregation, value: CompiledExpression, result: pa.DataType) -> Accumulator:
    """Keep the values of a group, each with the sum of its weights."""
    kept = normal(pa.nulls(0, stored(value.type))).type

    def lift(values: pa.Array, weights: pa.Array) -> StateColumns:
        valid = pc.if_else(pc.is_valid(values), weights, pa.scalar(None, pa.int64()))
        return [list_items(normal(storage_of(values))), list_items(valid)]

    types = (pa.large_list(kept), pa.large_list(pa.int64()))
    return Accumulator(value, result, types, lift, RowMerge(_merged), _computed(aggregation, value.type, kept, result))


def _merged(state: StateColumns, offsets: GroupBounds) -> StateColumns:
    """Return the values of each group whose weights don't add up to 0."""
    (values, ends), (weights, _) = (items_of(column, offsets) for column in state)
    groups = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    items = pa.table({_GROUP: groups, _VALUE: values, _WEIGHT: weights})
    left = items.group_by([_GROUP, _VALUE], use_threads=False).aggregate([(_WEIGHT, "sum")])
    left = left.filter(pc.not_equal(left[f"{_WEIGHT}_sum"], 0))
    # Arrow returns the groups in any order.
    order = pa.array(np.argsort(left[_GROUP].to_numpy(), kind="stable"))
    sizes = np.bincount(left[_GROUP].to_numpy(), minlength=len(ends) - 1)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return [as_lists(bounds, whole(left[name].take(order))) for name in (_VALUE, f"{_WEIGHT}_sum")]


def _computed(
    aggregation: Aggregation, value: pa.DataType, kept: pa.DataType, result: pa.DataType
) -> Callable[[StateColumns], pa.Array]:
    """Return what computes the results of values and their weights, as the aggregate of rows does."""
    rows = pa.schema([(_VALUE, stored(value))])
    of_rows = accumulator(Aggregation(aggregation.function, Column(_VALUE), aggregation.parameter), rows)
    names = [f"state_{number}" for number in range(len(of_rows.types))]

    def finish(state: StateColumns) -> pa.Array:
        groups = len(state[0])
        (values, ends), (weights, _) = (items_of(column, np.arange(groups + 1)) for column in state)
        times = np.maximum(weights.to_numpy(), 0)
        repeated = values.take(pa.array(np.repeat(np.arange(len(values)), times))).cast(stored(value))
        numbers = np.repeat(np.repeat(np.arange(groups), np.diff(ends)), times)
        batch = pa.RecordBatch.from_arrays([repeated], schema=rows)
        states = of_rows.states(batch, pa.array(np.zeros(len(repeated), np.int64)))
        table = pa.table([pa.array(numbers), *states], [_GROUP, *names])
        merged = combine(table, [_GROUP], [(of_rows.merge, names)])
        found = of_rows.finish([whole(merged[name]) for name in names])
        places = np.full(groups, -1)
        places[merged[_GROUP].to_numpy()] = np.arange(len(merged))
        results = restored(found, result).take(pa.array(places, mask=places < 0))
        return pc.fill_null(results, 0) if aggregation.is_count else results

    return finish

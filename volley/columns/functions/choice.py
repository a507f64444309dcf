"""Choices between values: coalesce, when, null_if, greatest, least; fields of structs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.columns.compiled import CompiledExpression, Lowering, all_null, computed, operand_type, to_type, wrong_types
from volley.errors import ExpressionError, near
from volley.plan.expression_nodes import Call, Literal, parameter
from volley.types.arrow import Datum

__all__ = ["LOWERED"]


def _coalesce(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    out = operand_type(node, [arg.type for arg in args])
    first, *others = (to_type(arg, out) for arg in args)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = first.column(batch)
        for other in others:
            if not values.null_count:
                break
            missing = pc.is_null(values)
            values = _chosen(missing, _where(missing, other, batch), values)
        return values

    return CompiledExpression(out, evaluate, any(arg.can_fail for arg in args))


def _when(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    *branches, last = args
    conditions, values = branches[::2], [*branches[1::2], last]
    if any(not (pa.types.is_boolean(condition.type) or all_null(condition)) for condition in conditions):
        raise wrong_types(node, [condition.type for condition in conditions], "conditions")
    out = operand_type(node, [value.type for value in values])
    tests = [to_type(condition, pa.bool_()) for condition in conditions]
    *results, otherwise = (to_type(value, out) for value in values)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        chosen = pa.nulls(batch.num_rows, out)
        open_rows = pa.repeat(True, batch.num_rows)
        for test, value in zip(tests, results, strict=True):
            matches = pc.and_(open_rows, pc.fill_null(_where(open_rows, test, batch), False))
            chosen = _chosen(matches, _where(matches, value, batch), chosen)
            open_rows = pc.and_not(open_rows, matches)
        return _chosen(open_rows, _where(open_rows, otherwise, batch), chosen)

    return CompiledExpression(out, evaluate, any(arg.can_fail for arg in args))


def _where(mask: pa.Array, value: CompiledExpression, batch: pa.RecordBatch) -> Datum:
    """Return the values of a batch's rows; if computing them may raise, only of the rows of the mask, else null."""
    if not value.can_fail or pc.all(mask, min_count=0).as_py():
        return value.column(batch)
    values = value.column(batch.filter(mask))
    # The place of each row among those of the mask.
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, places, pa.scalar(None, pa.int64())))


def _chosen(mask: pa.Array, values: pa.Array, others: pa.Array) -> pa.Array:
    if values.type == pa.uuid():
        return pa.ExtensionArray.from_storage(pa.uuid(), pc.if_else(mask, values.storage, others.storage))
    if not pa.types.is_nested(values.type):
        return pc.if_else(mask, values, others)
    # `if_else` copies lists value by value; taking from both keeps them as they are.
    count = len(mask)
    places = np.where(mask.to_numpy(zero_copy_only=False), np.arange(count), np.arange(count, 2 * count))
    return pa.concat_arrays([values, others]).take(places)


def _null_if(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    common = operand_type(node, [arg.type for arg in args])
    if pa.types.is_nested(common) or common == pa.uuid():
        raise wrong_types(node, [arg.type for arg in args], "plain values")
    # A column keeps its type; a constant has that of what it is compared with.
    out = common if isinstance(node.args[0], Literal) else args[0].type

    def compute(values: Datum, others: Datum) -> Datum:
        compared = values if out == common else cast(values, common)
        same = pc.equal(compared, others)
        if pa.types.is_floating(common):
            same = pc.or_(same, pc.and_(pc.is_nan(compared), pc.is_nan(others)))
        return pc.if_else(pc.fill_null(same, False), pa.scalar(None, out), values)

    return computed(out, compute, to_type(args[0], out), to_type(args[1], common))


def _extreme(compute: Callable[..., Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        out = operand_type(node, [arg.type for arg in args])
        if pa.types.is_nested(out) or pa.types.is_null(out) or out == pa.uuid() or pa.types.is_boolean(out):
            raise wrong_types(node, [arg.type for arg in args], "numbers, strings or times")
        return computed(out, lambda *values: _compared(out, compute, values), *(to_type(arg, out) for arg in args))

    return lower


def _compared(out: pa.DataType, compute: Callable[..., Datum], values: Sequence[Datum]) -> Datum:
    """Return the greatest or least of values of a type; of instants by their wall-clock times, which Arrow compares."""
    if not pa.types.is_timestamp(out) or out.tz is None:
        return compute(*values)
    wall = pa.timestamp(out.unit)
    return pc.cast(compute(*(pc.cast(value, wall) for value in values)), out)


def _greatest(*values: Datum) -> Datum:
    greatest = pc.max_element_wise(*values)
    if not pa.types.is_floating(greatest.type):
        return greatest
    # Arrow passes over NaN, which is the largest number here.
    has_nan = reduce(pc.or_, (pc.fill_null(pc.is_nan(value), False) for value in values))
    return pc.if_else(has_nan, pa.scalar(math.nan, greatest.type), greatest)


def _is_nan(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (arg,) = args
    if not (pa.types.is_floating(arg.type) or all_null(arg)):
        raise wrong_types(node, [arg.type], "a float or double")
    return computed(pa.bool_(), pc.is_nan, to_type(arg, pa.float64()) if all_null(arg) else arg)


def _field(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, name = args[0], parameter(node)
    if not pa.types.is_struct(value.type):
        raise wrong_types(node, [value.type], "a struct")
    names = [field.name for field in value.type]
    if name not in names:
        raise ExpressionError(f"{node!r}: the struct has no field {name!r}", hint=near(name, names))
    index = names.index(name)
    return computed(value.type.field(index).type, lambda structs: pc.struct_field(structs, index), value)


LOWERED: dict[str, Any] = {
    "coalesce": _coalesce,
    "when": _when,
    "null_if": _null_if,
    "greatest": _extreme(_greatest),
    "least": _extreme(pc.min_element_wise),
    "is_nan": _is_nan,
    "field": _field,
}
"""The lowering of each function."""

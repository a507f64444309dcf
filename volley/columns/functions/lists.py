"""Functions of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import CompiledExpression, Datum, Lowering, as_array, misfit, parameter
from volley.columns.functions.constants import constant_of, equal_to
from volley.plan.expression_nodes import Call

__all__ = ["LOWERED"]


def _length(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _list(node, args)
    return CompiledExpression(pa.int32(), lambda batch: pc.list_value_length(value.evaluate(batch)), value.can_fail)


def _list(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    if not pa.types.is_list(args[0].type):
        raise misfit(node, [args[0].type], "a list")
    return args[0]


def _items(lists: pa.ListArray) -> tuple[pa.Array, Any]:
    """Return the items of lists, and the position of each one's list; a null list has none, also if it spans values."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def _get(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, position = _list(node, args), parameter(node)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        lists = as_array(value.evaluate(batch), batch.num_rows)
        starts, ends = lists.offsets.to_numpy()[:-1], lists.offsets.to_numpy()[1:]
        at = (starts if position >= 0 else ends) + position
        is_there = (at >= starts) & (at < ends) & lists.is_valid().to_numpy(zero_copy_only=False)
        return lists.values.take(pa.array(np.where(is_there, at, 0), mask=~is_there))

    return CompiledExpression(value.type.value_type, evaluate, value.can_fail)


def _contains(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _list(node, args)
    constant = constant_of(node, value.type.value_type, value.type, "a list of plain values")

    def evaluate(batch: pa.RecordBatch) -> Datum:
        lists = as_array(value.evaluate(batch), batch.num_rows)
        items, lists_of = _items(lists)
        matches = pc.fill_null(equal_to(items, constant), False)
        has_match = _any(lists, lists_of, matches)
        # A null may be equal to the constant.
        is_known = pc.or_(has_match, pc.invert(_any(lists, lists_of, items.is_null())))
        return pc.if_else(pc.and_(lists.is_valid(), is_known), has_match, pa.scalar(None, pa.bool_()))

    return CompiledExpression(pa.bool_(), evaluate, value.can_fail)


def _any(lists: pa.ListArray, lists_of: Any, items: pa.Array) -> pa.Array:
    """Return which lists have an item that is true."""
    found = np.zeros(len(lists), np.bool_)
    found[lists_of[items.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)


def _join(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, separator = _list(node, args), parameter(node)
    if not pa.types.is_string(value.type.value_type):
        raise misfit(node, [value.type], "a list of strings")

    def evaluate(batch: pa.RecordBatch) -> Datum:
        lists = as_array(value.evaluate(batch), batch.num_rows)
        items, lists_of = _items(lists)
        # `binary_join` is null for a list with a null in it.
        present = items.is_valid()
        counts = np.bincount(lists_of[present.to_numpy(zero_copy_only=False)], minlength=len(lists))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items.filter(present)), separator)
        return pc.if_else(lists.is_valid(), joined, pa.scalar(None, pa.string()))

    return CompiledExpression(pa.string(), evaluate, value.can_fail)


LOWERED: dict[str, Lowering] = {
    "list_length": _length,
    "list_get": _get,
    "list_contains": _contains,
    "list_join": _join,
}
"""The lowering of each function."""

"""Functions that make structs and lists, and functions of lists and maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.columns.compiled import (
    CompiledExpression,
    Lowering,
    computed,
    literal_type,
    operand_type,
    to_type,
    wrong_types,
)
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal, parameter
from volley.types.arrow import Datum

__all__ = ["LOWERED"]


def _struct_of(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    names = [name.value for name in node.args[::2] if isinstance(name, Literal)]
    values = args[1::2]
    out = pa.struct([pa.field(name, value.type) for name, value in zip(names, values, strict=True)])

    def evaluate(batch: pa.RecordBatch) -> Datum:
        return pa.StructArray.from_arrays([value.column(batch) for value in values], fields=[*out])

    return CompiledExpression(out, evaluate, any(value.can_fail for value in values))


def _list_of(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    items = operand_type(node, [arg.type for arg in args])
    values = [to_type(arg, items) for arg in args]

    def evaluate(batch: pa.RecordBatch) -> Datum:
        count, rows = len(values), batch.num_rows
        columns = pa.concat_arrays([value.column(batch) for value in values])
        offsets = pa.array(np.arange(rows + 1) * count, pa.int32())
        return pa.ListArray.from_arrays(offsets, columns.take(np.arange(rows * count).reshape(count, rows).T.ravel()))

    return CompiledExpression(pa.list_(items), evaluate, any(value.can_fail for value in values))


def _list_length(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    return computed(pa.int32(), pc.list_value_length, _list(node, args))


def _list(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    if not pa.types.is_list(args[0].type):
        raise wrong_types(node, [args[0].type], "a list")
    return args[0]


def _items(lists: pa.ListArray) -> tuple[pa.Array, Any]:
    """Return the items of lists, and the position of each one's list; a null list has none, also if it spans values."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def _list_get(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, position = _list(node, args), parameter(node)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        lists = value.column(batch)
        starts, ends = lists.offsets.to_numpy()[:-1], lists.offsets.to_numpy()[1:]
        at = (starts if position >= 0 else ends) + position
        is_there = (at >= starts) & (at < ends) & lists.is_valid().to_numpy(zero_copy_only=False)
        return lists.values.take(pa.array(np.where(is_there, at, 0), mask=~is_there))

    return CompiledExpression(value.type.value_type, evaluate, value.can_fail)


def _list_contains(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _list(node, args)
    constant = _constant_of(node, value.type.value_type, value.type, "a list of plain values")

    def evaluate(batch: pa.RecordBatch) -> Datum:
        lists = value.column(batch)
        items, lists_of = _items(lists)
        matches = pc.fill_null(_equal_to(items, constant), False)
        has_match = _any(lists, lists_of, matches)
        # A null may be equal to the constant.
        is_known = pc.or_(has_match, pc.invert(_any(lists, lists_of, items.is_null())))
        return pc.if_else(pc.and_(lists.is_valid(), is_known), has_match, pa.scalar(None, pa.bool_()))

    return CompiledExpression(pa.bool_(), evaluate, value.can_fail)


def _any(lists: pa.ListArray, lists_of: Any, items: pa.Array) -> pa.Array:
    """Return which lists have an item that is true."""
    are_true = np.zeros(len(lists), np.bool_)
    are_true[lists_of[items.to_numpy(zero_copy_only=False)]] = True
    return pa.array(are_true)


def _list_join(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, separator = _list(node, args), parameter(node)
    if not pa.types.is_string(value.type.value_type):
        raise wrong_types(node, [value.type], "a list of strings")

    def evaluate(batch: pa.RecordBatch) -> Datum:
        lists = value.column(batch)
        items, lists_of = _items(lists)
        # `binary_join` is null for a list with a null in it.
        present = items.is_valid()
        counts = np.bincount(lists_of[present.to_numpy(zero_copy_only=False)], minlength=len(lists))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items.filter(present)), separator)
        return pc.if_else(lists.is_valid(), joined, pa.scalar(None, pa.string()))

    return CompiledExpression(pa.string(), evaluate, value.can_fail)


def _map(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    if not pa.types.is_map(args[0].type):
        raise wrong_types(node, [args[0].type], "a map")
    return args[0]


def _map_length(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    def compute(maps: pa.MapArray) -> pa.Array:
        return _where_valid(maps, pa.array(np.diff(maps.offsets.to_numpy()), pa.int32()))

    return computed(pa.int32(), compute, _map(node, args))


def _map_keys(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    return computed(pa.list_(value.type.key_type), lambda maps: _as_lists(maps, maps.keys), value)


def _map_values(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    return computed(pa.list_(value.type.item_type), lambda maps: _as_lists(maps, maps.items), value)


def _map_get(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    places = _places(node, value)
    return computed(value.type.item_type, lambda maps: maps.items.take(places(maps)), value)


def _map_contains(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    places = _places(node, value)
    return computed(pa.bool_(), lambda maps: _where_valid(maps, places(maps).is_valid()), value)


def _places(node: Call, value: CompiledExpression) -> Callable[[pa.MapArray], pa.Array]:
    """Return the function that finds where the values of the constant key stand; null without it."""
    key = _constant_of(node, value.type.key_type, value.type, "a map with plain keys")

    def places(maps: pa.MapArray) -> pa.Array:
        matches = np.flatnonzero(_equal_to(maps.keys, key).to_numpy(zero_copy_only=False))
        starts, ends = maps.offsets.to_numpy()[:-1], maps.offsets.to_numpy()[1:]
        # The last match before each map's end.
        at = np.append(matches, -1)[np.searchsorted(matches, ends) - 1] if len(matches) else np.full(len(maps), -1)
        missing = (at < starts) | (at >= ends) | ~maps.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(np.where(missing, 0, at), pa.int64(), mask=missing)

    return places


def _as_lists(maps: pa.MapArray, values: pa.Array) -> pa.Array:
    """Return the keys or the values of maps as lists."""
    offsets = maps.offsets.to_numpy()
    mask = None if not maps.null_count else maps.is_null()
    inside = values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), inside, mask=mask)


def _where_valid(maps: pa.MapArray, values: pa.Array) -> pa.Array:
    return pc.if_else(maps.is_valid(), values, pa.scalar(None, values.type))


def _constant_of(node: Call, among: pa.DataType, container: pa.DataType, expected: str) -> pa.Scalar:
    """Return a call's constant, in the type in which it is compared.

    Raises:
        ExpressionError: If the argument is a column or null, or the values can't be compared with it.
    """
    constant = node.args[1]
    if not isinstance(constant, Literal) or constant.value is None:
        raise ExpressionError(f"{node!r} takes a constant that is not null", hint="compare with columns by map_batches")
    if pa.types.is_nested(among) or among == pa.uuid():
        raise wrong_types(node, [container], expected)
    common = operand_type(node, [among, literal_type(constant)])
    return cast(pa.scalar(constant.value, literal_type(constant)), common)


def _equal_to(values: pa.Array, constant: pa.Scalar) -> pa.Array:
    """Return true for each value that is equal to a constant; NaN equals NaN, as for ``==``."""
    operands = cast(values, constant.type)
    if pa.types.is_floating(constant.type) and math.isnan(constant.as_py()):
        return pc.is_nan(operands)
    return pc.equal(operands, constant)


LOWERED: dict[str, Lowering] = {
    "struct": _struct_of,
    "array": _list_of,
    "list_length": _list_length,
    "list_get": _list_get,
    "list_contains": _list_contains,
    "list_join": _list_join,
    "map_length": _map_length,
    "map_keys": _map_keys,
    "map_values": _map_values,
    "map_get": _map_get,
    "map_contains": _map_contains,
}
"""The lowering of each function."""

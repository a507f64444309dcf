"""Functions of maps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import CompiledExpression, Datum, Lowering, misfit
from volley.columns.functions.constants import constant_of, equal_to
from volley.plan.expression_nodes import Call

__all__ = ["LOWERED"]


def _map(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    if not pa.types.is_map(args[0].type):
        raise misfit(node, [args[0].type], "a map")
    return args[0]


def _length(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        maps = value.evaluate(batch)
        return _where_valid(maps, pa.array(np.diff(maps.offsets.to_numpy()), pa.int32()))

    return CompiledExpression(pa.int32(), evaluate, value.can_fail)


def _keys(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    return CompiledExpression(
        pa.list_(value.type.key_type), lambda batch: _lists(maps := value.evaluate(batch), maps.keys), value.can_fail
    )


def _values(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    return CompiledExpression(
        pa.list_(value.type.item_type), lambda batch: _lists(maps := value.evaluate(batch), maps.items), value.can_fail
    )


def _get(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    found = _places(node, value)
    return CompiledExpression(
        value.type.item_type, lambda batch: (maps := value.evaluate(batch)).items.take(found(maps)), value.can_fail
    )


def _contains(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = _map(node, args)
    found = _places(node, value)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        maps = value.evaluate(batch)
        return _where_valid(maps, found(maps).is_valid())

    return CompiledExpression(pa.bool_(), evaluate, value.can_fail)


def _places(node: Call, value: CompiledExpression) -> Callable[[pa.MapArray], pa.Array]:
    """Return the function that finds where the values of the constant key stand; null without it."""
    key = constant_of(node, value.type.key_type, value.type, "a map with plain keys")

    def places(maps: pa.MapArray) -> pa.Array:
        matches = np.flatnonzero(equal_to(maps.keys, key).to_numpy(zero_copy_only=False))
        starts, ends = maps.offsets.to_numpy()[:-1], maps.offsets.to_numpy()[1:]
        # The last match before each map's end.
        at = np.append(matches, -1)[np.searchsorted(matches, ends) - 1] if len(matches) else np.full(len(maps), -1)
        missing = (at < starts) | (at >= ends) | ~maps.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(np.where(missing, 0, at), pa.int64(), mask=missing)

    return places


def _lists(maps: pa.MapArray, values: pa.Array) -> pa.Array:
    """Return the keys or the values of maps as lists."""
    offsets = maps.offsets.to_numpy()
    mask = None if not maps.null_count else maps.is_null()
    inside = values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), inside, mask=mask)


def _where_valid(maps: pa.MapArray, values: pa.Array) -> pa.Array:
    return pc.if_else(maps.is_valid(), values, pa.scalar(None, values.type))


LOWERED: dict[str, Lowering] = {
    "map_length": _length,
    "map_keys": _keys,
    "map_values": _values,
    "map_get": _get,
    "map_contains": _contains,
}

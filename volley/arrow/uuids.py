"""UUIDs, which are an extension type in Arrow: most of its functions and Spark know their sixteen bytes only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa

from volley.arrow.exact import exact_cast

__all__ = ["array_of", "comparable", "has_uuids", "recast", "stored", "texts"]


def has_uuids(kind: pa.DataType) -> bool:
    """Whether values of a type are UUIDs or have some in them."""
    return kind == pa.uuid() or any(has_uuids(kind.field(index).type) for index in range(kind.num_fields))


def stored(kind: pa.DataType) -> pa.DataType:
    """The type with sixteen bytes in the place of each UUID."""
    if not has_uuids(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(stored(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(stored(kind.key_type)), kind.item_field.with_type(stored(kind.item_type))
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(stored(kind.value_type)))
    return pa.binary(16)


def recast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as another type, as `exact_cast` has it; Arrow's casts know no UUIDs inside of other values."""
    return _relabeled(exact_cast(_relabeled(column, stored(column.type)), stored(kind)), kind)


def comparable(table: pa.Table) -> pa.Table:
    """The table with the bytes of UUIDs, which Arrow can compare, sort and join by."""
    return table.cast(pa.schema([field.with_type(stored(field.type)) for field in table.schema]))


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Python values as an array; Arrow takes no UUIDs inside of lists, maps and structs."""
    if not has_uuids(kind):
        return pa.array(values, kind)
    return _relabeled(pa.array([_bytes(value) for value in values], stored(kind)), kind)


def texts(column: pa.Array) -> pa.Array:
    """UUIDs as their usual texts."""
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


def _bytes(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Mapping):
        return {_bytes(key): _bytes(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_bytes(each) for each in value)
    return value


class _Relabeled:
    """An array under another type that lays out its values in the same way; none is copied."""

    def __init__(self, array: pa.Array, kind: pa.DataType) -> None:
        self._array = array
        self._kind = kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _relabeled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else pa.array(_Relabeled(array, kind))

"""UUIDs, an extension type in Arrow: most of its functions, and Spark, support only their 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.decimals import in_scale
from volley.columns.exact import exact_cast
from volley.columns.text_forms import of_array

__all__ = ["array_of", "has_uuids", "recast", "restored", "storage_of", "stored", "texts"]


def has_uuids(data_type: pa.DataType) -> bool:
    """Return True if the type is UUID or contains it."""
    return data_type == pa.uuid() or any(
        has_uuids(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def stored(data_type: pa.DataType) -> pa.DataType:
    """Return the type with each UUID replaced by 16 bytes of binary."""
    if not has_uuids(data_type):
        return data_type
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(stored(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(
            data_type.key_field.with_type(stored(data_type.key_type)),
            data_type.item_field.with_type(stored(data_type.item_type)),
        )
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(stored(data_type.value_type)))
    return pa.binary(16)


def recast(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast a column as `exact_cast` does, but also UUIDs in nested values, which Arrow's casts don't support."""
    return _relabeled(exact_cast(_relabeled(column, stored(column.type)), stored(data_type)), data_type)


def storage_of(column: pa.Array) -> pa.Array:
    """Return the column with each UUID as its bytes; copies nothing."""
    return _relabeled(column, stored(column.type)) if has_uuids(column.type) else column


def restored(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return a column of `storage_of` under its own type again; copies nothing."""
    return _relabeled(column, data_type) if has_uuids(data_type) else column


def array_of(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return an array of Python values, also with UUIDs in lists, maps and structs, which `pa.array` rejects."""
    values = in_scale(values, data_type)
    if not has_uuids(data_type):
        return pa.array(values, data_type)
    return _relabeled(pa.array([_bytes(value) for value in values], stored(data_type)), data_type)


@of_array
def texts(column: pa.Array) -> pa.Array:
    """Return UUIDs in their usual text form."""
    stored, count = column.storage, len(column)
    data = stored.buffers()[1]
    digits = b"" if data is None else data.slice(stored.offset * 16, count * 16).to_pybytes().hex().encode()
    places = np.arange(count + 1, dtype=np.int32) * 32
    text = pa.StringArray.from_buffers(count, pa.py_buffer(places), pa.py_buffer(digits))
    dashed = pc.replace_substring_regex(text, pattern="^(.{8})(.{4})(.{4})(.{4})", replacement=r"\1-\2-\3-\4-")
    return pc.if_else(stored.is_valid(), dashed, pa.scalar(None, pa.string()))


def _bytes(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Mapping):
        return {_bytes(key): _bytes(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_bytes(item) for item in value)
    return value


class _Relabeled:
    """An array under another type with the same memory layout; copies nothing."""

    def __init__(self, array: pa.Array, data_type: pa.DataType) -> None:
        self._array = array
        self._data_type = data_type

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._data_type.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _relabeled(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    return array if array.type == data_type else pa.array(_Relabeled(array, data_type))

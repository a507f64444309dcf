"""Writes values of JSON as Arrow's reader takes them: objects as maps have them, other values as texts for strings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from volley.columns.casts import cast
from volley.errors import ExpressionError, SourceError
from volley.formats.epochs import epoch_text
from volley.formats.json_objects import Number, encoded, values_of

__all__ = ["has_maps", "listed", "listed_type", "repeated_key", "reshaped", "restored"]

_KEY, _VALUE = "key", "value"
_LONGEST = 80


def has_maps(data_types: Sequence[pa.DataType]) -> bool:
    """Return True if a type is a map, or has one within."""
    return any(pa.types.is_map(data_type) or has_maps(_children(data_type)) for data_type in data_types)


def _children(data_type: pa.DataType) -> list[pa.DataType]:
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def listed(schema: pa.Schema) -> pa.Schema:
    """Return a schema with what is asked of Arrow for maps and uuids: lists of keys and values, and strings."""
    if not any(map(_is_listed, schema.types)):
        return schema
    return pa.schema([field.with_type(listed_type(field.type)) for field in schema])


def listed_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that is asked of Arrow for a type with maps or uuids."""
    t = pa.types
    if t.is_map(data_type):
        return pa.list_(pa.struct({_KEY: pa.string(), _VALUE: listed_type(data_type.item_type)}))
    if t.is_list(data_type):
        return pa.list_(listed_type(data_type.value_type))
    if t.is_struct(data_type):
        return pa.struct([field.with_type(listed_type(field.type)) for field in data_type])
    return pa.string() if data_type == pa.uuid() else data_type


def reshaped(text: bytes, schema: pa.Schema, epoch: str | None = None) -> bytes:
    """Return objects with each map as a list of its keys and values, and a text for each other value of a string.

    Args:
        text: The objects, in UTF-8, separated by white space.
        epoch: The unit of numbers that are timestamps: they become texts, and maps stay as they are; None = there are
            none.

    Raises:
        SourceError: If it is not JSON, a map has a key twice, or a number is no time.
    """
    row, reshape = pa.struct(schema), _reshaped if epoch is None else partial(_with_times, epoch)
    try:
        return "\n".join(encoded(reshape(value, row)) for value in values_of(text)).encode()
    except RecursionError as error:
        raise SourceError("nested too deep") from error
    except ValueError as error:
        raise SourceError(f"not JSON ({error})") from error


def _reshaped(value: Any, data_type: pa.DataType) -> Any:
    t = pa.types
    if t.is_string(data_type):
        return value if value is None or type(value) is str else encoded(value)
    if isinstance(value, list) and t.is_list(data_type):
        return [_reshaped(item, data_type.value_type) for item in value]
    if isinstance(value, tuple) and t.is_struct(data_type):
        types = {field.name: field.type for field in data_type}
        return tuple((name, _reshaped(item, types[name]) if name in types else item) for name, item in value)
    if isinstance(value, tuple) and t.is_map(data_type):
        if (key := repeated_key(value)) is not None:
            raise SourceError(f"the key {key[:_LONGEST]!r} is in a map twice")
        return [((_KEY, key), (_VALUE, _reshaped(item, data_type.item_type))) for key, item in value]
    if isinstance(value, list) and t.is_map(data_type):
        # Arrow would read a list of keys and values as a map.
        raise SourceError("an array is no map")
    return value


def _with_times(epoch: str, value: Any, data_type: pa.DataType) -> Any:
    t = pa.types
    if isinstance(value, Number) and t.is_timestamp(data_type):
        if (text := epoch_text(value, epoch, data_type.unit == "ns")) is None:
            raise SourceError(f"{value[:_LONGEST]} is no time in {epoch} since 1970")
        return text
    if isinstance(value, list) and t.is_list(data_type):
        return [_with_times(epoch, item, data_type.value_type) for item in value]
    if isinstance(value, tuple) and t.is_struct(data_type):
        types = {field.name: field.type for field in data_type}
        return tuple((name, _with_times(epoch, item, types.get(name, pa.null()))) for name, item in value)
    if isinstance(value, tuple) and t.is_map(data_type):
        return tuple((key, _with_times(epoch, item, data_type.item_type)) for key, item in value)
    return value


def repeated_key(fields: Sequence[tuple[str, Any]]) -> str | None:
    """Return the first name that an object has twice; None without one."""
    names = [name for name, _ in fields]
    return (
        next((name for number, name in enumerate(names) if name in names[:number]), None)
        if (len({*names}) < len(names))
        else None
    )


def restored(array: pa.Array, data_type: pa.DataType, column: str) -> pa.Array:
    """Return an array of `listed_type` in the type with maps and uuids.

    Raises:
        SourceError: If a text is no uuid; names the column.
    """
    if array.type == data_type or not _is_listed(data_type):
        return array
    t = pa.types
    if data_type == pa.uuid():
        try:
            return cast(array, data_type)
        except ExpressionError as error:
            raise SourceError(f"column {column!r}: {error.message}") from error
    if t.is_struct(data_type):
        fields = [restored(array.field(number), field.type, column) for number, field in enumerate(data_type)]
        types = [field.with_type(part.type) for field, part in zip(data_type, fields, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=types, mask=array.is_null())
    if t.is_list(data_type):
        values = restored(array.values, data_type.value_type, column)
        return _with_items(array, pa.list_(values.type), values)
    keys, items = array.values.field(0), restored(array.values.field(1), data_type.item_type, column)
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[data_type.key_field, data_type.item_field.with_type(items.type)]
    )
    return _with_items(array, pa.map_(data_type.key_field, data_type.item_field.with_type(items.type)), entries)


def _is_listed(data_type: pa.DataType) -> bool:
    if data_type.num_fields:
        return pa.types.is_map(data_type) or any(map(_is_listed, _children(data_type)))
    return isinstance(data_type, pa.UuidType)


def _with_items(array: pa.Array, data_type: pa.DataType, items: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(data_type, len(array), array.buffers()[:2], offset=array.offset, children=[items])

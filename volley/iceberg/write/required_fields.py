"""Gives required fields of null structs a value, such as those of variants: pyarrow writes no null of such a field."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.types.arrow import is_any_list

__all__ = ["with_required_fields"]


def with_required_fields(rows: pa.Table) -> pa.Table:
    """Return the same rows, with empty values in the required fields of structs that are null, at every level."""
    for number, field in enumerate(rows.schema):
        if _has_required(field.type):
            chunks = [_filled(chunk) for chunk in rows.column(number).chunks]
            rows = rows.set_column(number, field, pa.chunked_array(chunks, field.type))
    return rows


def _has_required(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return any(not field.nullable or _has_required(field.type) for field in data_type)
    if pa.types.is_map(data_type):
        return _has_required(data_type.item_type)
    return is_any_list(data_type) and _has_required(data_type.value_type)


def _filled(array: pa.Array) -> pa.Array:
    if not _has_required(array.type):
        return array
    if pa.types.is_struct(array.type):
        none = array.is_null()
        # Values under a null struct are undefined: flatten makes them null.
        children = [
            _filled(child if field.nullable else _with_empty(child, none))
            for field, child in zip(array.type, array.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=none)
    if pa.types.is_map(array.type):
        entries = array.values
        values = [entries.field(0), _filled(entries.field(1))]
        inner = pa.Array.from_buffers(entries.type, len(entries), [None], children=values)
    else:
        inner = _filled(array.values)
    return pa.Array.from_buffers(array.type, len(array), array.buffers()[:2], offset=array.offset, children=[inner])


def _with_empty(values: pa.Array, none: pa.BooleanArray) -> pa.Array:
    """Return values with an empty one where the struct is null."""
    if none.true_count == 0:
        return values
    if isinstance(values, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(values.type, _with_empty(values.storage, none))
    places = pc.if_else(none, len(values), pa.array(np.arange(len(values))))
    return pa.concat_arrays([values, _empty(values.type)]).take(places)


def _empty(data_type: pa.DataType) -> pa.Array:
    """Return an array with one empty value."""
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, _empty(data_type.storage_type))
    if pa.types.is_struct(data_type):
        parts = [pa.nulls(1, field.type) if field.nullable else _empty(field.type) for field in data_type]
        return pa.StructArray.from_arrays(parts, fields=list(data_type))
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        is_map = pa.types.is_map(data_type)
        item = pa.struct([data_type.key_field, data_type.item_field]) if is_map else data_type.value_type
        offsets = pa.array([0, 0], pa.int32()).buffers()[1]
        return pa.Array.from_buffers(data_type, 1, [None, offsets], children=[pa.nulls(0, item)])
    # Arrow gives a required field of a struct that is null an empty value.
    return pa.array([None], pa.struct([pa.field("", data_type, False)])).field(0)

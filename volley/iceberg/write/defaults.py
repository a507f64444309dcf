"""Fills columns and fields that rows lack with the defaults of a table of format version 3."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.conversions import from_json
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from volley.columns.exact import array_of
from volley.iceberg.schema.types import arrow_type_of, fields_in, per_schema

__all__ = ["defaults_of", "with_defaults"]


def with_defaults(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return rows with the default of each column that they lack, also of fields of structs within lists and maps.

    A null stays null; a column without a default is not added. Rows without such columns are returned as they are.

    Args:
        schema: The table's schema.
    """
    if not _has_defaults(schema):
        return batch
    names, columns = list(batch.schema.names), list(batch.columns)
    for field in schema.fields:
        if field.name in names:
            number = names.index(field.name)
            columns[number] = _filled(columns[number], field.field_type)
        elif field.write_default is not None:
            names.append(field.name)
            columns.append(_default(field, batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, names=names)


def defaults_of(schema: Schema) -> pa.RecordBatch:
    """Return one row with the columns of a table that have a default."""
    fields = [field for field in schema.fields if field.write_default is not None]
    return pa.RecordBatch.from_arrays([_default(field, 1) for field in fields], names=[field.name for field in fields])


@per_schema
def _has_defaults(schema: Schema) -> bool:
    return any(field.write_default is not None for _, field in fields_in(schema.as_struct()))


def _default(field: NestedField, rows: int) -> pa.Array:
    assert isinstance(field.field_type, PrimitiveType)
    value = from_json(field.field_type, field.write_default)
    return array_of([value], arrow_type_of(field.field_type)).take(pa.repeat(pa.scalar(0), rows))


def _filled(array: pa.Array, data_type: IcebergType) -> pa.Array:
    """Return values with the defaults of fields that their structs lack."""
    if not any(field.write_default is not None for _, field in fields_in(data_type)):
        return array
    if isinstance(data_type, StructType) and pa.types.is_struct(array.type):
        return _struct(array, data_type)
    if isinstance(data_type, ListType) and pa.types.is_list(array.type):
        values = _filled(array.values, data_type.element_type)
        return _with_values(pa.list_(values.type), array, values)
    if isinstance(data_type, MapType) and pa.types.is_map(array.type):
        keys, items = array.values.field(0), _filled(array.values.field(1), data_type.value_type)
        of_map = pa.map_(keys.type, items.type)
        entry = pa.struct([of_map.key_field, of_map.item_field])
        entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, items])
        return _with_values(of_map, array, entries)
    return array


def _struct(array: pa.StructArray, data_type: StructType) -> pa.StructArray:
    names = [field.name for field in array.type]
    # Values under a null struct are undefined: flatten makes them null.
    columns = array.flatten()
    for field in data_type.fields:
        if field.name in names:
            number = names.index(field.name)
            columns[number] = _filled(columns[number], field.field_type)
        elif field.write_default is not None:
            names.append(field.name)
            columns.append(_default(field, len(array)))
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())


def _with_values(data_type: pa.DataType, array: pa.Array, values: pa.Array) -> pa.Array:
    """Return lists or maps with new values and the same offsets and nulls."""
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(data_type, len(array), buffers, offset=array.offset, children=[values])

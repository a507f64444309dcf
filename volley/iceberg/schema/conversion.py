"""Converts types between Arrow and Iceberg with all they have: ids, docs, what may be null, nanoseconds."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
from pyiceberg.io.pyarrow import PYARROW_FIELD_DOC_KEY, PYARROW_PARQUET_FIELD_ID_KEY
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from volley.checks import of_type
from volley.errors import SourceError
from volley.iceberg.schema.types import arrow_schema, arrow_type_of, fields_in, iceberg_type
from volley.types.arrow import canonical_type, is_any_list
from volley.types.names import check_names

__all__ = ["arrow_of", "arrow_schema_of", "iceberg_of", "iceberg_schema_of"]

_NO_ID = -1
_WITHOUT_ARROW = (GeometryType, GeographyType)


def iceberg_schema_of(schema: pa.Schema, format_version: int) -> Schema:
    """Return the Iceberg schema of an Arrow schema. See `TypeConverter`."""
    of_type(pa.Schema, "pa.schema({…})")("schema", schema)
    check_names(schema.names, "the schema")
    fields = [_nested_field(field, field.name, format_version) for field in schema]
    return Schema(*fields) if _has_ids(StructType(*fields)) else assign_fresh_schema_ids(Schema(*fields))


def iceberg_of(data_type: pa.DataType, format_version: int) -> IcebergType:
    """Return the Iceberg type of an Arrow type. See `TypeConverter`."""
    of_type(pa.DataType, "an Arrow type such as pa.int64()")("arrow_type", data_type)
    converted = _iceberg(data_type, "", format_version)
    return converted if _has_ids(converted) else cast(IcebergType, assign_fresh_schema_ids(converted))


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of an Iceberg schema. See `TypeConverter`."""
    of_type(Schema, "pyiceberg's Schema")("schema", schema)
    _check_for_arrow(schema.as_struct())
    return arrow_schema(schema)


def arrow_of(data_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of an Iceberg type. See `TypeConverter`."""
    of_type(IcebergType, "an Iceberg type such as LongType()")("iceberg_type", data_type)
    _check_for_arrow(data_type)
    return arrow_type_of(data_type)


def _iceberg(data_type: pa.DataType, path: str, version: int) -> IcebergType:
    t = pa.types
    if t.is_dictionary(data_type):
        return _iceberg(data_type.value_type, path, version)
    if t.is_struct(data_type) and data_type.num_fields:
        check_names([field.name for field in data_type], path or str(data_type))
        return StructType(*(_nested_field(field, _inner(path, field.name), version) for field in data_type))
    if t.is_map(data_type):
        key = _nested_field(data_type.key_field, _inner(path, "key"), version)
        value = _nested_field(data_type.item_field, _inner(path, "value"), version)
        return MapType(key.field_id, key.field_type, value.field_id, value.field_type, value.required)
    if is_any_list(data_type):
        element = _nested_field(data_type.value_field, _inner(path, "element"), version)
        return ListType(element.field_id, element.field_type, element.required)
    if version >= 3 and t.is_null(data_type):
        return UnknownType()
    if version < 3 and t.is_timestamp(data_type):
        data_type = pa.timestamp("us", data_type.tz)
    try:
        return iceberg_type(canonical_type(data_type))
    except SourceError as error:
        raise (error.within(f"column {path!r}") if path else error) from error


def _nested_field(field: pa.Field, path: str, version: int) -> NestedField:
    metadata = field.metadata or {}
    doc = metadata.get(PYARROW_FIELD_DOC_KEY)
    return NestedField(
        field_id=int(metadata.get(PYARROW_PARQUET_FIELD_ID_KEY, _NO_ID)),
        name=field.name,
        field_type=_iceberg(field.type, path, version),
        required=not field.nullable,
        doc=doc.decode() if doc else None,
    )


def _has_ids(data_type: IcebergType) -> bool:
    """Return True if every field in a type has an id of its own."""
    ids = [field.field_id for _, field in fields_in(data_type)]
    return _NO_ID not in ids and len(set(ids)) == len(ids)


def _inner(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_for_arrow(data_type: IcebergType) -> None:
    if isinstance(data_type, _WITHOUT_ARROW):
        raise SourceError(f"type {data_type} has no counterpart in Arrow", hint="leave the column out")
    for parts, field in fields_in(data_type):
        is_impossible = isinstance(field.field_type, UnknownType) and field.required
        if is_impossible or isinstance(field.field_type, _WITHOUT_ARROW):
            kind = f"{'required ' if is_impossible else ''}type {field.field_type}"
            raise SourceError(
                f"column {'.'.join(parts)!r}: {kind} has no counterpart in Arrow", hint="leave the column out"
            )

"""Converts schemas between Arrow and Iceberg, and compares their types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TypeVar

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids, sanitize_column_names
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from volley.errors import ConfigError, SchemaMismatchError
from volley.formats.variant_columns import STORED, is_writable
from volley.iceberg.pyiceberg_private.access import to_arrow
from volley.iceberg.schema.foreign_types import ShreddedType, UnreadableType, VariantText, VariantType
from volley.types.arrow import canonical_schema, type_name

__all__ = [
    "CHANGED_AT",
    "CHANGED_AT_ID",
    "NEWER_VERSION",
    "PATH_ID",
    "POSITION_ID",
    "ROW_COLUMNS",
    "ROW_ID",
    "ROW_ID_ID",
    "ROW_TYPES",
    "arrow_schema",
    "arrow_type_of",
    "check_readable",
    "check_row_ids",
    "check_version",
    "fields_in",
    "file_schema",
    "fingerprint",
    "fits",
    "iceberg_type",
    "is_widened",
    "needed_version",
    "per_schema",
    "plain",
    "readable",
    "rows_schema",
    "schema_of_files",
    "table_type_name",
    "to_iceberg_schema",
    "with_included",
    "with_row_ids",
    "with_shredding",
]

T = TypeVar("T")

_MOST_SCHEMAS = 64

PATH_ID = 2147483546
"""The field id of ``file_path``, the data file's location."""

POSITION_ID = 2147483545
"""The field id of ``pos``, the row's number in it."""

ROW_COLUMNS = ROW_ID, CHANGED_AT = "_row_id", "_last_updated_sequence_number"
"""The columns that rows have besides those of the table from format version 3 on: their ids, and when they changed."""

ROW_ID_ID = 2147483540
"""The field id of ``_row_id``, which a row of format version 3 keeps for ever."""

CHANGED_AT_ID = 2147483539
"""The field id of ``_last_updated_sequence_number``: that of the snapshot that added a row or last changed it."""

_ROW_IDS = (
    NestedField(ROW_ID_ID, ROW_ID, LongType(), required=False),
    NestedField(CHANGED_AT_ID, CHANGED_AT, LongType(), required=False),
)

_PRIMITIVES: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time64("us"): TimeType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("ns", "UTC"): TimestamptzNanoType(),
    pa.timestamp("ns"): TimestampNanoType(),
    pa.uuid(): UUIDType(),
}
ROW_TYPES: dict[IcebergType, IcebergType] = {UnknownType(): StringType(), VariantType(): VariantText()}
"""The types of rows, where they are not those of the table."""
_ARROW_TYPES: dict[type[IcebergType], pa.DataType] = {
    VariantType: STORED,
    GeometryType: pa.binary(),
    GeographyType: pa.binary(),
}
_WIDENED = ((IntegerType(), LongType()), (FloatType(), DoubleType()))
_FOREIGN = VariantType | UnreadableType | GeometryType | GeographyType
_FINER = ((TimestampType(), TimestampNanoType()), (TimestamptzType(), TimestamptzNanoType()))


def to_iceberg_schema(schema: pa.Schema) -> Schema:
    """Return the Iceberg schema of a new table for rows of an Arrow schema; every column is optional."""
    fields = [
        NestedField(number, field.name, iceberg_type(field.type), required=False)
        for number, field in enumerate(canonical_schema(schema), 1)
    ]
    return assign_fresh_schema_ids(Schema(*fields))


def iceberg_type(data_type: pa.DataType) -> IcebergType:
    """Return the Iceberg type of a canonical Arrow type; ids inside nested types are placeholders."""
    if data_type in _PRIMITIVES:
        return _PRIMITIVES[data_type]
    if pa.types.is_decimal(data_type):
        return DecimalType(data_type.precision, data_type.scale)
    if pa.types.is_fixed_size_binary(data_type):
        return FixedType(data_type.byte_width)
    if pa.types.is_list(data_type):
        return ListType(-1, iceberg_type(data_type.value_type), element_required=False)
    if pa.types.is_map(data_type):
        return MapType(
            -1, iceberg_type(data_type.key_type), -1, iceberg_type(data_type.item_type), value_required=False
        )
    assert pa.types.is_struct(data_type), data_type
    return StructType(*(NestedField(-1, field.name, iceberg_type(field.type), required=False) for field in data_type))


def per_schema(work_out: Callable[[Schema], T]) -> Callable[[Schema], T]:
    """Keep what a function returns for a schema: the commits and files of a table have the same one for long.

    By the object, since to compare two schemas takes as long.
    """
    kept: dict[int, tuple[Schema, T]] = {}

    @wraps(work_out)
    def remembered(schema: Schema) -> T:
        known = kept.get(id(schema))
        if known is None:
            if len(kept) >= _MOST_SCHEMAS:
                kept.clear()
            # With the schema, so that no other one gets its id.
            known = kept[id(schema)] = schema, work_out(schema)
        return known[1]

    return remembered


def _own_arrow_type(data_type: IcebergType) -> pa.DataType | None:
    """Return the Arrow type of a type that pyiceberg lacks, or converts in another way; None for others."""
    return data_type.stored if isinstance(data_type, ShreddedType) else _ARROW_TYPES.get(type(data_type))


@per_schema
def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's rows: field ids at every level, plain (not large) strings and lists."""
    try:
        converted = to_arrow(schema, _own_arrow_type)
    except ValueError:
        check_readable(schema.fields, "the table")
        raise
    return pa.schema([_plain_field(field) for field in converted])


def check_readable(fields: Iterable[NestedField], table: str) -> None:
    """Raise ConfigError if one of some columns has a type that can't be read; name it, and the table."""
    for field in fields:
        if (name := _unreadable_type_in(field.field_type)) is not None:
            raise ConfigError(
                f"column {field.name!r} of {table} has the type {name}, which can't be read",
                hint="name the other columns, with select(…) or with_columns([…]), which are read as ever",
            )


def readable(schema: Schema) -> Schema:
    """Return the schema without the columns that can't be read."""
    fields = [field for field in schema.fields if _unreadable_type_in(field.field_type) is None]
    return schema if len(fields) == len(schema.fields) else Schema(*fields, schema_id=schema.schema_id)


def _unreadable_type_in(data_type: IcebergType) -> str | None:
    """Return the name of the first type in a type, at any level, that can't be read; None if all can."""
    types = [data_type, *(field.field_type for _, field in fields_in(data_type))]
    return next((str(inner) for inner in types if isinstance(inner, UnreadableType)), None)


def arrow_type_of(data_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of a table's type: field ids in nested types, plain (not large) strings and lists."""
    return plain(to_arrow(data_type, _own_arrow_type))


@per_schema
def schema_of_files(schema: Schema) -> Schema:
    """Return the schema of a table's data files, whose names are valid in Avro."""
    return sanitize_column_names(schema)


@per_schema
def file_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's data files: that of its rows, with names that are valid in Avro."""
    return arrow_schema(schema_of_files(schema))


def check_row_ids(schema: Schema) -> None:
    """Check that no column of a table has the name of one that rows have from format version 3 on.

    Raises:
        ConfigError: If one has.
    """
    if taken := {field.name for field in schema.fields} & {field.name for field in _ROW_IDS}:
        raise ConfigError(
            f"column {' and '.join(sorted(taken))} has a name that format version 3 has for itself",
            hint="rename the column, or stay with format version 2",
        )


@per_schema
def with_row_ids(schema: Schema) -> Schema:
    """Return the schema with the columns that tell rows of format version 3 apart."""
    known = {field.field_id for field in schema.fields}
    added = (field for field in _ROW_IDS if field.field_id not in known)
    return Schema(*schema.fields, *added, schema_id=schema.schema_id)


def with_included(schema: Schema, include: Sequence[str]) -> Schema:
    """Return the schema with some of these columns, by their names without the first letter."""
    added = (field for field in _ROW_IDS if field.name.removeprefix("_") in include)
    return Schema(*schema.fields, *added, schema_id=schema.schema_id) if include else schema


def rows_schema(schema: Schema, variants_as_stored: bool = False) -> Schema:
    """Return the schema of rows as they are read: rows of every origin have one type.

    Columns, and fields at every level, may be null. A column of the type unknown, which has no values, is a text.
    Variants are JSON texts.

    Args:
        variants_as_stored: True: variants are the bytes that files have, for rows that are written to others.
    """
    types = {kind: row for kind, row in ROW_TYPES.items() if not variants_as_stored or row != VariantText()}
    return Schema(*(_row_field(field, types) for field in schema.fields), schema_id=schema.schema_id)


_Types = Mapping[IcebergType, IcebergType]


def _row_field(field: NestedField, types: _Types) -> NestedField:
    return field.model_copy(update={"required": False, "field_type": _row_type(field.field_type, types)})


def _row_type(data_type: IcebergType, types: _Types) -> IcebergType:
    if isinstance(data_type, StructType):
        return StructType(*(_row_field(field, types) for field in data_type.fields))
    if isinstance(data_type, ListType):
        element = _row_type(data_type.element_type, types)
        return ListType(data_type.element_id, element, element_required=False)
    if isinstance(data_type, MapType):
        key, value = _row_type(data_type.key_type, types), _row_type(data_type.value_type, types)
        return MapType(data_type.key_id, key, data_type.value_id, value, value_required=False)
    return types.get(data_type, data_type)


def with_shredding(schema: Schema, shredding: Mapping[int, pa.DataType]) -> Schema:
    """Return the schema of files that have some variants, by field id, shredded as these types."""
    shredded = {field_id: ShreddedType(data_type) for field_id, data_type in shredding.items()}
    if not shredded:
        return schema
    return Schema(*(_shredded_field(field, shredded) for field in schema.fields), schema_id=schema.schema_id)


def _shredded_field(field: NestedField, shredded: Mapping[int, IcebergType]) -> NestedField:
    data_type = shredded.get(field.field_id) or _shredded_type(field.field_type, shredded)
    return field.model_copy(update={"field_type": data_type})


def _shredded_type(data_type: IcebergType, shredded: Mapping[int, IcebergType]) -> IcebergType:
    if isinstance(data_type, StructType):
        return StructType(*(_shredded_field(field, shredded) for field in data_type.fields))
    if isinstance(data_type, ListType):
        element = _shredded_field(data_type.element_field, shredded)
        return ListType(data_type.element_id, element.field_type, data_type.element_required)
    if isinstance(data_type, MapType):
        value = _shredded_field(data_type.value_field, shredded)
        return MapType(
            data_type.key_id, data_type.key_type, data_type.value_id, value.field_type, data_type.value_required
        )
    return data_type


def check_version(schema: Schema, format_version: int, table: str) -> None:
    """Check that a table of a format version can have the columns of a schema.

    Raises:
        SchemaMismatchError: If it can't; names the first such column, its type, and the way.
    """
    for path, field in fields_in(schema.as_struct()):
        if problem := needed_version(field.field_type, format_version):
            raise SchemaMismatchError(f"column {'.'.join(path)!r} of {table}: {problem}", hint=NEWER_VERSION)


NEWER_VERSION = (
    'IcebergTable(…).upgrade(3), or for a new table the table property "format-version": "3"; or cast the column: '
    'a "timestamp" has microseconds'
)
"""The way out where a table's format version is too old for a type."""


def needed_version(data_type: IcebergType, format_version: int) -> str | None:
    """Return why a table of a format version can't have a type; None if it can."""
    types = [data_type, *(field.field_type for _, field in fields_in(data_type))]
    newer = (each for each in types if each.minimum_format_version() > format_version)
    return next(
        (
            f"{each} needs format version {each.minimum_format_version()}, the table has {format_version}"
            for each in newer
        ),
        None,
    )


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type))


def plain(data_type: pa.DataType) -> pa.DataType:
    """Return a type with plain (not large) texts, bytes and lists at every level."""
    if pa.types.is_large_string(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type):
        return pa.binary()
    if pa.types.is_large_list(data_type) or pa.types.is_list(data_type):
        return pa.list_(_plain_field(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_plain_field(data_type.key_field), _plain_field(data_type.item_field))
    if pa.types.is_struct(data_type):
        return pa.struct([_plain_field(field) for field in data_type])
    return data_type


def fields_in(data_type: IcebergType, parts: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    """Yield the fields in a type at every level, with the names that lead to them; lists and maps have named parts."""
    fields: Sequence[NestedField] = ()
    if isinstance(data_type, StructType):
        fields = data_type.fields
    elif isinstance(data_type, ListType):
        fields = [data_type.element_field]
    elif isinstance(data_type, MapType):
        fields = [data_type.key_field, data_type.value_field]
    for field in fields:
        yield (*parts, field.name), field
        yield from fields_in(field.field_type, (*parts, field.name))


def fits(stream: pa.DataType, table: IcebergType) -> bool:
    """Return True if values of a canonical Arrow type can be written to a column of this type."""
    if isinstance(table, VariantType):
        return is_writable(stream)
    if pa.types.is_nested(stream):
        return False
    own = iceberg_type(stream)
    if isinstance(own, FixedType) and isinstance(table, UUIDType):
        return own == FixedType(16)
    if isinstance(table, GeometryType | GeographyType):
        return isinstance(own, BinaryType)
    return own == table or is_widened(own, table) or (own, table) in _FINER


def is_widened(narrow: IcebergType, wide: IcebergType) -> bool:
    """Return True if Iceberg allows a column of the first type to be widened to the second."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    if isinstance(narrow, UnknownType):
        return isinstance(wide, PrimitiveType) and narrow != wide and not isinstance(wide, _FOREIGN)
    return (narrow, wide) in _WIDENED


def table_type_name(kind: IcebergType) -> str:
    """Return the type's name in streams: Iceberg's timestamp is timestamp_ntz there."""
    is_foreign = isinstance(kind, UUIDType | VariantType | GeometryType | GeographyType)
    return str(kind) if is_foreign else type_name(arrow_type_of(kind))


def fingerprint(schema: Schema) -> str:
    """Return a hash that is equal only if files written under one schema are valid under the other."""
    return hashlib.sha256(schema.model_dump_json().encode()).hexdigest()[:16]

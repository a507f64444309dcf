"""Arrow types and schemas of what users write, and of what a job's state has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from volley.errors import SourceError
from volley.types.names import (
    DIGITS,
    NANOSECONDS,
    SIMPLE,
    ParsedType,
    Parser,
    TypeLike,
    check_names,
    check_type,
    decimal_fits,
)

if TYPE_CHECKING:
    from volley.types.names import CheckedSchema

__all__ = [
    *(
        "ROLE",
        "Datum",
        "arrow_of",
        "arrow_schema",
        "arrow_type",
        "canonical_schema",
        "canonical_type",
        "inferred_schema",
    ),
    *("is_any_list", "is_number", "read_schema", "type_name"),
]

Datum = Any
"""An Arrow array or scalar: pyarrow has no common type for them."""

ROLE = b"volley.role"
"""The key of a field's metadata that says what the column tells an upsert; see `ChangeColumns`."""
# What each message of Arrow begins with.
_MARK = b"\xff\xff\xff\xff"
_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view),
    pa.types.is_large_list_view,
)


_NANOSECONDS = {pa.timestamp("ns", "UTC"): "timestamp", pa.timestamp("ns"): "timestamp_ntz"}


def arrow_type(data_type: TypeLike) -> pa.DataType:
    """Return the Arrow type of a name such as ``long``, ``decimal(10,2)`` or ``array<string>``, or of a Python type."""
    return arrow_of(Parser(check_type(data_type)).only_type())


def arrow_schema(schema: CheckedSchema) -> pa.Schema:
    """Return the Arrow schema of a text, of a dict of names and types, or of what `check_schema` returned."""
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return pa.schema([pa.field(name, arrow_of(parsed)) for name, parsed in Parser(schema).columns()])
    pairs = schema.items() if isinstance(schema, Mapping) else schema
    return pa.schema([pa.field(name, arrow_type(text)) for name, text in pairs])


def arrow_of(parsed: ParsedType) -> pa.DataType:
    """Return the Arrow type of a parsed type."""
    fields = [(name, arrow_of(inner)) for name, inner in parsed.fields]
    match parsed.name:
        case "decimal":
            return pa.decimal128(*parsed.numbers)
        case "array":
            return pa.list_(fields[0][1])
        case "map":
            return pa.map_(fields[0][1], fields[1][1])
        case "struct":
            return pa.struct([pa.field(name, inner) for name, inner in fields])
        case "time":
            return pa.time64("us")
        case "timestamp":
            return pa.timestamp("ns" if parsed.numbers else "us", "UTC")
        case "timestamp_ntz":
            return pa.timestamp("ns" if parsed.numbers else "us")
    data_type: pa.DataType = getattr(pa, SIMPLE[parsed.name])()
    return data_type


def type_name(data_type: pa.DataType) -> str:
    """Return the name of an Arrow type that `arrow_type` accepts; for types without one, Arrow's own name."""
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_struct(data_type):
        return "struct<" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in data_type) + ">"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)}, {type_name(data_type.item_type)}>"
    if pa.types.is_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    if data_type in _NANOSECONDS:
        return f"{_NANOSECONDS[data_type]}({NANOSECONDS})"
    return next((name for name in SIMPLE if arrow_of(ParsedType(name)) == data_type), str(data_type))


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in the types that Arrow, Spark and Iceberg share, without metadata but roles of columns.

    Widens narrow integers, decodes dictionaries and views; time zones become UTC, times of day microseconds. Timestamps
    keep nanoseconds, and have microseconds else.

    Raises:
        SourceError: If a column's type has no counterpart; names the column.
        ConfigError: If the name of a column, or of a struct's field, is empty, not unique or has a NUL character.
    """
    check_names(schema.names, "the schema")
    return pa.schema([pa.field(field.name, _canonical_field(field), metadata=_role(field)) for field in schema])


def inferred_schema(schema: pa.Schema) -> pa.Schema:
    """Return the canonical schema of rows whose types nobody has declared: their timestamps have microseconds.

    Spark and tables of format version 2 have no nanoseconds; who wants them declares ``timestamp(9)``.
    """
    columns = canonical_schema(schema)
    return pa.schema([field.with_type(_in_microseconds(field.type)) for field in columns])


def _in_microseconds(data_type: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz)
    if t.is_list(data_type):
        return pa.list_(_in_microseconds(data_type.value_type))
    if t.is_map(data_type):
        return pa.map_(_in_microseconds(data_type.key_type), _in_microseconds(data_type.item_type))
    if t.is_struct(data_type):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in data_type])
    return data_type


def _role(field: pa.Field) -> dict[bytes, bytes]:
    return {key: value for key, value in (field.metadata or {}).items() if key == ROLE}


def _canonical_field(field: pa.Field) -> pa.DataType:
    try:
        return canonical_type(field.type)
    except SourceError as error:
        raise error.within(f"column {field.name!r}") from error


def _check_fields(struct: pa.StructType) -> None:
    if not struct.num_fields:
        raise SourceError(
            "a struct without fields can't be kept: Parquet and Iceberg have none",
            hint="declare a schema that leaves the column out or names its fields",
        )
    check_names([field.name for field in struct], str(struct))


def is_any_list(data_type: pa.DataType) -> bool:
    """Return True for each of Arrow's types of lists; a map is none."""
    return any(is_list(data_type) for is_list in _LISTS)


def is_number(data_type: pa.DataType) -> bool:
    """Return True for whole numbers, floats and decimals."""
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def canonical_type(data_type: pa.DataType) -> pa.DataType:
    """Return the counterpart of a type that Arrow, Spark and Iceberg share. See `canonical_schema`."""
    t = pa.types
    if (simple := _canonical_simple(data_type)) is not None:
        return simple
    if t.is_dictionary(data_type):
        return canonical_type(data_type.value_type)
    if t.is_map(data_type):
        return pa.map_(canonical_type(data_type.key_type), canonical_type(data_type.item_type))
    if t.is_struct(data_type):
        _check_fields(data_type)
        return pa.struct([pa.field(field.name, canonical_type(field.type)) for field in data_type])
    if t.is_decimal(data_type) and decimal_fits(data_type.precision, data_type.scale):
        return pa.decimal128(data_type.precision, data_type.scale)
    if t.is_decimal(data_type):
        raise SourceError(f"{type_name(data_type)} is out of range", hint=DIGITS)
    if is_any_list(data_type):
        return pa.list_(canonical_type(data_type.value_type))
    raise SourceError(
        f"type {data_type} has no counterpart in Spark and Iceberg",
        hint="declare another schema for the source, or convert the column before",
    )


def _canonical_simple(data_type: pa.DataType) -> pa.DataType | None:
    """Return the canonical form of a type without fields; None for nested and unsupported types."""
    t = pa.types
    if t.is_timestamp(data_type):
        return pa.timestamp("ns" if data_type.unit == "ns" else "us", "UTC" if data_type.tz else None)
    for matches, canonical in (
        (t.is_int64, pa.int64()),
        (t.is_uint32, pa.int64()),
        (t.is_uint64, pa.decimal128(20, 0)),
        (t.is_integer, pa.int32()),
        (t.is_float16, pa.float32()),
        (t.is_time, pa.time64("us")),
        (t.is_date, pa.date32()),
        (t.is_string, pa.string()),
        (t.is_large_string, pa.string()),
        (t.is_string_view, pa.string()),
        (t.is_null, pa.string()),
        (t.is_binary, pa.binary()),
        (t.is_large_binary, pa.binary()),
        (t.is_binary_view, pa.binary()),
    ):
        if matches(data_type):
            return canonical
    is_canonical = (
        t.is_boolean(data_type)
        or t.is_floating(data_type)
        or t.is_fixed_size_binary(data_type)
        or data_type == pa.uuid()
    )
    return data_type if is_canonical else None


def read_schema(data: bytes) -> pa.Schema:
    """Return the schema that `pyarrow.Schema.serialize` wrote.

    Raises:
        ValueError: If they are damaged.
    """
    if not data.startswith(_MARK):
        raise ValueError("it is not a schema of Arrow")
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise ValueError(f"it is not a schema of Arrow: {error}") from error

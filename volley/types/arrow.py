"""Arrow types by name, and the types that Arrow, Spark and Iceberg share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from volley.errors import SourceError
from volley.types.names import DIGITS, SIMPLE, ParsedType, Parser, TypeLike, check_names, check_type, decimal_fits

if TYPE_CHECKING:
    from volley.types.names import CheckedSchema

__all__ = ["arrow_schema", "arrow_type", "canonical_schema", "canonical_type", "type_name"]


def arrow_type(kind: TypeLike) -> pa.DataType:
    """The Arrow type of a name such as ``long``, ``decimal(10,2)`` or ``array<string>``, or of a Python type."""
    return _arrow(Parser(check_type(kind)).only_type())


def arrow_schema(schema: CheckedSchema) -> pa.Schema:
    """The Arrow schema of a text, a dict of names and types, or of what `check_schema` made of it."""
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return pa.schema([pa.field(name, _arrow(parsed)) for name, parsed in Parser(schema).columns()])
    pairs = schema.items() if isinstance(schema, Mapping) else schema
    return pa.schema([pa.field(name, arrow_type(text)) for name, text in pairs])


def _arrow(parsed: ParsedType) -> pa.DataType:
    fields = [(name, _arrow(inner)) for name, inner in parsed.fields]
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
            return pa.timestamp("us", "UTC")
        case "timestamp_ntz":
            return pa.timestamp("us")
    made: pa.DataType = getattr(pa, SIMPLE[parsed.name])()
    return made


def type_name(kind: pa.DataType) -> str:
    """The name of an Arrow type, as `arrow_type` takes it; Arrow's own name for types that have none here."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + ">"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return next((name for name in SIMPLE if _arrow(ParsedType(name)) == kind), str(kind))


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in the types that Arrow, Spark and Iceberg share, without metadata.

    Narrow integers are widened, time zones become UTC, times microseconds, dictionaries and views plain.

    Raises:
        SourceError: If a column's type has no counterpart; names it.
        ConfigError: If the name of a column, or of a field in a struct, is there twice, is empty, or can't be passed
            on.
    """
    check_names(schema.names, "the schema")
    return pa.schema([pa.field(field.name, _canonical_field(field)) for field in schema])


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


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """One type in the form that Arrow, Spark and Iceberg share. See `canonical_schema`."""
    t = pa.types
    if (plain := _canonical_plain(kind)) is not None:
        return plain
    if t.is_dictionary(kind):
        return canonical_type(kind.value_type)
    if t.is_map(kind):
        return pa.map_(canonical_type(kind.key_type), canonical_type(kind.item_type))
    if t.is_struct(kind):
        _check_fields(kind)
        return pa.struct([pa.field(field.name, canonical_type(field.type)) for field in kind])
    if t.is_decimal(kind) and decimal_fits(kind.precision, kind.scale):
        return pa.decimal128(kind.precision, kind.scale)
    if t.is_decimal(kind):
        raise SourceError(f"{type_name(kind)} is out of range", hint=DIGITS)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind):
        return pa.list_(canonical_type(kind.value_type))
    raise SourceError(
        f"type {kind} has no counterpart in Spark and Iceberg",
        hint="declare another schema for the source, or convert the column before",
    )


def _canonical_plain(kind: pa.DataType) -> pa.DataType | None:
    """The canonical form of a type without fields; None for nested and impossible ones."""
    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    for matches, made in (
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
        if matches(kind):
            return made
    same = t.is_boolean(kind) or t.is_floating(kind) or t.is_fixed_size_binary(kind) or kind == pa.uuid()
    return kind if same else None

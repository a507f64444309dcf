"""Arrow ↔ Iceberg schemas: conversion both ways, and what differs between a stream and a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from volley._types import canonical_schema, canonical_type, type_name
from volley.errors import SchemaMismatchError, near

__all__ = [
    "Difference",
    "arrow_schema",
    "check_fits",
    "differences",
    "evolve",
    "file_schema",
    "iceberg_type",
    "to_iceberg_schema",
]

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
}

_WIDENED = ((IntegerType(), LongType()), (FloatType(), DoubleType()))


@dataclass(frozen=True)
class Difference:
    """One thing in which a stream does not fit a table.

    Args:
        column: The column's dotted name.
        problem: What is wrong with it.
    """

    column: str
    problem: str

    def __str__(self) -> str:
        return f"{self.column!r}: {self.problem}"


def to_iceberg_schema(schema: pa.Schema) -> Schema:
    """The Iceberg schema of a new table for rows of an Arrow schema; every column is optional.

    Raises:
        SourceError: If a column's type has no counterpart; names it.

    Example:
        >>> print(to_iceberg_schema(pa.schema({"id": pa.int64(), "tags": pa.list_(pa.string())})))
        table {
          1: id: optional long
          2: tags: optional list<string>
        }
    """
    fields = [
        NestedField(number, field.name, iceberg_type(field.type), required=False)
        for number, field in enumerate(canonical_schema(schema), 1)
    ]
    return assign_fresh_schema_ids(Schema(*fields))


def iceberg_type(kind: pa.DataType) -> IcebergType:
    """The Iceberg type of a canonical Arrow type; ids inside nested types are placeholders."""
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if pa.types.is_list(kind):
        return ListType(-1, iceberg_type(kind.value_type), element_required=False)
    if pa.types.is_map(kind):
        return MapType(-1, iceberg_type(kind.key_type), -1, iceberg_type(kind.item_type), value_required=False)
    assert pa.types.is_struct(kind), kind
    return StructType(*(NestedField(-1, field.name, iceberg_type(field.type), required=False) for field in kind))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's rows: field ids at every level, plain (not large) strings and lists."""
    return pa.schema([_plain_field(field) for field in schema_to_pyarrow(schema)])


def file_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's data files: that of its rows, under the names that Avro and Parquet take."""
    return arrow_schema(sanitize_column_names(schema))


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    return kind


def differences(stream: pa.Schema, table: Schema) -> list[Difference]:
    """Everything in which rows of the Arrow schema `stream` do not fit `table`; columns are matched by name.

    A column of the table that the stream lacks is written as null if it is optional. int fits long, float fits
    double, and a decimal fits one of more digits and the same scale.

    Example:
        >>> table = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
        >>> [str(difference) for difference in differences(pa.schema({"id": pa.string(), "NAME": pa.string()}), table)]
        ["'id': the stream has string, the table long", "'NAME': the table has 'name', names are case-sensitive"]
    """
    return list(_struct_differences(stream, table.as_struct(), ""))


def _struct_differences(stream: pa.Schema | pa.StructType, table: StructType, prefix: str) -> Iterator[Difference]:
    have = {field.name: field for field in stream}
    want = {field.name: field for field in table.fields}
    for name, field in have.items():
        if name not in want:
            yield Difference(prefix + name, _unknown(name, want))
        else:
            yield from _required(field.nullable, want[name].required, prefix + name)
            yield from _type_differences(field.type, want[name].field_type, prefix + name)
    for name, column in want.items():
        if column.required and name not in have:
            yield Difference(prefix + name, "the table requires it, the stream lacks it")


def _unknown(name: str, known: Iterable[str]) -> str:
    if same := _same_but_case(name, known):
        return f"the table has {same!r}, names are case-sensitive"
    return f"the table has no such column ({near(name, known)})"


def _same_but_case(name: str, known: Iterable[str]) -> str | None:
    return next((each for each in known if each != name and each.casefold() == name.casefold()), None)


def _required(nullable: bool, required: bool, name: str) -> Iterator[Difference]:
    if required and nullable:
        yield Difference(name, "the table requires a value, the stream may have nulls")


def _type_differences(stream: pa.DataType, table: IcebergType, name: str) -> Iterator[Difference]:
    if pa.types.is_struct(stream) and isinstance(table, StructType):
        yield from _struct_differences(stream, table, f"{name}.")
    elif pa.types.is_map(stream) and isinstance(table, MapType):
        yield from _type_differences(stream.key_type, table.key_type, f"{name}.key")
        yield from _required(stream.item_field.nullable, table.value_required, f"{name}.value")
        yield from _type_differences(stream.item_type, table.value_type, f"{name}.value")
    elif isinstance(table, ListType) and pa.types.is_list(canonical_type(stream)):
        yield from _required(stream.value_field.nullable, table.element_required, f"{name}.element")
        yield from _type_differences(stream.value_type, table.element_type, f"{name}.element")
    elif not _fits(canonical_type(stream), table):
        yield Difference(name, f"the stream has {type_name(stream)}, the table {_table_type_name(table)}")


def _table_type_name(table: IcebergType) -> str:
    """The name in the words of streams: Iceberg's timestamp is their timestamp_ntz."""
    return str(table) if isinstance(table, UUIDType) else type_name(_plain(schema_to_pyarrow(table)))


def _fits(stream: pa.DataType, table: IcebergType) -> bool:
    if pa.types.is_nested(stream):
        return False
    own = iceberg_type(stream)
    if isinstance(own, DecimalType) and isinstance(table, DecimalType):
        return own.scale == table.scale and own.precision <= table.precision
    if isinstance(own, FixedType) and isinstance(table, UUIDType):
        return bool(stream.byte_width == 16)
    return own == table or (own, table) in _WIDENED


def check_fits(stream: pa.Schema, table: Schema, name: str) -> None:
    """Raise SchemaMismatchError, with every difference, unless rows of `stream` fit the table."""
    if found := differences(stream, table):
        listed = "\n".join(f"  - {difference}" for difference in found)
        raise SchemaMismatchError(
            f"the stream does not fit table {name}:\n{listed}",
            hint="cast, rename or drop columns of the stream, or change the table's schema",
        )


def evolve(table: Table, stream: pa.Schema) -> Table:
    """The table with the stream's new top-level columns added, if there are any.

    A column whose name differs from an old one in case only is not new: `check_fits` will name it.
    """
    names = {field.name for field in table.schema().fields}
    new = [field for field in canonical_schema(stream) if field.name not in names]
    new = [field for field in new if not _same_but_case(field.name, names)]
    if new:
        with table.update_schema() as update:
            for field in new:
                update.add_column((field.name,), iceberg_type(field.type))
    return table

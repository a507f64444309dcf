"""Writes changes of a schema as SQL: for Spark with Iceberg's extensions or without, and for Trino."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
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

from volley.errors import SchemaMismatchError
from volley.iceberg.schema.changes import AddColumn, Change, DropColumn, RenameColumn, UpdateType
from volley.iceberg.schema.types import fields_in

__all__ = ["DIALECTS", "Dialect", "statement"]

_SAME: dict[IcebergType, str] = {
    BooleanType(): "boolean",
    LongType(): "bigint",
    DoubleType(): "double",
    DateType(): "date",
}


@dataclass(frozen=True)
class Dialect:
    """How an engine writes names, types and changes of tables.

    Args:
        name: The engine's name.
        quote: The character around names.
        types: Its names of types without parts.
        array: Its name of a list's type, with the element's.
        mapping: Its name of a map's type, with the key's and the value's.
        struct: Its name of a struct's type, with the list of fields.
        field: A struct's field, with its name and its type.
        update_type: What follows the column's name where its type is changed, with the new type.
    """

    name: str
    quote: str
    types: Mapping[IcebergType, str]
    array: str
    mapping: str
    struct: str
    field: str
    update_type: str

    def identifier(self, parts: Sequence[str]) -> str:
        """Return a quoted name of several parts."""
        return ".".join(self.quote + part.replace(self.quote, self.quote * 2) + self.quote for part in parts)

    def type_name(self, data_type: IcebergType, path: str) -> str:
        """Return the engine's name of a type.

        Args:
            data_type: The type.
            path: The column's dotted name, for messages.

        Raises:
            SchemaMismatchError: If the engine has no such type.
        """
        if isinstance(data_type, DecimalType):
            return f"decimal({data_type.precision},{data_type.scale})"
        if isinstance(data_type, ListType):
            return self.array.format(self._inner(data_type.element_field, path))
        if isinstance(data_type, MapType):
            return self.mapping.format(
                self.type_name(data_type.key_type, f"{path}.key"), self._inner(data_type.value_field, path)
            )
        if isinstance(data_type, StructType):
            fields = (
                self.field.format(self.identifier([field.name]), self._inner(field, path)) for field in data_type.fields
            )
            return self.struct.format(", ".join(fields))
        if data_type in self.types:
            return self.types[data_type]
        raise SchemaMismatchError(
            f"column {path!r}: {self.name} has no type for Iceberg's {data_type}",
            hint="apply this change with SchemaEvolution.apply(table)",
        )

    def _inner(self, field: NestedField, path: str) -> str:
        if field.required:
            raise SchemaMismatchError(
                f"column {path!r}: {self.name} can't say that {field.name!r} in it must have a value",
                hint="apply this change with SchemaEvolution.apply(table)",
            )
        return self.type_name(field.field_type, f"{path}.{field.name}")


def statement(dialect: Dialect, table: str, change: Change, schema: Schema) -> str:
    """Return the statement of a change.

    Args:
        dialect: The engine's dialect.
        table: The table's quoted name.
        change: The change.
        schema: The schema before the change.

    Raises:
        SchemaMismatchError: If the engine has no such type.
    """
    alter = f"ALTER TABLE {table}"
    if isinstance(change, AddColumn):
        data_type = dialect.type_name(change.data_type, ".".join(change.path))
        return f"{alter} ADD COLUMN {dialect.identifier(change.path)} {data_type}"
    column = dialect.identifier(_parts(schema, change.path))
    if isinstance(change, DropColumn):
        return f"{alter} DROP COLUMN {column}"
    if isinstance(change, RenameColumn):
        return f"{alter} RENAME COLUMN {column} TO {dialect.identifier([change.name])}"
    if isinstance(change, UpdateType):
        new = dialect.update_type.format(dialect.type_name(change.data_type, change.path))
        return f"{alter} ALTER COLUMN {column} {new}"
    return f"{alter} ALTER COLUMN {column} DROP NOT NULL"


def _parts(schema: Schema, path: str) -> tuple[str, ...]:
    """Return the names that lead to a column; a name may have dots itself."""
    field_id = schema.find_field(path).field_id
    return next(parts for parts, field in fields_in(schema.as_struct()) if field.field_id == field_id)


DIALECTS = {
    "spark": Dialect(
        name="Spark",
        quote="`",
        types=_SAME
        | {
            **{IntegerType(): "int", FloatType(): "float", StringType(): "string", BinaryType(): "binary"},
            **{TimestamptzType(): "timestamp", TimestampType(): "timestamp_ntz"},
        },
        array="array<{}>",
        mapping="map<{}, {}>",
        struct="struct<{}>",
        field="{}: {}",
        update_type="TYPE {}",
    ),
    "trino": Dialect(
        name="Trino",
        quote='"',
        types=_SAME
        | {
            **{IntegerType(): "integer", FloatType(): "real", StringType(): "varchar", BinaryType(): "varbinary"},
            **{TimestamptzType(): "timestamp(6) with time zone", TimestampType(): "timestamp(6)"},
            **{TimeType(): "time(6)", UUIDType(): "uuid"},
        },
        array="array({})",
        mapping="map({}, {})",
        struct="row({})",
        field="{} {}",
        update_type="SET DATA TYPE {}",
    ),
}

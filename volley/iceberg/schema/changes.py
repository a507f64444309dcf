"""Changes of a table's schema as plain values: applied to a transaction, and as SQL of Spark and of Trino."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.update import AssertLastAssignedFieldId
from pyiceberg.table.update.schema import UpdateSchema
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
from volley.iceberg.pyiceberg_private.access import require
from volley.iceberg.schema.foreign_types import VariantType
from volley.iceberg.schema.types import fields_in

__all__ = [
    "DIALECTS",
    "AddColumn",
    "Change",
    "DropColumn",
    "Evolution",
    "MakeOptional",
    "RenameColumn",
    "UpdateType",
    "find",
    "statement",
]

# Properties that end in a column's name: rename them with the column.
_NAMING = ("write.metadata.metrics.column.", f"{TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX}.")

_SAME: dict[IcebergType, str] = {
    BooleanType(): "boolean",
    LongType(): "bigint",
    DoubleType(): "double",
    DateType(): "date",
}


@dataclass(frozen=True)
class AddColumn:
    """Adds a column; it gets the next free field id, and the fields inside its type the following ones.

    Args:
        default: Its value in rows that are there, and in rows that lack it; None = it is null.
        required: True: it has no nulls; needs a default.
    """

    path: tuple[str, ...]
    data_type: IcebergType
    default: Any = None
    required: bool = False

    def apply(self, update: UpdateSchema) -> None:
        update.add_column(self.path, self.data_type, required=self.required, default_value=self.default)


@dataclass(frozen=True)
class DropColumn:
    """Drops a column; data files keep it, but readers ignore it."""

    path: str

    def apply(self, update: UpdateSchema) -> None:
        update.delete_column(self.path)


@dataclass(frozen=True)
class RenameColumn:
    """Renames a column; its field id stays."""

    path: str
    name: str

    def apply(self, update: UpdateSchema) -> None:
        update.rename_column(self.path, self.name)


@dataclass(frozen=True)
class UpdateType:
    """Widens a column's type to one as which Iceberg's readers can read old files."""

    path: str
    data_type: IcebergType

    def apply(self, update: UpdateSchema) -> None:
        update.update_column(self.path, self.data_type)


@dataclass(frozen=True)
class MakeOptional:
    """Makes a required column optional."""

    path: str

    def apply(self, update: UpdateSchema) -> None:
        update.make_column_optional(self.path)


Change = AddColumn | DropColumn | RenameColumn | UpdateType | MakeOptional


@dataclass(frozen=True)
class Evolution:
    """Changes of a table's schema that are committed together with the first rows that need them."""

    changes: tuple[Change, ...] = ()

    def of(self, table: Table) -> Table:
        """Return the table as it will be after the changes; data files are written for it."""
        if not self.changes:
            return table
        transaction = table.transaction()
        self.add_to(transaction)
        planned = copy(table)
        planned.metadata = transaction.table_metadata
        return planned

    def add_to(self, transaction: Transaction) -> None:
        """Add the changes to a transaction; its commit fails if the schema has changed meanwhile."""
        if not self.changes:
            return
        before = transaction.table_metadata
        # New field ids follow this one: columns that others added and dropped have used some.
        last = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": before.last_column_id})
        require(transaction, last)
        with transaction.update_schema() as update:
            for change in self.changes:
                change.apply(update)
        moved = _renamed_properties(before.properties, before.schema(), transaction.table_metadata.schema())
        if moved:
            transaction.remove_properties(*moved)
            transaction.set_properties({new: before.properties[old] for old, new in moved.items() if new})


def _renamed_properties(properties: Mapping[str, str], old: Schema, new: Schema) -> dict[str, str | None]:
    """Return the properties whose column was renamed, with their new names; None = the column was dropped."""
    moved: dict[str, str | None] = {}
    for name in properties:
        prefix = next(filter(name.startswith, _NAMING), None)
        field = find(old, name.removeprefix(prefix)) if prefix else None
        if prefix and field:
            column = new.find_column_name(field.field_id)
            if column != old.find_column_name(field.field_id):
                moved[name] = column and prefix + column
    return moved


def find(schema: Schema, path: str) -> NestedField | None:
    """Return the field of this dotted name; None if there is none."""
    try:
        return schema.find_field(path)
    except ValueError:
        return None


@dataclass(frozen=True)
class Dialect:
    """How an engine writes names, types and changes of tables.

    Args:
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
            path: The column's dotted name, for messages.
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
    """Return the statement of a change."""
    alter = f"ALTER TABLE {table}"
    if isinstance(change, AddColumn):
        if change.default is not None:
            raise SchemaMismatchError(
                f"column {'.'.join(change.path)!r}: {dialect.name} can't add a column with a default",
                hint="apply this change with SchemaEvolution.apply(table)",
            )
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
            **{TimestamptzType(): "timestamp", TimestampType(): "timestamp_ntz", VariantType(): "variant"},
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

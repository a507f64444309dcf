"""Changes of a table's schema as plain values, and their application to a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.update import AssertLastAssignedFieldId
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, NestedField

from volley.iceberg.pyiceberg_private.access import require

__all__ = ["AddColumn", "Change", "DropColumn", "Evolution", "MakeOptional", "RenameColumn", "UpdateType", "find"]

# Properties that end in a column's name: rename them with the column.
_NAMING = ("write.metadata.metrics.column.", f"{TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX}.")


@dataclass(frozen=True)
class AddColumn:
    """Adds an optional column; it gets the next free field id, and the fields inside its type the following ones."""

    path: tuple[str, ...]
    data_type: IcebergType

    def apply(self, update: UpdateSchema) -> None:
        update.add_column(self.path, self.data_type)


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

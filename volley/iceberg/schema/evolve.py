"""Applies changes of a schema one after the other, and says which of them are impossible."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    TableUpdate,
)
from pyiceberg.types import MapType, NestedField, PrimitiveType, StructType

from volley.errors import SchemaMismatchError, near
from volley.iceberg.pyiceberg_private.access import require, stage
from volley.iceberg.schema.changes import AddColumn, Change, DropColumn, Evolution, RenameColumn, UpdateType, find
from volley.iceberg.schema.compare import TableColumns, same_but_case
from volley.iceberg.schema.types import fields_in, is_widened, needed_version

__all__ = ["evolved", "steps", "table_of", "update"]

_DEFAULTS_SINCE = 3


def table_of(schema: Schema) -> Table:
    """Return a table that has this schema and nothing else, and no catalog: changes can be tried on it."""
    metadata = TableMetadataV3.model_validate(
        {
            **{"location": "none", "schemas": [schema], "current-schema-id": schema.schema_id},
            **{"last-column-id": schema.highest_field_id, "partition-specs": [UNPARTITIONED_PARTITION_SPEC]},
            **{"default-spec-id": 0, "last-partition-id": 999, "next-row-id": 0},
            **{"sort-orders": [UNSORTED_SORT_ORDER], "default-sort-order-id": 0},
        }
    )
    return Table(("schema",), metadata, "", FsspecFileIO({}), NoopCatalog("none"))


def steps(table: Table, changes: Sequence[Change]) -> tuple[list[Table], list[str]]:
    """Return the table before each change and after the last one, and why changes are impossible.

    A change that is impossible is left out.
    """
    tables: list[Table] = [table]
    problems: list[str] = []
    for change in changes:
        before = tables[-1]
        problem, after = _problem(before, change), before
        if problem is None:
            try:
                after = Evolution((change,)).of(before)
            except (ValueError, ValidationError) as error:
                problem, after = f"{change}: {error}", before
        tables.append(after)
        problems += [problem] if problem else []
    return tables, problems


def evolved(table: Table, changes: Sequence[Change], name: str) -> list[Table]:
    """Return the table before each change and after the last one."""
    tables, problems = steps(table, changes)
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise SchemaMismatchError(
            f"the schema of {name} can't be changed like this:\n{listed}",
            hint="leave out or correct these changes",
        )
    return tables


def update(table: Table, target: Table) -> Transaction | None:
    """Return a transaction that gives a table the schema of another, and its properties; None if it has them."""
    before, after = table.metadata, target.metadata
    if before.schema() == after.schema():
        return None
    transaction = table.transaction()
    # The new fields' ids follow those of the schema that was looked at.
    last = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": before.last_column_id})
    require(transaction, last)
    require(transaction, AssertCurrentSchemaId.model_validate({"current-schema-id": before.current_schema_id}))
    stage(transaction, *_schema_updates(before.schemas, after.schema()))
    transaction.remove_properties(*(before.properties.keys() - after.properties.keys()))
    changed = {name: value for name, value in after.properties.items() if before.properties.get(name) != value}
    transaction.set_properties(changed)
    return transaction


def _schema_updates(schemas: Sequence[Schema], schema: Schema) -> list[TableUpdate]:
    known = next((other.schema_id for other in schemas if other == schema), None)
    if known is not None:
        return [SetCurrentSchemaUpdate.model_validate({"schema-id": known})]
    new = schema.model_copy(update={"schema_id": 1 + max(other.schema_id for other in schemas)})
    return [AddSchemaUpdate(schema=new), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})]


def _problem(table: Table, change: Change) -> str | None:
    """Return the reason why a change is impossible; None if it may be possible."""
    schema, columns = table.schema(), TableColumns(table, {}, ())
    version = table.metadata.format_version
    if isinstance(change, AddColumn | UpdateType) and (problem := needed_version(change.data_type, version)):
        return f"{_name(change)!r}: {problem}; IcebergTable(…).upgrade(3) gives it version 3"
    if isinstance(change, AddColumn) and change.default is not None and version < _DEFAULTS_SINCE:
        return (
            f"{_name(change)!r}: a default needs format version {_DEFAULTS_SINCE}, the table has {version}; "
            f"IcebergTable(…).upgrade({_DEFAULTS_SINCE}) gives it that"
        )
    if isinstance(change, AddColumn):
        problem = _not_added(change, schema, columns)
        return f"{'.'.join(change.path)!r} can't be added: {problem}" if problem else None
    column = find(schema, change.path)
    if column is None:
        return f"{change.path!r}: there is no such column ({near(change.path, _names(schema))})"
    problem = None
    if isinstance(change, DropColumn):
        problem = columns.not_dropped(column, {column.field_id})
    elif isinstance(change, RenameColumn):
        problem = columns.not_renamed(column, change.name)
    elif isinstance(change, UpdateType):
        problem = _not_updated(change, column, schema)
    return f"{change.path!r}: {problem}" if problem else None


def _name(change: AddColumn | UpdateType) -> str:
    return ".".join(change.path) if isinstance(change, AddColumn) else change.path


def _not_added(change: AddColumn, schema: Schema, columns: TableColumns) -> str | None:
    *parents, name = change.path
    struct, parent_id = schema.as_struct(), None
    if parents:
        parent = find(schema, ".".join(parents))
        if parent is None:
            return f"there is no {'.'.join(parents)!r} ({near('.'.join(parents), _names(schema))})"
        if not isinstance(parent.field_type, StructType):
            return f"{'.'.join(parents)!r} is {parent.field_type}, not a struct"
        if parent.field_id in _ids_of_keys(schema):
            return "keys of a map can't change"
        struct, parent_id = parent.field_type, parent.field_id
    known = [field.name for field in struct.fields]
    if name in known:
        return "there is such a column"
    if same := same_but_case(name, known):
        return f"there is {same!r}, and other engines don't tell names by case"
    if owner := columns.taken.get((parent_id, name)):
        return owner.reason
    return "a partition field has this name" if ".".join(change.path) in columns.partition_names() else None


def _not_updated(change: UpdateType, column: NestedField, schema: Schema) -> str | None:
    old, new = column.field_type, change.data_type
    if column.field_id in _ids_of_keys(schema):
        return "keys of a map can't change"
    if old == new or (isinstance(new, PrimitiveType) and is_widened(old, new)):
        return None
    return f"{old} can't become {new}; only int → long, float → double and a decimal of more digits are possible"


def _ids_of_keys(schema: Schema) -> set[int]:
    maps = [field.field_type for _, field in fields_in(schema.as_struct()) if isinstance(field.field_type, MapType)]
    inner = (field.field_id for data_type in maps for _, field in fields_in(data_type.key_type))
    return {*(data_type.key_id for data_type in maps), *inner}


def _names(schema: Schema) -> list[str]:
    return [".".join(parts) for parts, _ in fields_in(schema.as_struct())]

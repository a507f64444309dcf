"""Compares a stream's schema with a table's, and plans the changes of the table that make them fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from volley.errors import SchemaMismatchError, near
from volley.iceberg.schema.changes import (
    AddColumn,
    Change,
    DropColumn,
    Evolution,
    MakeOptional,
    RenameColumn,
    UpdateType,
    find,
)
from volley.iceberg.schema.mapping import Names, names_given_to_others
from volley.iceberg.schema.types import check_version, fields_in, fits, iceberg_type, is_widened, table_type_name
from volley.types.arrow import canonical_type, type_name

__all__ = ["TableColumns", "plan", "same_but_case"]

_MOST_LISTED = 8

_ALLOWED: dict[str, tuple[type[Change], ...]] = {
    "strict": (),
    "add_columns": (AddColumn,),
    "full": (AddColumn, DropColumn, RenameColumn, UpdateType, MakeOptional),
}
_HINT = "cast, rename or drop columns of the stream, or change the table's schema"


@dataclass(frozen=True)
class Difference:
    """One difference between a stream and a table.

    Args:
        problem: The difference, as a clause.
        remedy: The change of the table that resolves it; None = there is none.
    """

    column: str
    problem: str
    remedy: Change | None = None

    def __str__(self) -> str:
        return f"{self.column!r}: {self.problem}"


def plan(
    table: Table, stream: pa.Schema, mode: str, renames: Mapping[str, str] | None = None, drops: Sequence[str] = ()
) -> Evolution:
    """Return the changes after which rows of `stream` fit `table`; no changes if they fit already.

    Args:
        mode: The allowed changes: "strict" (none), "add_columns" or "full".
        renames: Dotted names of columns and their new names; renames that are done are skipped.
        drops: Dotted names of columns to drop; dropped ones are skipped.

    Raises:
        SchemaMismatchError: If a difference remains; lists all of them.
    """
    named = TableColumns(table, renames or {}, drops)
    configured = [*named.to_rename(), *named.to_drop()]
    differences = [*configured, *_Comparison.after(named, configured).differences(stream)]
    bad = [difference for difference in differences if not isinstance(difference.remedy, _ALLOWED[mode])]
    if bad:
        listed = "\n".join(f"  - {difference}" for difference in bad[:_MOST_LISTED])
        if len(bad) > _MOST_LISTED:
            listed += f"\n  … and {len(bad) - _MOST_LISTED} more"
        refused = any(difference in configured and difference.remedy is None for difference in bad)
        hint = "leave out of renames and drops what can't be done" if refused else _way_out(bad)
        raise SchemaMismatchError(f"the stream does not fit table {'.'.join(table.name())}:\n{listed}", hint=hint)
    evolution = Evolution(tuple(difference.remedy for difference in differences if difference.remedy))
    check_version(evolution.of(table).schema(), table.metadata.format_version, ".".join(table.name()))
    return evolution


def _way_out(bad: Sequence[Difference]) -> str:
    for mode, types in _ALLOWED.items():
        if all(isinstance(difference.remedy, types) for difference in bad):
            return f'with_schema_evolution("{mode}") changes the table so; or {_HINT}'
    return _HINT


class TableColumns:
    """The columns that the settings rename or drop, looked up in a table."""

    def __init__(self, table: Table, renames: Mapping[str, str], drops: Sequence[str]) -> None:
        self.schema = table.schema()
        self._table = table
        self._renames = renames
        self._drops = drops
        self.taken = names_given_to_others(table.metadata)
        structs = _structs(self.schema.as_struct())
        self._parents = {
            child.field_id: parent.field_id
            for _, parent in fields_in(self.schema.as_struct())
            if isinstance(parent.field_type, StructType)
            for child in parent.field_type.fields
        }
        self._siblings = {field.field_id: struct for struct in structs for field in struct.fields}

    def to_rename(self) -> Iterator[Difference]:
        """Yield the renames that are not done yet."""
        for old_path, name in self._renames.items():
            column = find(self.schema, old_path)
            if column:
                path = self._full(column)
                problem = self.not_renamed(column, name)
                yield Difference(path, problem or "to be renamed", None if problem else RenameColumn(path, name))

    def not_renamed(self, column: NestedField, name: str) -> str | None:
        """Return the reason why a column can't get this name; None if it can."""
        if column.field_id not in self._siblings:
            return "it is part of a list or of a map's key, and can't be renamed"
        new_path = self._full(column).removesuffix(column.name) + name
        if find(self.schema, new_path):
            return f"it can't be renamed to {name!r}, the table has that column"
        if new_path in self.partition_names(column):
            return f"it can't be renamed to {name!r}, the table has a partition field of that name"
        owner = self.taken.get((self._parents.get(column.field_id), name))
        if owner and owner.field_id != column.field_id:
            return f"it can't be renamed to {name!r}: {owner.reason}"
        return None

    def to_drop(self) -> Iterator[Difference]:
        """Yield the drops that are not done yet."""
        columns = [column for column in (find(self.schema, path) for path in self._drops) if column]
        for column in columns:
            problem = self.not_dropped(column, {dropped.field_id for dropped in columns})
            path = self._full(column)
            yield Difference(path, problem or "to be dropped", None if problem else DropColumn(path))

    def not_dropped(self, column: NestedField, dropped: Collection[int]) -> str | None:
        """Return the reason why a column can't be dropped, together with the others in `dropped`; None if it can."""
        if column.field_id not in self._siblings:
            return "it is part of a list or of a map's key, and can't be dropped"
        if all(field.field_id in dropped for field in self._siblings[column.field_id].fields):
            return "it can't be dropped, no column would be left beside it: drop the one it is in"
        for user, ids in self._needed().items():
            if _within(column) & ids:
                return f"it can't be dropped, {user} needs it"
        return None

    def _needed(self) -> dict[str, set[int]]:
        fields = (field for spec in self._table.specs().values() for field in spec.fields)
        return {
            "a partition field": {f.source_id for f in fields if not isinstance(f.transform, VoidTransform)},
            "the sort order": {field.source_id for field in self._table.sort_order().fields},
            "the table's identifier": set(self.schema.identifier_field_ids),
        }

    def partition_names(self, column: NestedField | None = None) -> set[str]:
        """Return the names of partition fields, except those that may equal the name of `column`."""
        fields = (field for spec in self._table.specs().values() for field in spec.fields)
        own = (IdentityTransform, VoidTransform)
        return {
            field.name
            for field in fields
            if not (column and field.source_id == column.field_id and isinstance(field.transform, own))
        }

    def awaited(self) -> dict[str, str]:
        """Return the new names of renames that are done or impossible, with the old names."""
        return {
            path.removesuffix(path.rpartition(".")[2]) + name: path
            for path, name in self._renames.items()
            if not find(self.schema, path)
        }

    def _full(self, column: NestedField) -> str:
        return cast(str, self.schema.find_column_name(column.field_id))


@dataclass(frozen=True)
class _Comparison:
    """Compares a stream's columns with those of a table.

    Args:
        awaited: New names that only a renamed column may have, with the old names.
    """

    table: Schema
    renamed: Mapping[int, str] = field(default_factory=dict)
    dropped: Collection[int] = ()
    awaited: Mapping[str, str] = field(default_factory=dict)
    partition_names: Collection[str] = ()
    taken: Names = field(default_factory=dict)

    @classmethod
    def after(cls, named: TableColumns, configured: Iterable[Difference]) -> _Comparison:
        """Compare with the table as it will be after the configured renames and drops."""
        remedies = [difference.remedy for difference in configured]
        find_field = named.schema.find_field
        renamed = {find_field(r.path).field_id: r.name for r in remedies if isinstance(r, RenameColumn)}
        dropped = {find_field(r.path).field_id for r in remedies if isinstance(r, DropColumn)}
        return cls(named.schema, renamed, dropped, named.awaited(), named.partition_names(), named.taken)

    def differences(self, stream: pa.Schema) -> Iterator[Difference]:
        """Yield all differences; new columns of a struct come last, in the order in which they get ids."""
        return self._struct(stream, self.table.as_struct(), "", ())

    def _struct(
        self, stream: pa.Schema | pa.StructType, table: StructType, prefix: str, path: tuple[str, ...]
    ) -> Iterator[Difference]:
        theirs = {field.name: field for field in stream}
        kept = [field for field in table.fields if field.field_id not in self.dropped]
        ours = {self.renamed.get(field.field_id, field.name): field for field in kept}
        for name in theirs:
            if name in ours:
                yield from self._column(theirs[name], ours[name], prefix + name)
        for name, column in ours.items():
            if column.required and name not in theirs and column.write_default is None:
                yield Difference(prefix + name, "the table requires it, the stream lacks it", self._optional(column))
        for name in theirs:
            if name not in ours:
                data_type = iceberg_type(canonical_type(theirs[name].type))
                problem = self._not_new(name, prefix + name, table, self._id(path))
                remedy = None if problem else AddColumn((*path, name), data_type)
                yield Difference(prefix + name, problem or _unknown(name, ours), remedy)

    def _id(self, path: tuple[str, ...]) -> int | None:
        """Return the id of the field at a path; None for the table itself."""
        return self.table.find_field(path[0]).field_id if path else None

    def _not_new(self, name: str, full: str, table: StructType, parent: int | None) -> str | None:
        """Return the reason why a column that the table lacks can't be added; None if it can."""
        known = [field.name for field in table.fields]
        if name in known:
            return "it is to be renamed or dropped, and the stream still has it"
        if same := same_but_case(name, known):
            return f"the table has {same!r}, names are case-sensitive"
        if full in self.awaited:
            return f"it should be the renamed {self.awaited[full]!r}, and the table has no such column"
        if owner := self.taken.get((parent, name)):
            return owner.reason
        return "the table has a partition field of that name" if full in self.partition_names else None

    def _column(self, stream: pa.Field, table: NestedField, name: str) -> Iterator[Difference]:
        if table.required and stream.nullable:
            problem = "the table requires a value, the stream may have nulls"
            yield Difference(name, problem, self._optional(table))
        yield from self._type(stream.type, table, name)

    def _optional(self, column: NestedField) -> MakeOptional | None:
        identifies = _within(column) & set(self.table.identifier_field_ids)
        return None if identifies else MakeOptional(self._path(column))

    def _type(self, stream: pa.DataType, column: NestedField, name: str) -> Iterator[Difference]:
        table = column.field_type
        if pa.types.is_struct(stream) and isinstance(table, StructType):
            yield from self._struct(stream, table, f"{name}.", (self._path(column),))
        elif pa.types.is_map(stream) and isinstance(table, MapType):
            # Map keys can't evolve.
            keys = self._type(stream.key_type, table.key_field, f"{name}.key")
            yield from (replace(difference, remedy=None) for difference in keys)
            yield from self._column(stream.item_field, table.value_field, f"{name}.value")
        elif isinstance(table, ListType) and pa.types.is_list(canonical_type(stream)):
            yield from self._column(stream.value_field, table.element_field, f"{name}.element")
        elif not fits(canonical_type(stream), table):
            problem = f"the stream has {type_name(stream)}, the table {table_type_name(table)}"
            yield Difference(name, problem, self._wider(canonical_type(stream), column))

    def _wider(self, stream: pa.DataType, column: NestedField) -> UpdateType | None:
        data_type = None if pa.types.is_nested(stream) else iceberg_type(stream)
        if isinstance(data_type, PrimitiveType) and is_widened(column.field_type, data_type):
            return UpdateType(self._path(column), data_type)
        return None

    def _path(self, column: NestedField) -> str:
        return cast(str, self.table.find_column_name(column.field_id))


def _unknown(name: str, known: Iterable[str]) -> str:
    return f"the table has no such column ({near(name, known)})"


def same_but_case(name: str, known: Iterable[str]) -> str | None:
    """Return the name that differs from this one in case only, or not at all."""
    return next((other for other in known if other.casefold() == name.casefold()), None)


def _structs(data_type: IcebergType) -> Iterator[StructType]:
    """Yield the structs in a type, except those in map keys: their fields can't be renamed."""
    if isinstance(data_type, StructType):
        yield data_type
        for field in data_type.fields:
            yield from _structs(field.field_type)
    elif isinstance(data_type, ListType | MapType):
        yield from _structs(data_type.element_type if isinstance(data_type, ListType) else data_type.value_type)


def _within(column: NestedField) -> set[int]:
    """Return the field ids of a column and of the named fields in it."""
    inner = (field.field_id for struct in _structs(column.field_type) for field in struct.fields)
    return {column.field_id, *inner}

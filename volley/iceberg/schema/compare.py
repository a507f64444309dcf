"""What a stream and a table differ in, and which changes of the table's schema end that."""

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
    WidenColumn,
    find,
)
from volley.iceberg.schema.types import fits, iceberg_type, is_widened, table_type_name
from volley.types.arrow import canonical_type, type_name

__all__ = ["plan"]

_ALLOWED: dict[str, tuple[type[Change], ...]] = {
    "strict": (),
    "add_columns": (AddColumn,),
    "full": (AddColumn, DropColumn, RenameColumn, WidenColumn, MakeOptional),
}
_HINT = "cast, rename or drop columns of the stream, or change the table's schema"


@dataclass(frozen=True)
class Difference:
    """One thing in which a stream does not fit a table.

    Args:
        column: The column's dotted name.
        problem: What is wrong with it.
        remedy: The change of the table that ends it; None = there is none.
    """

    column: str
    problem: str
    remedy: Change | None = None

    def __str__(self) -> str:
        return f"{self.column!r}: {self.problem}"


def plan(
    table: Table, stream: pa.Schema, mode: str, renames: Mapping[str, str] | None = None, drops: Sequence[str] = ()
) -> Evolution:
    """The changes after which rows of `stream` fit `table`; none if they fit it as it is.

    Args:
        table: The table as it was just loaded.
        stream: The schema of the rows that are written.
        mode: Which changes are allowed: "strict" (none), "add_columns" or "full".
        renames: Dotted names of columns and their new names; those that are done are passed over.
        drops: Dotted names of columns that are to go; those that are gone are passed over.

    Raises:
        SchemaMismatchError: If a difference is left; lists all of them.
    """
    named = _Named(table, renames or {}, drops)
    asked = [*named.to_rename(), *named.to_drop()]
    found = [*asked, *_Comparison.after(named, asked).differences(stream)]
    bad = [each for each in found if not isinstance(each.remedy, _ALLOWED[mode])]
    if bad:
        listed = "\n".join(f"  - {each}" for each in bad)
        refused = any(each in asked for each in bad)
        hint = "leave out of renames and drops what can't be done" if refused else _way_out(bad)
        raise SchemaMismatchError(f"the stream does not fit table {'.'.join(table.name())}:\n{listed}", hint=hint)
    return Evolution(tuple(each.remedy for each in found if each.remedy))


def _way_out(bad: Sequence[Difference]) -> str:
    for mode, kinds in _ALLOWED.items():
        if all(isinstance(each.remedy, kinds) for each in bad):
            return f'with_schema_evolution("{mode}") changes the table so; or {_HINT}'
    return _HINT


class _Named:
    """The columns that the settings name, looked up in a table.

    Args:
        table: The table.
        renames: Dotted names of columns and their new names.
        drops: Dotted names of columns that are to go.
    """

    def __init__(self, table: Table, renames: Mapping[str, str], drops: Sequence[str]) -> None:
        self.schema = table.schema()
        self._table = table
        self._renames = renames
        self._drops = drops
        structs = _structs(self.schema.as_struct())
        self._siblings = {each.field_id: struct for struct in structs for each in struct.fields}

    def to_rename(self) -> Iterator[Difference]:
        """What is still to be renamed."""
        for path, name in self._renames.items():
            column = find(self.schema, path)
            if column:
                full = self._full(column)
                problem = self._keeps_name(column, name)
                yield Difference(full, problem or "to be renamed", None if problem else RenameColumn(full, name))

    def _keeps_name(self, column: NestedField, name: str) -> str | None:
        if column.field_id not in self._siblings:
            return "it is part of a list or of a map's key, and can't be renamed"
        wanted = self._full(column).removesuffix(column.name) + name
        if find(self.schema, wanted):
            return f"it can't be renamed to {name!r}, the table has that column"
        if wanted in self.partition_names(column):
            return f"it can't be renamed to {name!r}, the table has a partition field of that name"
        return None

    def to_drop(self) -> Iterator[Difference]:
        """What is still to be dropped."""
        gone = [each for each in (find(self.schema, path) for path in self._drops) if each]
        for column in gone:
            problem = self._stays(column, {each.field_id for each in gone})
            full = self._full(column)
            yield Difference(full, problem or "to be dropped", None if problem else DropColumn(full))

    def _stays(self, column: NestedField, gone: Collection[int]) -> str | None:
        if column.field_id not in self._siblings:
            return "it is part of a list or of a map's key, and can't be dropped"
        if all(each.field_id in gone for each in self._siblings[column.field_id].fields):
            return "it can't be dropped, no column would be left beside it: drop the one it is in"
        for what, ids in self._needed().items():
            if _within(column) & ids:
                return f"it can't be dropped, {what} needs it"
        return None

    def _needed(self) -> dict[str, set[int]]:
        fields = (each for spec in self._table.specs().values() for each in spec.fields)
        return {
            "a partition field": {each.source_id for each in fields if not isinstance(each.transform, VoidTransform)},
            "the sort order": {each.source_id for each in self._table.sort_order().fields},
            "the table's identifier": set(self.schema.identifier_field_ids),
        }

    def partition_names(self, column: NestedField | None = None) -> set[str]:
        """The names that partition fields have, in which `column` may have none or only its own."""
        fields = (each for spec in self._table.specs().values() for each in spec.fields)
        own = (IdentityTransform, VoidTransform)
        return {
            each.name
            for each in fields
            if not (column and each.source_id == column.field_id and isinstance(each.transform, own))
        }

    def awaited(self) -> dict[str, str]:
        """New names that should be there, or come about now, by the name before."""
        return {
            path.removesuffix(path.rpartition(".")[2]) + name: path
            for path, name in self._renames.items()
            if not find(self.schema, path)
        }

    def _full(self, column: NestedField) -> str:
        return cast(str, self.schema.find_column_name(column.field_id))


@dataclass(frozen=True)
class _Comparison:
    """A stream's columns beside those of a table.

    Args:
        table: The table's schema.
        renamed: New names by field id.
        dropped: The ids of fields that are to go.
        awaited: New names that only a renamed column may have, by the name before.
        partition_names: The names of partition fields, which no new column may have.
    """

    table: Schema
    renamed: Mapping[int, str] = field(default_factory=dict)
    dropped: Collection[int] = ()
    awaited: Mapping[str, str] = field(default_factory=dict)
    partition_names: Collection[str] = ()

    @classmethod
    def after(cls, named: _Named, asked: Iterable[Difference]) -> _Comparison:
        """With the table as it is after what the settings ask for."""
        remedies = [each.remedy for each in asked]
        ids = named.schema.find_field
        renamed = {ids(each.path).field_id: each.name for each in remedies if isinstance(each, RenameColumn)}
        dropped = {ids(each.path).field_id for each in remedies if isinstance(each, DropColumn)}
        return cls(named.schema, renamed, dropped, named.awaited(), named.partition_names())

    def differences(self, stream: pa.Schema) -> Iterator[Difference]:
        """All of them; the new columns of a struct come last, in the order in which their ids are given."""
        return self._struct(stream, self.table.as_struct(), "", ())

    def _struct(
        self, stream: pa.Schema | pa.StructType, table: StructType, prefix: str, path: tuple[str, ...]
    ) -> Iterator[Difference]:
        have = {each.name: each for each in stream}
        kept = [each for each in table.fields if each.field_id not in self.dropped]
        want = {self.renamed.get(each.field_id, each.name): each for each in kept}
        for name in have:
            if name in want:
                yield from self._column(have[name], want[name], prefix + name)
        for name, column in want.items():
            if column.required and name not in have:
                yield Difference(prefix + name, "the table requires it, the stream lacks it", self._optional(column))
        for name in have:
            if name not in want:
                kind = iceberg_type(canonical_type(have[name].type))
                problem = self._not_new(name, prefix + name, table)
                remedy = None if problem else AddColumn((*path, name), kind)
                yield Difference(prefix + name, problem or _unknown(name, want), remedy)

    def _not_new(self, name: str, full: str, table: StructType) -> str | None:
        """Why a column that the table has not can't be a new one."""
        known = [each.name for each in table.fields]
        if name in known:
            return "it is to be renamed or dropped, and the stream still has it"
        if same := _same_but_case(name, known):
            return f"the table has {same!r}, names are case-sensitive"
        if full in self.awaited:
            return f"it should be the renamed {self.awaited[full]!r}, and the table has no such column"
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
            # What tells the entries of a map apart can't change.
            keys = self._type(stream.key_type, table.key_field, f"{name}.key")
            yield from (replace(each, remedy=None) for each in keys)
            yield from self._column(stream.item_field, table.value_field, f"{name}.value")
        elif isinstance(table, ListType) and pa.types.is_list(canonical_type(stream)):
            yield from self._column(stream.value_field, table.element_field, f"{name}.element")
        elif not fits(canonical_type(stream), table):
            problem = f"the stream has {type_name(stream)}, the table {table_type_name(table)}"
            yield Difference(name, problem, self._wider(canonical_type(stream), column))

    def _wider(self, stream: pa.DataType, column: NestedField) -> WidenColumn | None:
        kind = None if pa.types.is_nested(stream) else iceberg_type(stream)
        if isinstance(kind, PrimitiveType) and is_widened(column.field_type, kind):
            return WidenColumn(self._path(column), kind)
        return None

    def _path(self, column: NestedField) -> str:
        return cast(str, self.table.find_column_name(column.field_id))


def _unknown(name: str, known: Iterable[str]) -> str:
    return f"the table has no such column ({near(name, known)})"


def _same_but_case(name: str, known: Iterable[str]) -> str | None:
    return next((each for each in known if each.casefold() == name.casefold()), None)


def _structs(kind: IcebergType) -> Iterator[StructType]:
    """The structs in a type whose fields have names that can change: all but those in keys of maps."""
    if isinstance(kind, StructType):
        yield kind
        for each in kind.fields:
            yield from _structs(each.field_type)
    elif isinstance(kind, ListType | MapType):
        yield from _structs(kind.element_type if isinstance(kind, ListType) else kind.value_type)


def _within(column: NestedField) -> set[int]:
    """The field ids of a column and of the named fields in it."""
    inner = (each.field_id for struct in _structs(column.field_type) for each in struct.fields)
    return {column.field_id, *inner}

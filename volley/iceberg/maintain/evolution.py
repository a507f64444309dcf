"""SchemaEvolution: changes of a schema as a value, for a schema, a table or as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from volley.checks import flag, names, one_of
from volley.errors import ConfigError, brief_methods
from volley.html_table import text_html
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.table import TableRef

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

    from volley.iceberg.schema.changes import Change
    from volley.types.names import TypeLike

__all__ = ["SchemaEvolution"]


@brief_methods
@dataclass(frozen=True, repr=False)
class SchemaEvolution:
    """Changes of a schema, made one after the other: a frozen value; each verb returns a new one.

    Columns keep their field ids, so files that were written before are read right after every change: added columns
    are null in them, renamed ones are found, dropped ones are left out. Columns in structs have dotted names, such as
    ``"address.city"``; in lists and maps too: ``"tags.element.name"``, ``"prices.value.currency"``.

    Args:
        current: The schema to start from: pyiceberg's ``Schema`` (as of ``TableRef.load().schema()``), an Arrow schema,
            a text such as ``"id int, name string"``, or a dict of names and types.
        changes: The changes so far.

    Raises:
        ConfigError: If `current` is no schema.

    Example:
        >>> from volley import SchemaEvolution
        >>> evolution = (
        ...     SchemaEvolution("id int, name string, old string")
        ...     .add("email", "string")
        ...     .rename("name", "full_name")
        ...     .update_type("id", "long")
        ...     .drop("old")
        ... )
        >>> evolution.is_compatible()
        True
        >>> print(evolution.apply())
        table {
          1: id: optional long
          2: full_name: optional string
          4: email: optional string
        }
        >>> print(evolution.to_sql("db.events"))
        ALTER TABLE `db`.`events` ADD COLUMN `email` string;
        ALTER TABLE `db`.`events` RENAME COLUMN `name` TO `full_name`;
        ALTER TABLE `db`.`events` ALTER COLUMN `id` TYPE bigint;
        ALTER TABLE `db`.`events` DROP COLUMN `old`;
    """

    current: Schema | pa.Schema | str | Mapping[str, TypeLike]
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "current", _schema(self.current))
        if not isinstance(self.changes, tuple | list) or not all(map(_is_change, self.changes)):
            raise ConfigError(f"changes are {self.changes!r}", hint='SchemaEvolution(schema).add("email", "string")')
        object.__setattr__(self, "changes", tuple(self.changes))

    def add(
        self,
        column: str | Sequence[str],
        data_type: TypeLike | pa.DataType | IcebergType,
        default: Any = None,
        required: bool = False,
    ) -> SchemaEvolution:
        """Add a column at the end of the table, or of the struct that its dotted name leads to.

        Args:
            column: Its dotted name; a list of names if one of them has a dot.
            data_type: A name such as ``"long"`` or ``"array<string>"``, a Python, Arrow or Iceberg type. In tables of
                format version 3 also ``"variant"``, ``"geometry(EPSG:4326)"``, ``"geography"``, and ``"unknown"`` for a
                column without values; in lists, maps and structs, too: ``"map<string, variant>"``.
            default: Its value in rows that are there, and in rows that are written without the column; None = null.
                Tables have defaults from format version 3 on.
            required: True: it never has nulls; it needs a default.

        Raises:
            ConfigError: If it is no name, no type, or the default no value of it; if it is required without a default.
            SourceError: If Iceberg has no such type.

        Example:
            >>> from volley import SchemaEvolution
            >>> print(SchemaEvolution("id long").add("country", "string", default="NO", required=True).apply())
            table {
              1: id: optional long
              2: country: required string
            }
        """
        from volley.iceberg.schema.changes import AddColumn
        from volley.iceberg.schema.defaults import checked_default

        several = isinstance(column, list | tuple) and len(column) > 0
        path = names("column", column) if several else tuple(_name(column).split("."))
        if flag("required", required) and default is None:
            raise ConfigError(
                f"column {column!r} is required and has no default", hint="give one, or leave out required"
            )
        kind = _type(data_type)
        return self._with(AddColumn(path, kind, None if default is None else checked_default(kind, default), required))

    def drop(self, column: str) -> SchemaEvolution:
        """Drop a column.

        Raises:
            ConfigError: If it is no name.
        """
        from volley.iceberg.schema.changes import DropColumn

        return self._with(DropColumn(_name(column)))

    def rename(self, column: str, name: str) -> SchemaEvolution:
        """Rename a column; it stays where it is.

        Args:
            column: Its dotted name.
            name: Its new name, without those of the structs it is in.

        Raises:
            ConfigError: If one is no name.
        """
        from volley.iceberg.schema.changes import RenameColumn

        if "." in _name(name):
            raise ConfigError(
                f"{column!r} can't be renamed to {name!r}", hint="only its own name, it stays where it is"
            )
        return self._with(RenameColumn(_name(column), name))

    def update_type(self, column: str, data_type: TypeLike | pa.DataType | IcebergType) -> SchemaEvolution:
        """Widen a column's type: int to long, float to double, or a decimal to one of more digits.

        Args:
            column: Its dotted name.
            data_type: As for `add`.

        Raises:
            ConfigError: If it is no name, or no type.
            SourceError: If Iceberg has no such type.
        """
        from volley.iceberg.schema.changes import UpdateType

        return self._with(UpdateType(_name(column), _type(data_type)))

    def problems(self) -> tuple[str, ...]:
        """Return why changes are impossible, one text for each that is; empty if all are possible.

        Example:
            >>> from volley import SchemaEvolution
            >>> SchemaEvolution("id long").update_type("id", "int").drop("nmae").problems()[1]
            "'nmae': there is no such column (known: 'id')"
        """
        from volley.iceberg.schema.evolve import steps, table_of

        return tuple(steps(table_of(self._schema), self.changes)[1])

    def is_compatible(self) -> bool:
        """Return True if all changes are possible: files that were written before can still be read."""
        return not self.problems()

    def apply(self, table: TableRef | IcebergSinkConfig | None = None) -> Schema:
        """Return the changed schema as pyiceberg's ``Schema``; with a table, change the table's schema in one commit.

        Args:
            table: The table to change, as a `TableRef` or a sink's config. The changes are made to its schema as it is
                then. None = only return the changed `current`.

        Raises:
            SchemaMismatchError: If a change is impossible; lists all that are. Nothing is changed then.
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.
            CommitConflictError: If other writers changed the schema during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether the schema is changed.

        Example:
            >>> from volley import IcebergStorage, SchemaEvolution, TableRef
            >>> events = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"))
            >>> SchemaEvolution(events.load().schema()).add("email", "string").apply(events)  # doctest: +SKIP
        """
        if table is None:
            from volley.iceberg.schema.evolve import evolved, table_of

            return evolved(table_of(self._schema), self.changes, "the table")[-1].schema()
        from volley.iceberg.commit.tables import change_schema

        return change_schema(table_ref(table), self.changes)

    def to_sql(self, table: str | TableRef, dialect: str = "spark") -> str:
        """Return the changes as SQL, a statement a line, to run in this order.

        Args:
            table: The table's dotted name in the engine, such as ``"lake.db.events"``; of a `TableRef`, namespace and
                table.
            dialect: ``"spark"`` or ``"trino"``.

        Raises:
            ConfigError: If the dialect is unknown, or the table is no name.
            SchemaMismatchError: If a change is impossible, or the dialect has no word for a type.
        """
        return "\n".join(f"{statement};" for statement in self.statements(table, dialect))

    def statements(self, table: str | TableRef, dialect: str = "spark") -> list[str]:
        """Return the statements of `to_sql` one by one, for engines that take one at a time.

        Raises:
            VolleyError: As for `to_sql`.

        Example:
            >>> from volley import SchemaEvolution
            >>> SchemaEvolution({"id": "int"}).update_type("id", "long").statements("lake.db.t", "trino")
            ['ALTER TABLE "lake"."db"."t" ALTER COLUMN "id" SET DATA TYPE bigint']
        """
        from volley.iceberg.schema.changes import DIALECTS, statement
        from volley.iceberg.schema.evolve import evolved, table_of

        known = DIALECTS[one_of(DIALECTS)("dialect", dialect)]
        path = table.identifier if isinstance(table, TableRef) else _name(table).split(".")
        name = known.identifier(path)
        tables = evolved(table_of(self._schema), self.changes, ".".join(path))
        return [
            statement(known, name, change, before.schema())
            for change, before in zip(self.changes, tables, strict=False)
        ]

    _repr_html_ = text_html

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name} {field.field_type}" for field in self._schema.fields)
        verbs = "".join(f".{_verb(change)}" for change in self.changes)
        return f"SchemaEvolution({fields!r}){verbs}"

    @property
    def _schema(self) -> Schema:
        schema: Any = self.current
        return schema  # type: ignore[no-any-return]

    def _with(self, change: Change) -> SchemaEvolution:
        return replace(self, changes=(*self.changes, change))


def _schema(current: Any) -> Schema:
    from pyiceberg.schema import Schema

    from volley.iceberg.schema.conversion import iceberg_schema_of
    from volley.types.arrow import arrow_schema
    from volley.types.schemas import check_schema

    return current if isinstance(current, Schema) else iceberg_schema_of(arrow_schema(check_schema(current)), 3)


def _type(data_type: Any) -> IcebergType:
    import pyarrow as pa
    from pyiceberg.types import IcebergType

    from volley.iceberg.maintain.named_types import type_named
    from volley.iceberg.schema.conversion import iceberg_of
    from volley.types.arrow import arrow_type

    if isinstance(data_type, IcebergType):
        return data_type
    if isinstance(data_type, str):
        return type_named(data_type)
    return iceberg_of(data_type if isinstance(data_type, pa.DataType) else arrow_type(data_type), 3)


def _is_change(change: object) -> bool:
    from volley.iceberg.schema.changes import Change

    return isinstance(change, Change)


def _verb(change: Change) -> str:
    from volley.iceberg.schema.changes import AddColumn, DropColumn, RenameColumn, UpdateType

    match change:
        case AddColumn(path, data_type, default, required):
            settings = "" if default is None else f", default={default!r}"
            return f"add({'.'.join(path)!r}, {str(data_type)!r}{settings}{', required=True' if required else ''})"
        case DropColumn(path):
            return f"drop({path!r})"
        case RenameColumn(path, name):
            return f"rename({path!r}, {name!r})"
        case UpdateType(path, data_type):
            return f"update_type({path!r}, {str(data_type)!r})"
    return repr(change)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not all(part.strip() for part in name.split(".")):
        raise ConfigError(
            f"{name!r} is not a name", hint='the dotted name of a column or table, such as "address.city"'
        )
    return name

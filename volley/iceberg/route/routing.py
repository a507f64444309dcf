"""How the rows of a sink are spread over tables: the name of a row's table, and the key columns of each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Literal

from volley.checks import count, keep, names, one_of, optional, text
from volley.errors import ConfigError
from volley.iceberg.modes import Append, CommitMode, History, KeyedMode, Upsert
from volley.iceberg.table import check_name, check_namespace
from volley.plan.expression_nodes import Column, ExprNode
from volley.plan.expressions import Expr

__all__ = ["SEPARATOR", "KeyFields", "KeyFieldsLike", "Routing", "TableNames"]

_PRIMARY_KEY = "primary_key"
KeyFieldsLike = Sequence[str] | Mapping[str, Sequence[str]] | Literal["primary_key"] | None
"""Key columns as users write them: of all tables, by table, the rows' own primary keys, or none."""

SEPARATOR = "\x1f"
"""What stands between the values of a route's columns in its key."""


@dataclass(frozen=True)
class TableNames:
    """The parts that a table's name consists of, and the namespace of a name without one.

    A row's key has the values of the columns or expressions in its table's name; rows of one key go to one table.

    Args:
        parts: Texts that stand in every name, and nodes that are computed for each row.

    Example:
        >>> names = TableNames.of("{shop}.orders_{country}", ("lake",))
        >>> names.identifier(f"nord{SEPARATOR}no")
        ('nord', 'orders_no')
    """

    parts: tuple[str | ExprNode, ...]
    namespace: tuple[str, ...]

    @classmethod
    def of(cls, route: str | Expr, namespace: tuple[str, ...]) -> TableNames:
        """Return the names that a template with columns in braces, or an expression, describes.

        Raises:
            ConfigError: If the template is not valid, or has no column.
        """
        if isinstance(route, Expr):
            return cls((route.node,), namespace)
        if not isinstance(route, str):
            raise ConfigError(f"route is of type {type(route).__name__}", hint='"{namespace}.{table}", or col("type")')
        table_names = cls(_parse(route), namespace)
        if not table_names.nodes:
            raise ConfigError(
                f"route {route!r} has no column in braces: all rows would go to one table",
                hint='"{namespace}.{table}"; for one table: to_sink(IcebergSink(config))',
            )
        return table_names

    @property
    def nodes(self) -> tuple[ExprNode, ...]:
        """The parts that are computed for each row."""
        return tuple(part for part in self.parts if isinstance(part, ExprNode))

    def identifier(self, key: str) -> tuple[str, ...]:
        """Return the namespace and name of the table for a key; a dot in it ends a part of the namespace.

        Raises:
            ConfigError: If it is not a valid name.
        """
        texts = key.split(SEPARATOR)
        if len(texts) != len(self.nodes):
            raise ConfigError(f"{key!r} can't be in a table's name", hint="without control characters")
        values = iter(texts)
        name = "".join(next(values) if isinstance(part, ExprNode) else part for part in self.parts)
        *namespace, table = name.split(".")
        check_namespace(namespace)
        check_name("table", table)
        return (*(namespace or self.namespace), table)

    def __str__(self) -> str:
        """The template, with expressions in braces."""
        texts = (f"{{{part.name}}}" if isinstance(part, Column) else f"{{{part!r}}}" for part in self.nodes)
        return "".join(next(texts) if isinstance(part, ExprNode) else part for part in self.parts)


def _parse(template: str) -> tuple[str | ExprNode, ...]:
    parts: list[str | ExprNode] = []
    try:
        for text, column, layout, conversion in Formatter().parse(template):
            if text:
                parts.append(text)
            if column is not None:
                if not column or layout or conversion:
                    raise ValueError("braces are for the names of columns")
                parts.append(Column(column))
    except ValueError as error:
        raise ConfigError(f"route {template!r} is not a template: {error}", hint='"{namespace}.{table}"') from error
    return tuple(parts)


@dataclass(frozen=True, repr=False)
class KeyFields:
    """The key columns of each table.

    Args:
        mode: The commit mode of tables without keys of their own.
        by_table: Key columns by the table's name, with or without its namespace; ``""`` = all tables.
        own: True if packed rows tell the primary key of their table.

    Example:
        >>> keys = KeyFields.of({"orders": ["id"]}, Append())
        >>> keys.mode_of(("lake", "orders"), ()).key_fields, keys.mode_of(("lake", "clicks"), ())
        (('id',), Append())
    """

    mode: CommitMode
    by_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    own: bool = False

    @classmethod
    def of(cls, fields: KeyFieldsLike, mode: CommitMode) -> KeyFields:
        """Return the keys that a user has given.

        Raises:
            ConfigError: If they are not columns.
        """
        if fields is None and not (isinstance(mode, KeyedMode) and not mode.keys):
            return cls(mode)
        if fields is None or fields == _PRIMARY_KEY:
            return cls(mode, own=True)
        by_table = fields if isinstance(fields, Mapping) else {"": fields}
        keys = cls(mode, {table: names("key_fields", columns) for table, columns in by_table.items()})
        for columns in keys.by_table.values():
            _keyed(mode, columns)
        return keys

    @property
    def modes(self) -> list[CommitMode]:
        """The commit modes that are known before a row is."""
        return [_keyed(self.mode, columns) for columns in self.by_table.values()] if self.by_table else [self.mode]

    def mode_of(self, identifier: Sequence[str], own: Sequence[str]) -> CommitMode:
        """Return the commit mode of a table.

        Args:
            own: The primary key that its packed rows tell; empty = none.
        """
        if not self.own and not self.by_table:
            return self.mode
        tables = (".".join(identifier), identifier[-1], "")
        columns = own if self.own else next((self.by_table[table] for table in tables if table in self.by_table), ())
        return _keyed(self.mode, columns) if columns else Append()

    def __repr__(self) -> str:
        if self.own or not self.by_table:
            return f"key_fields={_PRIMARY_KEY!r}" if self.own else repr(self.mode)
        fields = {table: list(columns) for table, columns in self.by_table.items()}
        return f"key_fields={fields.get('', fields)!r}"


def _keyed(mode: CommitMode, columns: Sequence[str]) -> Upsert | History:
    if not columns:
        raise ConfigError("key_fields name no column", hint='key_fields=["id"]; leave a table out to append to it')
    return replace(mode, key_fields=columns) if isinstance(mode, Upsert | History) else Upsert(columns)


@dataclass(frozen=True)
class Routing:
    """How rows are spread over tables: the settings of `IcebergSink.routed`. Picklable."""

    names: TableNames
    key_fields: KeyFields
    rows: str | None = None
    omit: Sequence[str] = ()
    limit: int = 500
    max_open_writers: int = 100
    commits_at_once: int = 8
    on_error: Literal["fail", "park"] = "fail"

    def __post_init__(self) -> None:
        keep(self, rows=optional(text), omit=names, limit=count, max_open_writers=count, commits_at_once=count)
        keep(self, on_error=one_of(("fail", "park")))
        if self.key_fields.own and self.rows is None:
            raise ConfigError(
                'key_fields="primary_key" is for packed rows, which tell their key',
                hint='name the columns, or give rows="…"',
            )
        if self.rows is not None and self.omit:
            raise ConfigError("omit is for rows that are not packed", hint="leave the columns out of pack_rows(…)")

"""Names of tables, and the selection of those that a source reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from volley.checks import names
from volley.errors import ConfigError

__all__ = ["Selection", "TableName", "table_name", "table_names"]

_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_NAME = re.compile(rf"{_PART}\.{_PART}")
# What no name in a lake may have, and what looks as if it were escaped.
_ESCAPED = re.compile(r"[./\\?#%\x00-\x1f]|^\s|\s$|_(?=x[0-9A-F]{4}_)")
_WILD = "*?["


@dataclass(frozen=True)
class TableName:
    """A table of a database, in its schema; where there are no schemas, the database stands for it.

    Example:
        >>> str(TableName("public", "orders"))
        'public.orders'
    """

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """The name as SQL has it."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.table))

    @property
    def setting(self) -> str:
        """The name as the settings of a source have it."""
        parts = (self.schema, self.table)
        return ".".join('"' + part.replace('"', '""') + '"' if {".", '"'} & {*part} else part for part in parts)

    @property
    def escaped(self) -> TableName:
        """The name as rows have it, by which a routed sink finds a table: as SQL/XML writes other characters.

        Example:
            >>> str(TableName("public", "a/b").escaped)
            'public.a_x002F_b'
        """
        return TableName(*(_ESCAPED.sub(_hexadecimal, part) for part in (self.schema, self.table)))


def table_name(text: str, setting: str = "tables") -> TableName:
    """Return the table of a text such as ``public.orders`` or ``public."Order Items"``; case is kept as it is.

    Raises:
        ConfigError: If it does not name a schema and a table.
    """
    parts = _NAME.fullmatch(text)
    if parts is None:
        raise ConfigError(
            f"{setting} has {text!r}, which is not a schema and a table",
            hint='for example "public.orders"; names with a dot in double quotes: \'public."a.b"\'',
        )
    schema, table = (parts[1] or parts[2], parts[3] or parts[4])
    return TableName(schema.replace('""', '"'), table.replace('""', '"'))


def _hexadecimal(match: re.Match[str]) -> str:
    return f"_x{ord(match[0]):04X}_"


_EVERY = TableName("*", "*")


@dataclass(frozen=True)
class Selection:
    """The tables that a source reads, of those that are there.

    Example:
        >>> shop = Selection.of(["public.order_*"])
        >>> TableName("public", "order_items") in shop, TableName("public", "users") in shop, shop.only
        (True, False, None)
    """

    # Names of tables, in which * and ? stand for any characters; empty = all tables.
    patterns: tuple[TableName, ...]
    excluded: tuple[TableName, ...] = ()

    @classmethod
    def of(cls, tables: Sequence[str], excluded: Sequence[str] = ()) -> Selection:
        """Return the selection of names as users write them; ``*.*`` = all tables.

        Raises:
            ConfigError: If it would exclude a table that it names.
        """
        patterns = tuple(map(table_name, tables))
        selection = cls(() if _EVERY in patterns else patterns, tuple(map(table_name, excluded)))
        for name in filter(selection.excludes, selection.named):
            raise ConfigError(f"table {name} is in tables, and in exclude", hint="name it in one of them")
        return selection

    @property
    def only(self) -> TableName | None:
        """The one table, if it is selected by its name alone."""
        return self.patterns[0] if len(self.patterns) == 1 and not _is_wild(self.patterns[0]) else None

    @property
    def named(self) -> tuple[TableName, ...]:
        """The tables that are selected by their names."""
        return tuple(name for name in self.patterns if not _is_wild(name))

    @property
    def schemas(self) -> tuple[str, ...]:
        """The schemas of which all tables are selected."""
        whole = (name.schema for name in self.patterns if name.table == "*" and not _has_wildcard(name.schema))
        return () if self.excluded else tuple(whole)

    @property
    def is_whole_database(self) -> bool:
        """True if every table is selected."""
        return not self.patterns and not self.excluded

    def excludes(self, name: TableName) -> bool:
        """Return True if a table is not read, whatever it is selected by."""
        return _matches(name, self.excluded)

    def __contains__(self, name: TableName) -> bool:
        return (not self.patterns or _matches(name, self.patterns)) and not self.excludes(name)

    def __str__(self) -> str:
        selected = ", ".join(map(str, self.patterns)) or "all tables"
        return f"{selected} but {', '.join(map(str, self.excluded))}" if self.excluded else selected


def table_names(name: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names and patterns of tables.

    Raises:
        ConfigError: If one is not a schema and a table, or there is none.
    """
    tables = names(name, value)
    if not tables:
        raise ConfigError(f"{name} is empty", hint="name tables, or leave it out: all tables")
    for table in tables:
        table_name(table, name)
    return tables


def _matches(name: TableName, patterns: Sequence[TableName]) -> bool:
    return any(
        fnmatchcase(name.schema, pattern.schema) and fnmatchcase(name.table, pattern.table) for pattern in patterns
    )


def _is_wild(name: TableName) -> bool:
    return _has_wildcard(name.schema) or _has_wildcard(name.table)


def _has_wildcard(text: str) -> bool:
    return any(sign in text for sign in _WILD)

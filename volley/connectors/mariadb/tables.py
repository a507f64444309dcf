"""Tables as a server's catalog describes them, and as the binary log does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from volley.capture.selection import Selection, TableName
from volley.connectors.mariadb.connection import Connection, query
from volley.connectors.mariadb.log import lenenc
from volley.connectors.mariadb.settings import ANEW
from volley.connectors.mariadb.types import TableColumn
from volley.errors import SourceError

__all__ = ["Charsets", "Table", "charsets", "described", "mapped"]

_COLUMNS = """
    select c.table_schema, c.table_name, c.column_name, c.data_type, c.column_type, c.numeric_precision,
        c.numeric_scale, c.datetime_precision, c.character_octet_length, c.character_set_name,
        k.ordinal_position,
        c.column_default is null or (c.column_default = 'NULL' and version() like '%%MariaDB%%'), c.is_nullable
    from information_schema.columns c
    left join information_schema.key_column_usage k on k.table_schema = c.table_schema
        and k.table_name = c.table_name and k.column_name = c.column_name and k.constraint_name = 'PRIMARY'
    where c.table_schema = %s and c.table_name = %s
    order by c.ordinal_position
"""
_SIZES = {"tinytext": 255, "text": 65_535, "mediumtext": 0xFFFFFF, "longtext": 0xFFFFFFFF}
_SHAPES = (
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
)
_KNOWN = (
    *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit"),
    *("char", "varchar", "enum", "set", "uuid", "inet4", "inet6", "binary", "varbinary", "geometry"),
    *("date", "datetime", "timestamp", "time", "year", "json", "vector"),
)
_LABEL = re.compile(r"'((?:[^']|'')*)'")
Charsets = Mapping[int, str]
"""The character set of each collation, by the collation's number."""


@dataclass(frozen=True)
class Table:
    """A table, as its catalog has it, or as the log has described it."""

    name: TableName
    columns: tuple[TableColumn, ...]

    @property
    def anew(self) -> str:
        """The way out where its changes are gone."""
        return ANEW

    @property
    def with_whole_rows(self) -> str:
        """What makes its changes have whole rows."""
        return "set global binlog_row_image = FULL"

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns of the primary key; empty = none."""
        keys = [column for column in self.columns if column.key is not None]
        return tuple(column.name for column in sorted(keys, key=lambda column: column.key or 0))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows. All columns are nullable: a deleted row may have only its keys."""
        return pa.schema([(column.name, column.data_type) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Table:
        """Return the table of JSON values."""
        return cls(TableName(**values["name"]), tuple(map(TableColumn.from_json, values["columns"])))


def charsets(connection: Connection) -> Charsets:
    """Return the character sets of a server's collations."""
    rows = query(connection, "select id, character_set_name from information_schema.collations where id is not null")
    newer = "select id, character_set_name from information_schema.collation_character_set_applicability"
    columns = (
        "select 1 from information_schema.columns where table_schema = 'information_schema' and column_name = 'ID'"
    )
    if query(connection, f"{columns} and table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY'"):
        rows += query(connection, newer)
    return {int(number): name for number, name in rows if number is not None and name is not None}


def described(connection: Connection, name: TableName) -> Table | None:
    """Return a table as the catalog has it now; None if there is none.

    Raises:
        SourceError: If a column has a type that can't be captured.
    """
    rows = query(connection, _COLUMNS, name.schema, name.table)
    return Table(name, tuple(_column(name, *row[2:]) for row in rows)) if rows else None


def _column(
    table: TableName,
    name: str,
    kind: str,
    declared: str,
    precision: int | None,
    scale: int | None,
    fraction: int | None,
    octets: int | None,
    charset: str | None,
    key: int | None,
    blank: int,
    nullable: str,
) -> TableColumn:
    kind = kind.lower()
    if kind not in ("enum", "set") and "compressed" in declared.lower():
        raise _unknown(table, name, f"{kind} compressed")
    place, is_blank = None if key is None else int(key) - 1, bool(blank) and nullable == "YES"
    if kind in _SIZES or kind.replace("blob", "text") in _SIZES:
        is_text = kind in _SIZES
        length = _SIZES[kind.replace("blob", "text")]
        return TableColumn(
            name, "text" if is_text else "blob", length, charset=charset or "", key=place, blank=is_blank
        )
    kind = "geometry" if kind in _SHAPES else kind
    if kind not in _KNOWN:
        raise _unknown(table, name, kind)
    length = octets or 0
    if kind in ("decimal", "bit"):
        length = int(precision or 0)
    elif kind in ("datetime", "timestamp", "time"):
        length = int(fraction or 0)
    elif kind in ("uuid", "inet4", "inet6", "enum", "set", "json", "vector", "geometry"):
        length = 0
    labels = tuple(label.replace("''", "'") for label in _LABEL.findall(declared)) if kind in ("enum", "set") else ()
    unsigned = " unsigned" in declared and kind not in ("enum", "set")
    scale = int(scale or 0) if kind == "decimal" else 0
    return TableColumn(name, kind, length, scale, unsigned, charset or "", labels, place, is_blank)


def _unknown(table: TableName, name: str, kind: str) -> SourceError:
    return SourceError(
        f"table {table}: column {name!r} is {kind}, which this source does not read",
        hint=f"alter the column, or leave the table out: exclude={table.setting!r}",
    )


# The log's numbers of types.
_NUMBERS = {1: "tinyint", 2: "smallint", 3: "int", 8: "bigint", 9: "mediumint", 4: "float", 5: "double"}
_TIMES = {10: "date", 13: "year", 17: "timestamp", 18: "datetime", 19: "time"}
_VARCHAR, _BIT, _DECIMAL, _ENUM, _SET, _BLOB, _STRING, _GEOMETRY = 15, 16, 246, 247, 248, 252, 254, 255
_VECTOR = 242
_PLAIN = {_GEOMETRY: "geometry", 245: "json", _VECTOR: "vector"}
_SIGNED_KINDS = {*_NUMBERS, 13, _DECIMAL}
_OLD_TIMES, _COMPRESSED_TYPES = (7, 11, 12, 14), (140, 141)
_META_BYTES = {_VARCHAR: 2, _BIT: 2, _DECIMAL: 2, _STRING: 2, _BLOB: 1, _GEOMETRY: 1, 4: 1, 5: 1, 17: 1, 18: 1, 19: 1}
_META_BYTES |= dict.fromkeys((140, 141), 2) | {245: 1, 242: 1}
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_KEY, _KEY_PREFIXES, _LABEL_DEFAULT, _LABEL_CHARSET, _VISIBILITY = 8, 9, 10, 11, 12
_BINARY = 63


def table_number(body: bytes) -> int:
    """Return the log's number of a table, of an event that describes it or has rows of it."""
    return int.from_bytes(body[:6], "little")


def table_name_of(body: bytes) -> TableName:
    """Return the name of the table that an event describes."""
    database, at = _text(body, 8)
    table, _ = _text(body, at + 1)
    return TableName(database.decode(), table.decode())


def mapped(body: bytes, known: Charsets, now: Table | None) -> Table:
    """Return the table that an event describes.

    Args:
        now: The table as the catalog has it: only that tells addresses and UUIDs from bytes.

    Raises:
        SourceError: If the event does not tell the names of the columns, or one has a type that can't be captured.
    """
    name = table_name_of(body)
    _, at = _text(body, 8)
    _, at = _text(body, at + 1)
    count, at = lenenc(body, at + 1)
    types, at = body[at : at + count], at + count
    size, at = lenenc(body, at)
    metas = list(_metas(types, body[at : at + size]))
    at += size
    nullable = body[at : at + (count + 7) // 8]
    optional = dict(_optional(body, at + len(nullable)))
    if _COLUMN_NAME not in optional:
        raise SourceError(
            f"the binary log does not tell the names of the columns of table {name}",
            hint=f"set global binlog_row_metadata = FULL, then {ANEW}",
        )
    return _Description(name, metas, optional, known, now).table()


def _text(body: bytes, at: int) -> tuple[bytes, int]:
    size, at = lenenc(body, at)
    return body[at : at + size], at + size


def _metas(types: bytes, data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield for each column its type, and two bytes that say more of it; an enum or a set has a text's type."""
    at = 0
    for kind in types:
        size = _META_BYTES.get(kind, 0)
        meta = data[at : at + size] + b"\0\0"
        at += size
        first, second = meta[0], meta[1]
        if kind == _STRING and first & 0x30 != 0x30:
            first, second = first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
        yield (first if kind == _STRING and first in (_ENUM, _SET) else kind), first, second


def _optional(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        kind = body[at]
        value, at = _text(body, at + 1)
        yield kind, value


def _numbers(data: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = lenenc(data, at)
        numbers.append(number)
    return numbers


@dataclass(frozen=True)
class _Description:
    """What an event tells of a table's columns."""

    name: TableName
    metas: Sequence[tuple[int, int, int]]
    optional: Mapping[int, bytes]
    known: Charsets
    now: Table | None

    def table(self) -> Table:
        names = self._names()
        unsigned = self._of(lambda kind: kind in _SIGNED_KINDS, self._bits())
        texts = self._of(
            lambda kind: kind in (_VARCHAR, _BLOB, _STRING, _VECTOR if self._is_mysql else _GEOMETRY),
            self._collations(_DEFAULT_CHARSET, _COLUMN_CHARSET),
        )
        labelled = self._of(lambda kind: kind in (_ENUM, _SET), self._collations(_LABEL_DEFAULT, _LABEL_CHARSET))
        keys = self._keys()
        labels = {_ENUM: self._labels(_ENUMS), _SET: self._labels(_SETS)}
        catalog = {column.name: column for column in self.now.columns} if self.now else {}
        columns = []
        for number, (kind, first, second) in enumerate(self.metas):
            charset = self._charset(names[number], {**texts, **labelled}.get(number, _BINARY))
            values = next(labels[kind]) if kind in labels else ()
            column = self._column(names[number], kind, first, second, charset)
            own = tuple(value.decode(python_charset(charset)) for value in values)
            column = replace(
                column, unsigned=bool(unsigned.get(number)) and kind != 13, labels=own, key=keys.get(number)
            )
            columns.append(_as_cataloged(column, catalog.get(column.name)))
        return Table(self.name, tuple(columns))

    @property
    def _is_mysql(self) -> bool:
        # Which columns MySQL hides, it tells always, and MariaDB never.
        return _VISIBILITY in self.optional

    def _names(self) -> list[str]:
        names, at, data = [], 0, self.optional[_COLUMN_NAME]
        while at < len(data):
            name, at = _text(data, at)
            names.append(name.decode())
        return names

    def _of(self, has: Any, values: Iterator[Any]) -> dict[int, Any]:
        """Return what is told one after the other of the columns of some types, by the columns' numbers."""
        return {number: next(values, None) for number, (kind, _, _) in enumerate(self.metas) if has(kind)}

    def _bits(self) -> Iterator[int]:
        for byte in self.optional.get(_SIGNEDNESS, b""):
            yield from (byte >> bit & 1 for bit in range(7, -1, -1))

    def _collations(self, default: int, each: int) -> Iterator[int]:
        if each in self.optional:
            yield from _numbers(self.optional[each])
            return
        numbers = _numbers(self.optional.get(default, bytes([_BINARY])))
        others = dict(zip(numbers[1::2], numbers[2::2], strict=True))
        for number in range(len(self.metas)):
            yield others.get(number, numbers[0])

    def _keys(self) -> dict[int, int]:
        if _KEY_PREFIXES in self.optional:
            columns = _numbers(self.optional[_KEY_PREFIXES])[::2]
        else:
            columns = _numbers(self.optional.get(_KEY, b""))
        return {column: place for place, column in enumerate(columns)}

    def _labels(self, kind: int) -> Iterator[list[bytes]]:
        data, at = self.optional.get(kind, b""), 0
        while at < len(data):
            count, at = lenenc(data, at)
            labels = []
            for _ in range(count):
                label, at = _text(data, at)
                labels.append(label)
            yield labels

    def _charset(self, column: str, collation: int) -> str:
        if collation == _BINARY:
            return ""
        if collation not in self.known:
            raise _unknown(self.name, column, f"of the unknown collation {collation}")
        return self.known[collation]

    def _column(self, name: str, kind: int, first: int, second: int, charset: str) -> TableColumn:
        if kind in _NUMBERS or kind in (10, 13):
            return TableColumn(name, _NUMBERS.get(kind) or _TIMES[kind])
        if kind in _TIMES:
            return TableColumn(name, _TIMES[kind], first)
        if kind == _DECIMAL:
            return TableColumn(name, "decimal", first, second)
        if kind == _BIT:
            return TableColumn(name, "bit", second * 8 + first)
        if kind in (_ENUM, _SET):
            return TableColumn(name, "enum" if kind == _ENUM else "set", charset=charset)
        if kind == _VARCHAR:
            return TableColumn(name, "varchar" if charset else "varbinary", first | second << 8, charset=charset)
        if kind == _STRING:
            return TableColumn(name, "char" if charset else "binary", second, charset=charset)
        if kind == _BLOB:
            return TableColumn(name, "text" if charset else "blob", (1 << 8 * first) - 1, charset=charset)
        if kind in _PLAIN:
            return TableColumn(name, _PLAIN[kind])
        if kind in _OLD_TIMES:
            raise _unknown(
                self.name, name, "a time in the format before MariaDB 10.1 and MySQL 5.6 (alter table … force)"
            )
        raise _unknown(self.name, name, "compressed" if kind in _COMPRESSED_TYPES else f"of the log's type {kind}")


def _as_cataloged(column: TableColumn, catalog: TableColumn | None) -> TableColumn:
    """Return a column with what only the catalog tells of it."""
    if catalog is None:
        return column
    sizes = {"uuid": 16, "inet6": 16, "inet4": 4}
    if column.type == "binary" and sizes.get(catalog.type) == column.length:
        return replace(column, type=catalog.type, length=0, blank=catalog.blank)
    return replace(column, blank=catalog.blank)


_PYTHON = {
    **{"latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "hebrew": "iso8859_8"},
    **{"greek": "iso8859_7", "ujis": "euc_jp", "sjis": "shift_jis", "cp932": "cp932", "eucjpms": "euc_jp"},
    **{"euckr": "euc_kr", "ucs2": "utf_16_be", "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be"},
    **{"utf8": "utf_8", "utf8mb3": "utf_8", "utf8mb4": "utf_8", "ascii": "ascii", "binary": "latin_1", "": "latin_1"},
    **{"cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850"},
    **{"cp852": "cp852", "cp866": "cp866", "koi8r": "koi8_r", "koi8u": "koi8_u", "gbk": "gbk", "gb2312": "gb2312"},
    **{"big5": "big5", "tis620": "tis_620", "gb18030": "gb18030"},
}


def python_charset(charset: str) -> str:
    """Return Python's name of a character set.

    Raises:
        SourceError: If it has none.
    """
    if charset not in _PYTHON:
        raise SourceError(
            f"character set {charset!r} can't be read", hint="alter table … convert to character set utf8mb4"
        )
    return _PYTHON[charset]


def in_selection(connection: Connection, selection: Selection) -> list[TableName]:
    """Return the tables that are there and selected."""
    rows = query(
        connection,
        "select table_schema, table_name from information_schema.tables where table_type in ('BASE TABLE', "
        "'SYSTEM VERSIONED') and table_schema not in ('mysql', 'information_schema', 'performance_schema', 'sys') "
        "order by 1, 2",
    )
    return [name for name in (TableName(*row) for row in rows) if name in selection]

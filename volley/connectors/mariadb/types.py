"""The servers' types in Arrow, as the catalog and as the binary log describe them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from volley.errors import SourceError

__all__ = ["TableColumn", "keeps_values", "quoted", "unfit"]

_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXTS = ("char", "varchar", "text", "enum", "set", "uuid", "inet4", "inet6", "json")
_BYTES = ("binary", "varbinary", "blob", "geometry")
_LABELLED = ("enum", "set")
_PLAIN: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    # A duration: it may be negative, and has up to 838 hours.
    "time": pa.int64(),
    "year": pa.int32(),
    "vector": pa.list_(pa.float32()),
}
_UNICODE = ("utf8mb4", "utf8mb3", "utf8", "utf16", "utf32", "utf16le")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    type: str  # the type's name, without its sizes: all sizes of text are "text", of blobs "blob"
    length: int = 0  # the most bytes of a text or binary; the digits of a decimal or of a second; the bits of a bit
    scale: int = 0  # of a decimal
    unsigned: bool = False
    charset: str = ""  # of a text
    labels: tuple[str, ...] = ()  # of an enum or set
    key: int | None = None  # its place in the primary key, from 0; None = it is not part of it
    blank: bool = False  # True if an inserted row that does not name the column has null there

    @property
    def integer_bytes(self) -> int:
        """The bytes of an integer; 0 = it is none."""
        return _INTEGERS.get(self.type, 0)

    @property
    def data_type(self) -> pa.DataType:
        """The column's Arrow type."""
        if size := self.integer_bytes:
            return _integer(size, self.unsigned)
        if self.type == "decimal":
            return pa.decimal128(self.length, self.scale) if self.length <= 38 else pa.string()
        if self.type == "bit":
            return pa.bool_() if self.length == 1 else pa.binary()
        if self.type in _TEXTS:
            return pa.string()
        return pa.binary() if self.type in _BYTES else _PLAIN[self.type]

    @property
    def is_text(self) -> bool:
        """True if its values are texts."""
        return self.type in _TEXTS

    @property
    def selected(self) -> str:
        """The SQL that selects what `loaded` in `fields.py` takes."""
        name = quoted(self.name)
        if self.type == "float":
            return f"{name} + 0e0"
        if self.type == "vector":
            return f"cast({name} as binary)"
        if self.type == "bit" and self.length == 1:
            return f"{name} + 0"
        if self.type in ("date", "datetime", "timestamp"):
            return f"cast({name} as char)"
        if self.type in _LABELLED or self.type in ("uuid", "inet4", "inet6"):
            return f"convert({name} using utf8mb4)"
        return name

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TableColumn:
        """Return the column of the values that ``asdict`` returns, read from JSON."""
        return cls(**{**values, "labels": tuple(values["labels"])})


def _integer(size: int, unsigned: bool) -> pa.DataType:
    if size == 8:
        return pa.decimal128(20, 0) if unsigned else pa.int64()
    return pa.int64() if size == 4 and unsigned else pa.int32()


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def keeps_values(old: TableColumn, new: TableColumn) -> bool:
    """Return True if a column that gets another type keeps all its values, as the lake has them."""
    if replace(old, key=None, blank=False) == replace(new, key=None, blank=False):
        return True
    if old.integer_bytes and new.integer_bytes:
        if old.unsigned == new.unsigned:
            return new.integer_bytes >= old.integer_bytes
        return old.unsigned and new.integer_bytes > old.integer_bytes
    if old.type == "decimal" == new.type:
        # Not another scale: an expression by which rows were written may round otherwise.
        return new.scale == old.scale and new.length >= old.length and not (new.unsigned and not old.unsigned)
    if old.type in _LABELLED and new.type == old.type:
        return new.labels[: len(old.labels)] == old.labels
    texts = ("char", "varchar", "text")
    if old.type in texts and new.type in texts:
        return new.length >= old.length and new.charset in (old.charset, *_UNICODE)
    if old.type in ("varbinary", "blob") and new.type in ("varbinary", "blob"):
        return new.length >= old.length
    if old.type == new.type and old.type in ("datetime", "timestamp", "time"):
        return new.length >= old.length
    return (old.type, new.type) == ("float", "double")


def unfit(column: TableColumn, value: str) -> SourceError:
    """Return the error for a value that Arrow and Iceberg don't have."""
    return SourceError(
        f"column {column.name!r} has {value!r}, which {column.data_type} does not have",
        hint='unrepresentable="null" writes null for dates with a zero year, month or day, and others that are none',
    )

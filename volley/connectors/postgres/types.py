"""PostgreSQL's types in Arrow: one table for the load and the stream, which both have texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.decimals import decimals_of
from volley.errors import SourceError

__all__ = ["TableColumn", "from_text"]

_BYTEA, _NUMERIC, _TIME = 17, 1700, 1083
_YEARS = r"^\d{4}-[^B]*$"
_TYPES: dict[int, pa.DataType] = {
    16: pa.bool_(),
    _BYTEA: pa.binary(),
    20: pa.int64(),
    21: pa.int32(),
    23: pa.int32(),
    25: pa.string(),
    700: pa.float32(),
    701: pa.float64(),
    1042: pa.string(),
    1043: pa.string(),
    1082: pa.date32(),
    _TIME: pa.time64("us"),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
"""By the type's oid, which is the same in every database. All others are strings: what PostgreSQL prints."""

_LIMITS = {1082: _YEARS, 1114: _YEARS, 1184: _YEARS, _TIME: r"^[01]\d|^2[0-3]", _NUMERIC: r"^[-\d.]+$"}
"""By the type's oid, the pattern of the texts of those values that Arrow and Iceberg have."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    number: int  # its number in the table, which a renamed column keeps
    type: int  # the oid of its type; of a domain, of the type below it
    modifier: int  # the type's modifier, such as a numeric's precision; -1 = none
    key: int | None  # its place in the replica identity, from 0; None = it is not part of it
    default: bool  # True if rows that are older than the column have a value in the catalog, and not in the table
    generated: str = ""  # "s" = generated and stored, "v" = generated when it is read, "" = neither
    declared: int = 0  # the oid of the type that the table names: `type`, or a domain over it; 0 = not known

    @property
    def data_type(self) -> pa.DataType:
        """The column's Arrow type."""
        if self.type == _NUMERIC:
            return self._decimal() or pa.string()
        return _TYPES.get(self.type, pa.string())

    @property
    def is_of_domain(self) -> bool:
        """True if its type is a domain."""
        return self.declared not in (0, self.type)

    @property
    def limits(self) -> str | None:
        """The pattern of the texts that have a counterpart; None = every value of the type has one."""
        return _LIMITS.get(self.type) if self.data_type != pa.string() else None

    @property
    def quoted(self) -> str:
        """The name as SQL has it."""
        return '"' + self.name.replace('"', '""') + '"'

    def _decimal(self) -> pa.DataType | None:
        """Return a numeric's decimal type; None without a precision, or if Iceberg has no such decimal."""
        precision, scale = (self.modifier - 4) >> 16 & 0xFFFF, (self.modifier - 4) & 0x7FF
        fits = self.modifier >= 4 and precision <= 38 and scale <= precision
        return pa.decimal128(precision, scale) if fits else None


def from_text(column: TableColumn, texts: pa.StringArray, nulls: bool) -> pa.Array:
    """Return a column's values from what PostgreSQL prints.

    Args:
        nulls: True: a value that Arrow does not have becomes null; False: it is an error.

    Raises:
        SourceError: If a value has no counterpart.
    """
    try:
        return _cast(column, texts)
    except pa.ArrowInvalid as error:
        if column.limits is None:
            raise SourceError(f"column {column.name!r} has a value that is no {column.data_type}: {error}") from error
    fits = pc.match_substring_regex(texts, column.limits)
    if not nulls and not pc.all(fits).as_py():
        raise unfit(column, texts.filter(pc.invert(fits))[0].as_py())
    return _cast(column, pc.if_else(fits, texts, None))


def unfit(column: TableColumn, value: str) -> SourceError:
    """Return the error for a value that Arrow and Iceberg don't have."""
    return SourceError(
        f"column {column.name!r} has {value!r}, which {column.data_type} does not have",
        hint='unrepresentable="null" writes null for infinity, for years before 1 or after 9999, for 24:00 and for the '
        "NaN of a numeric",
    )


def _cast(column: TableColumn, texts: pa.StringArray) -> pa.Array:
    if (parse := _PARSERS.get(column.type)) is not None:
        return parse(texts)
    data_type = column.data_type
    if pa.types.is_decimal(data_type):
        return decimals_of(texts, data_type)
    return texts if data_type == pa.string() else texts.cast(data_type)


def _parsed_bools(texts: pa.StringArray) -> pa.Array:
    return pc.equal(texts, "t")


def _parsed_times(texts: pa.StringArray) -> pa.Array:
    # Arrow parses no times alone.
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01"), texts, " ").cast(pa.timestamp("us"))
    return moments.cast(pa.time64("us"))


def _nibbles() -> np.ndarray[Any, Any]:
    table = np.zeros(256, np.uint8)
    for value, digit in enumerate(b"0123456789abcdef"):
        table[digit] = value
    return table


_NIBBLES = _nibbles()


def _parsed_bytes(texts: pa.StringArray) -> pa.Array:
    r"""Return the bytes of texts such as ``\x01ff``."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    digits = np.frombuffer(texts.buffers()[2] or b"", "u1")[offsets[0] : offsets[-1]]
    is_digit = np.ones(len(digits), np.bool_)
    filled = (offsets[:-1] - offsets[0])[lengths > 0]
    is_digit[filled] = is_digit[filled + 1] = False
    pairs = _NIBBLES[digits[is_digit]].reshape(-1, 2)
    data = pairs[:, 0] << 4 | pairs[:, 1]
    ends = np.concatenate([[0], np.cumsum(np.maximum(lengths - 2, 0) // 2)]).astype(np.int32)
    data = pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return pc.if_else(texts.is_valid(), data, None) if texts.null_count else data


_PARSERS: dict[int, Callable[[pa.StringArray], pa.Array]] = {
    16: _parsed_bools,
    _BYTEA: _parsed_bytes,
    _TIME: _parsed_times,
}

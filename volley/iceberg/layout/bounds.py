"""Serializes lower and upper bounds for Iceberg from values of Parquet footers, without Python's dates."""

from __future__ import annotations

import struct
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    PrimitiveType,
    StringType,
    UUIDType,
)
from pyiceberg.utils.decimal import bytes_required

__all__ = ["bounds", "uuid_bounds"]

_FORMS = {BooleanType: "<?", IntegerType: "<i", DateType: "<i", FloatType: "<f", DoubleType: "<d"}
_SURROGATES = range(0xD800, 0xE000)
_HALF = 1 << 64
_SIGN = 1 << 63

Bounds = tuple[bytes | None, bytes | None]


def bounds(data_type: PrimitiveType, low: Any, high: Any, length: int | None = None) -> Bounds:
    """Return the bounds of a column; None for a bound that does not exist.

    Args:
        data_type: The column's type.
        low: The lowest value in Parquet's form: an integer for dates, times and decimals, else bytes.
        high: The highest value.
        length: The number of characters or bytes to keep of text and bytes; None = all.

    Example:
        >>> bounds(StringType(), b"naive", b"north", 2)
        (b'na', b'np')
    """
    if isinstance(data_type, StringType):
        try:
            return _text_bounds(low.decode(), high.decode(), length)
        except UnicodeDecodeError:
            # A file of another writer, which an upsert copies.
            return None, None
    if isinstance(data_type, BinaryType):
        return low[:length], high if length is None or len(high) <= length else _above(high[:length])
    if isinstance(data_type, UUIDType):
        return uuid_bounds(low, high) or (None, None)
    return _serialized(data_type, low), _serialized(data_type, high)


def _serialized(data_type: PrimitiveType, value: Any) -> bytes:
    if isinstance(data_type, FixedType):
        return bytes(value)
    if isinstance(data_type, DecimalType):
        return int(value).to_bytes(bytes_required(value), "big", signed=True)
    return struct.pack(_FORMS.get(type(data_type), "<q"), value)


def _text_bounds(low: str, high: str, length: int | None) -> Bounds:
    if length is None or len(high) <= length:
        return low[:length].encode(), high.encode()
    above = _next_text(high[:length])
    return low[:length].encode(), None if above is None else above.encode()


def _next_text(text: str) -> str | None:
    """Return the first text after all texts that start with this one; None if there is none."""
    while text and text[-1] == "\U0010ffff":
        text = text[:-1]
    if not text:
        return None
    following = ord(text[-1]) + 1
    return text[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _above(value: bytes) -> bytes | None:
    """Return the first bytes after all bytes that start with these; None if there are none."""
    value = value.rstrip(b"\xff")
    return value[:-1] + bytes([value[-1] + 1]) if value else None


def uuid_bounds(low: bytes, high: bytes) -> tuple[bytes, bytes] | None:
    """Return bounds that are valid in both orders of UUIDs; None if there are none.

    Parquet, DuckDB and pyiceberg compare the bytes. Iceberg's Java library compares two signed 64-bit numbers
    (apache/iceberg#14216): given the byte bounds of random UUIDs, it would find none of them. If the first numbers
    have the same sign, both orders agree on them; widening them by one makes the second numbers irrelevant.

    Args:
        low: The lowest value in byte order.
        high: The highest value.
    """
    if low == high:
        return low, high
    first, last = int.from_bytes(low[:8], "big"), int.from_bytes(high[:8], "big")
    if first & _SIGN != last & _SIGN or first in (0, _SIGN) or last in (_SIGN - 1, _HALF - 1):
        return None
    return (first - 1).to_bytes(8, "big") + low[8:], (last + 1).to_bytes(8, "big") + high[8:]

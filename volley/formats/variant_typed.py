"""Values of variants in columns that have one type, which a shredded variant has; no value changes its own type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from volley.formats.variant import SHORT_TEXT
from volley.formats.variant_writer import DECIMALS, Value, encoded, unscaled

__all__ = ["decimal_of", "type_of", "typed", "values_of"]

# The number of each type, and how its values are stored.
_FIXED: dict[pa.DataType, tuple[int, str]] = {
    pa.int8(): (3, "<b"),
    pa.int16(): (4, "<h"),
    pa.int32(): (5, "<i"),
    pa.int64(): (6, "<q"),
    pa.float64(): (7, "<d"),
    pa.date32(): (11, "<i"),
    pa.timestamp("us", "UTC"): (12, "<q"),
    pa.timestamp("us"): (13, "<q"),
    pa.float32(): (14, "<f"),
    pa.time64("us"): (17, "<q"),
    pa.timestamp("ns", "UTC"): (18, "<q"),
    pa.timestamp("ns"): (19, "<q"),
}
_DIGITS = {8: 9, 9: 18, 10: 38}
_STORAGE = {"<i": pa.int32(), "<q": pa.int64()}
_BOOLEANS = {b"\x04": True, b"\x08": False}
_BYTES, _TEXT, _UUID = 15, 16, 20
_LONG_AT = 5
_BY_KIND = {
    **{kind: data_type for data_type, (kind, _) in _FIXED.items()},
    **{1: pa.bool_(), 2: pa.bool_(), _BYTES: pa.binary(), _TEXT: pa.string(), _UUID: pa.uuid()},
}


def type_of(value: bytes) -> pa.DataType | None:
    """Return the type of a column that has a plain value; None for null, and for objects and arrays."""
    if value[0] & 3 == SHORT_TEXT:
        return pa.string()
    if value[0] & 3:
        return None
    kind = value[0] >> 2
    if kind in _DIGITS:
        scale, digits = int.from_bytes(value[1:2]), _DIGITS[kind]
        return pa.decimal128(digits, scale) if scale <= digits else None
    return _BY_KIND.get(kind)


def values_of(array: pa.Array) -> list[Value]:
    """Return a column of plain values as values of variants with exactly its type; None where they are null."""
    data_type = array.type
    if pa.types.is_decimal(data_type):
        size, scale = _decimal_size(data_type), data_type.scale
        head = bytes([DECIMALS[size] << 2, scale])
        numbers = (None if value is None else unscaled(value, scale) for value in array.to_pylist())
        return [None if n is None else head + n.to_bytes(size, "little", signed=True) for n in numbers]
    if data_type not in _FIXED:
        return encoded(array, {})
    kind, form = _FIXED[data_type]
    stored = array.view(_STORAGE[form]) if pa.types.is_temporal(data_type) else array
    head = bytes([kind << 2])
    return [None if value is None else head + struct.pack(form, value) for value in stored.to_pylist()]


def typed(values: Sequence[Value], data_type: pa.DataType) -> pa.Array:
    """Return the values that have exactly a type as a column of this; the others are null there."""
    if data_type in _FIXED:
        kind, form = _FIXED[data_type]
        known = _each(values, lambda value: _fixed(value, kind, form))
        return (
            pa.array(known, _STORAGE[form]).view(data_type)
            if pa.types.is_temporal(data_type)
            else pa.array(known, data_type)
        )
    if pa.types.is_boolean(data_type):
        return pa.array(_each(values, _BOOLEANS.get), data_type)
    if pa.types.is_decimal(data_type):
        return pa.array(_each(values, lambda value: _decimal(value, data_type)), data_type)
    if pa.types.is_string(data_type):
        return pa.array(_each(values, _text), data_type)
    if pa.types.is_binary(data_type):
        return pa.array(_each(values, lambda value: _long(value, _BYTES)), data_type)
    if data_type == pa.uuid():
        known = _each(values, lambda value: value[1:] if value[0] == _UUID << 2 and len(value) == 17 else None)
        return pa.ExtensionArray.from_storage(data_type, pa.array(known, data_type.storage_type))
    return pa.nulls(len(values), data_type)


def _each(values: Sequence[Value], read: Callable[[bytes], Any]) -> list[Any]:
    return [read(value) if value else None for value in values]


def _fixed(value: bytes, kind: int, form: str) -> Any:
    if value[0] != kind << 2 or len(value) != 1 + struct.calcsize(form):
        return None
    return struct.unpack_from(form, value, 1)[0]


def _decimal_size(data_type: pa.DataType) -> int:
    return 4 if data_type.precision <= 9 else 8 if data_type.precision <= 18 else 16


def _decimal(value: bytes, data_type: pa.DataType) -> Decimal | None:
    size = _decimal_size(data_type)
    if value[:2] != bytes([DECIMALS[size] << 2, data_type.scale]) or len(value) != 2 + size:
        return None
    number = decimal_of(int.from_bytes(value[2:], "little", signed=True), data_type.scale)
    return number if len(number.as_tuple().digits) <= data_type.precision else None


def decimal_of(number: int, scale: int) -> Decimal:
    """Return a number divided by ten to the power of a scale, with all its digits."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _text(value: bytes) -> str | None:
    is_short = value[0] & 3 == SHORT_TEXT and len(value) == 1 + (value[0] >> 2)
    data = value[1:] if is_short else _long(value, _TEXT)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _long(value: bytes, kind: int) -> bytes | None:
    data = value[_LONG_AT:]
    is_whole = value[0] == kind << 2 and len(data) == int.from_bytes(value[1:_LONG_AT], "little")
    return data if is_whole else None

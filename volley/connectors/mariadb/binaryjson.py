"""Values of MySQL's JSON columns: from the binary form in its log to the text that the server prints.

The form is that of MySQL's ``sql-common/json_binary.h``: a byte for the type, then the value; objects and arrays have a
table of offsets, from their own begin, by which their keys and values are found.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal

from volley.errors import SourceError

__all__ = ["decimal_groups", "json_text"]

_OBJECTS, _ARRAYS, _LITERAL = (0, 1), (2, 3), 4
_SMALL = (0, 2)
_STRING, _OPAQUE = 12, 15
_NUMBERS: dict[int, tuple[str, int]] = {5: ("<h", 2), 6: ("<H", 2), 7: ("<i", 4), 8: ("<I", 4), 9: ("<q", 8)}
_NUMBERS |= {10: ("<Q", 8), 11: ("<d", 8)}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_DECIMAL, _DATE, _TIME = 246, 10, 11
_MOMENTS = (7, 12)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_PLACES = 15


def json_text(data: bytes) -> str:
    """Return the text of a value as MySQL prints it.

    Raises:
        SourceError: If it is damaged, or of a type that is not known.

    Example:
        >>> json_text(bytes.fromhex("0001000c000b0001000501 0061".replace(" ", "")))
        '{"a": 1}'
    """
    if not data:
        # What an update in place has left of a value that was none, which prints as null.
        return "null"
    try:
        return _value(data[0], data, 1)
    except (IndexError, struct.error, KeyError, UnicodeDecodeError) as error:
        raise SourceError(f"a JSON value in the log can't be read: {error!r}") from error


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in _OBJECTS or kind in _ARRAYS:
        return _container(kind, data, at)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[kind][0], data, at)
        return _double(number) if kind == 11 else str(number)
    if kind == _STRING:
        size, at = _length(data, at)
        return json.dumps(data[at : at + size].decode(), ensure_ascii=False)
    if kind == _OPAQUE:
        size, begin = _length(data, at + 1)
        return _opaque(data[at], data[begin : begin + size])
    raise KeyError(f"type {kind}")


def _container(kind: int, data: bytes, at: int) -> str:
    width, form = (2, "<H") if kind in _SMALL else (4, "<I")
    number: Callable[[int], int] = lambda place: int(struct.unpack_from(form, data, place)[0])  # noqa: E731
    count = number(at)
    entries = at + 2 * width
    keys = []
    if kind in _OBJECTS:
        for place in range(entries, entries + count * (width + 2), width + 2):
            (size,) = struct.unpack_from("<H", data, place + width)
            begin = at + number(place)
            keys.append(json.dumps(data[begin : begin + size].decode(), ensure_ascii=False))
        entries += count * (width + 2)
    values = []
    for place in range(entries, entries + count * (width + 1), width + 1):
        own = data[place]
        # Small values stand in the table, in place of their offsets.
        is_inline = own in (_LITERAL, 5, 6) or (width == 4 and own in (7, 8))
        values.append(_value(own, data, place + 1 if is_inline else at + number(place + 1)))
    if kind in _OBJECTS:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length, seven bits a byte, and where it ends."""
    size, shift = 0, 0
    while True:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return size, at


def _double(number: float) -> str:
    """Return the shortest digits, with an exponent where more than 15 places would be needed."""
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    # The places before the point.
    point = len(digits) + exponent if text != "0" else 1
    prefix = "-" if sign else ""
    if point > _PLACES or point <= -_PLACES:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{prefix}{mantissa}e{point - 1}"
    if point <= 0:
        return f"{prefix}0.{'0' * -point}{text}"
    return f"{prefix}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"


def _opaque(kind: int, data: bytes) -> str:
    """Return a value of an SQL type that JSON has not."""
    if kind == _DECIMAL:
        return _decimal(data)
    if kind in (_DATE, _TIME, *_MOMENTS):
        (packed,) = struct.unpack("<q", data)
        return f'"{_time(packed) if kind == _TIME else _moment(kind, packed)}"'
    return json.dumps(f"base64:type{kind}:{b64encode(data).decode()}")


def _moment(kind: int, packed: int) -> str:
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    months, day, time = whole >> 22, whole >> 17 & 31, whole & 0x1FFFF
    date = f"{months // 13:04}-{months % 13:02}-{day:02}"
    return date if kind == _DATE else f"{date} {time >> 12:02}:{time >> 6 & 63:02}:{time & 63:02}.{fraction:06}"


def _time(packed: int) -> str:
    size = abs(packed)
    whole, fraction = size >> 24, size & 0xFFFFFF
    sign = "-" if packed < 0 else ""
    return f"{sign}{whole >> 12 & 0x3FF:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{fraction:06}"


def _decimal(data: bytes) -> str:
    """Return a decimal: precision, scale, then groups of nine digits in big-endian bytes, negative ones inverted."""
    precision, scale, *value = data
    is_negative = value[0] < 0x80
    value[0] ^= 0x80
    if is_negative:
        value = [byte ^ 0xFF for byte in value]
    digits, at = "", 0
    for size, count in decimal_groups(precision, scale):
        digits += str(int.from_bytes(bytes(value[at : at + size]), "big")).rjust(count, "0")
        at += size
    whole = digits[: precision - scale].lstrip("0") or "0"
    return ("-" if is_negative else "") + whole + (f".{digits[precision - scale :]}" if scale else "")


def decimal_groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Return the bytes and digits of each group of a decimal."""
    whole = precision - scale
    first, last = whole % 9, scale % 9
    full = [(4, 9)] * (whole // 9) + [(4, 9)] * (scale // 9)
    return ([(_DIGIT_BYTES[first], first)] if first else []) + full + ([(_DIGIT_BYTES[last], last)] if last else [])

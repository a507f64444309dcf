"""Reads variants, the binary values of Parquet that have a type each, as JSON text.

The encoding: https://github.com/apache/parquet-format/blob/master/VariantEncoding.md. The text is that of Spark's
``to_json``: times and dates, bytes (as base64) and UUIDs are texts, and so are numbers that JSON lacks, as ``"NaN"``.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

import numpy as np

__all__ = [
    *("ARRAY", "NULL", "OBJECT", "SHORT_TEXT", "VERSION"),
    *("Malformed", "fields_of", "items_of", "json_text", "names_in"),
]

PRIMITIVE, SHORT_TEXT, OBJECT, ARRAY = range(4)
"""The basic types, in the lowest two bits of a value."""

VERSION = 1
"""The version of the encoding, in the lowest four bits of the metadata."""

NULL = b"\0"
"""The value that is null."""

_KNOWN_METADATA = 4096
_LARGE_OBJECT, _LARGE_ARRAY = 16, 4
_US, _NS = 1_000_000, 1_000_000_000


Data = TypeVar("Data", bytes, memoryview)


class Malformed(Exception):
    """Raised for bytes that are not a variant, or end in the middle of one."""


def json_text(metadata: bytes, value: bytes) -> str:
    """Return a variant as JSON text without spaces; fields of objects are in the order of their names.

    Args:
        metadata: The names of fields.
        value: The value, to whose fields these names belong.

    Raises:
        Malformed: If they are damaged.

    Example:
        >>> json_text(bytes([1, 1, 0, 1]) + b"a", bytes([2, 1, 0, 0, 2, 12, 5]))
        '{"a":5}'
    """
    try:
        return _text(names_in(metadata), memoryview(value))
    except (IndexError, ValueError, struct.error, OverflowError) as error:
        raise Malformed(f"a variant of {len(value)} bytes is damaged: {error}") from error
    except RecursionError as error:
        raise Malformed("a variant is nested too deeply") from error


@lru_cache(_KNOWN_METADATA)
def names_in(metadata: bytes) -> tuple[str, ...]:
    """Return the names of fields, by their numbers; raise Malformed for damaged metadata."""
    try:
        if metadata[0] & 15 != VERSION:
            raise Malformed(f"a variant has version {metadata[0] & 15} of the encoding")
        size = 1 + (metadata[0] >> 6)
        count = _number(metadata, 1, size)
        offsets = [_number(metadata, 1 + size * (1 + number), size) for number in range(count + 1)]
        texts = metadata[1 + size * (2 + count) :]
        return tuple(_slice(texts, start, end).decode() for start, end in pairwise(offsets))
    except (IndexError, ValueError) as error:
        raise Malformed(f"the names of a variant's fields are damaged: {error}") from error


def fields_of(metadata: bytes, value: bytes) -> dict[str, bytes]:
    """Return the values of an object, by name; raise Malformed if it is none."""
    try:
        if value[0] & 3 != OBJECT:
            raise Malformed("a variant with shredded fields has a value beside them that is no object")
        return {name: bytes(inner) for name, inner in _fields(names_in(metadata), memoryview(value))}
    except (IndexError, ValueError) as error:
        raise Malformed(f"a variant of {len(value)} bytes is damaged: {error}") from error


def items_of(value: bytes) -> list[bytes]:
    """Return the items of an array; raise Malformed if it is damaged."""
    try:
        return [bytes(item) for item in _items(memoryview(value))]
    except (IndexError, ValueError) as error:
        raise Malformed(f"a variant of {len(value)} bytes is damaged: {error}") from error


def _text(names: Sequence[str], value: memoryview) -> str:
    kind, head = value[0] & 3, value[0] >> 2
    if kind == SHORT_TEXT:
        return _quoted(_slice(value, 1, 1 + head))
    if kind == OBJECT:
        fields = (f"{_json(name)}:{_text(names, inner)}" for name, inner in _fields(names, value))
        return f"{{{','.join(fields)}}}"
    if kind == ARRAY:
        return f"[{','.join(_text(names, item) for item in _items(value))}]"
    if head >= len(_PRIMITIVES):
        raise Malformed(f"a variant has the type {head}, which is unknown")
    return _PRIMITIVES[head](value[1:])


def _fields(names: Sequence[str], value: memoryview) -> Iterable[tuple[str, memoryview]]:
    head = value[0] >> 2
    size, id_size = 1 + (head & 3), 1 + (head >> 2 & 3)
    count, at = _count(value, head & _LARGE_OBJECT)
    ids = [_number(value, at + id_size * number, id_size) for number in range(count)]
    starts, inner = _inner(value, at + id_size * count, count, size)
    return [(names[number], field) for number, field in zip(ids, _parts(inner, starts), strict=True)]


def _items(value: memoryview) -> Iterable[memoryview]:
    head = value[0] >> 2
    count, at = _count(value, head & _LARGE_ARRAY)
    starts, inner = _inner(value, at, count, 1 + (head & 3))
    return _parts(inner, starts)


def _count(value: memoryview, is_large: int) -> tuple[int, int]:
    size = 4 if is_large else 1
    return _number(value, 1, size), 1 + size


def _inner(value: memoryview, at: int, count: int, size: int) -> tuple[list[int], memoryview]:
    """Return where the values of an object or array start, and the bytes that have them."""
    offsets = [_number(value, at + size * number, size) for number in range(count + 1)]
    start = at + size * (count + 1)
    return offsets[:-1], _slice(value, start, start + offsets[-1])


def _parts(inner: memoryview, starts: Sequence[int]) -> list[memoryview]:
    """Return the values that start at some bytes, in any order: a value ends by itself."""
    parts = [_slice(inner, start, start + _size(inner[start:])) for start in starts]
    # Values that share bytes could be many times as large as these.
    if sum(map(len, parts)) > len(inner):
        raise Malformed("values in a variant overlap")
    return parts


def _size(value: memoryview) -> int:
    kind, head = value[0] & 3, value[0] >> 2
    if kind == SHORT_TEXT:
        return 1 + head
    if kind == OBJECT:
        count, at = _count(value, head & _LARGE_OBJECT)
        size, at = 1 + (head & 3), at + count * (1 + (head >> 2 & 3))
    elif kind == ARRAY:
        count, at = _count(value, head & _LARGE_ARRAY)
        size = 1 + (head & 3)
    else:
        return _primitive_size(value, head)
    return at + size * (count + 1) + _number(value, at + size * count, size)


def _primitive_size(value: memoryview, kind: int) -> int:
    if kind >= len(_SIZES):
        raise Malformed(f"a variant has the type {kind}, which is unknown")
    return 5 + _number(value, 1, 4) if kind in (_BYTES, _LONG_TEXT) else 1 + _SIZES[kind]


def _number(data: Data, at: int, size: int) -> int:
    return int.from_bytes(_slice(data, at, at + size), "little")


def _slice(data: Data, start: int, end: int) -> Data:
    if not start <= end <= len(data):
        raise Malformed(f"a part of a variant ends at byte {end} of {len(data)}")
    return data[start:end]


def _signed(data: memoryview, size: int) -> int:
    return int.from_bytes(_slice(data, 0, size), "little", signed=True)


def _integer(size: int) -> Callable[[memoryview], str]:
    return lambda data: str(_signed(data, size))


def _decimal(size: int) -> Callable[[memoryview], str]:
    def text(data: memoryview) -> str:
        scale, unscaled = data[0], _signed(data[1:], size)
        digits = str(abs(unscaled)).zfill(scale + 1)
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        return f"{'-' * (unscaled < 0)}{whole}{'.' * bool(fraction)}{fraction}"

    return text


def _real(value: float, shown: str) -> str:
    if math.isfinite(value):
        return shown
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _double(data: memoryview) -> str:
    (value,) = struct.unpack_from("<d", data)
    return _real(value, repr(value))


def _float(data: memoryview) -> str:
    (value,) = struct.unpack_from("<f", data)
    return _real(value, str(np.float32(value)))


def _date(data: memoryview) -> str:
    return f'"{np.datetime64(_signed(data, 4), "D")}"'


def _instant(per_second: int, zone: str) -> Callable[[memoryview], str]:
    """Return the text of a time since 1970; that of a second with more digits if it has a fraction."""

    def text(data: memoryview) -> str:
        seconds, fraction = divmod(_signed(data, 8), per_second)
        shown = str(np.datetime64(seconds, "s")).replace("T", " ")
        return f'"{shown}{_fraction(fraction, per_second)}{zone}"'

    return text


def _time(data: memoryview) -> str:
    seconds, fraction = divmod(_signed(data, 8), _US)
    return f'"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(fraction, _US)}"'


def _fraction(fraction: int, per_second: int) -> str:
    digits = str(per_second + fraction)[1:].rstrip("0")
    return f".{digits}" if digits else ""


def _long(data: memoryview) -> memoryview:
    return _slice(data, 4, 4 + _number(data, 0, 4))


def _quoted(data: bytes | memoryview) -> str:
    return _json(bytes(data).decode())


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_UTC = "+00:00"
_PRIMITIVES: Sequence[Callable[[memoryview], str]] = (
    lambda _: "null",
    lambda _: "true",
    lambda _: "false",
    *map(_integer, (1, 2, 4, 8)),
    _double,
    *map(_decimal, (4, 8, 16)),
    _date,
    _instant(_US, _UTC),
    _instant(_US, ""),
    _float,
    lambda data: f'"{b64encode(_long(data)).decode()}"',
    lambda data: _quoted(_long(data)),
    _time,
    _instant(_NS, _UTC),
    _instant(_NS, ""),
    lambda data: f'"{UUID(bytes=bytes(_slice(data, 0, 16)))}"',
)
# In bytes, by type; bytes and long texts begin with their own.
_SIZES = (0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 0, 0, 8, 8, 8, 16)
_BYTES, _LONG_TEXT = 15, 16

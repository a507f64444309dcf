"""Thrift's compact protocol, as far as Parquet's footers, page headers and page indexes need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    Item: TypeAlias = "type[int] | type[bytes] | type[bool] | type[memoryview] | Fields"
    Fields: TypeAlias = Mapping[int, "type[int] | type[bytes] | Fields | list[Item]"]

__all__ = ["I8", "I32", "I64", "Malformed", "read_struct", "write_struct"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = 1, 2, 3, 7, 8, 9, 10, 11, 12, 13
_INTEGERS = (4, 5, 6)
# In a list, a bool takes a byte.
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
_LONG_LIST = 15
_LONGEST_INTEGER = 63


class Malformed(Exception):
    """Raised for bytes that are not the compact protocol, or end in the middle of a value."""


def read_struct(data: bytes | memoryview, at: int, fields: Fields) -> tuple[dict[int, Any], int]:
    """Read a struct; fields that are not in `fields`, or have another type, are skipped.

    Args:
        data: The bytes.
        fields: The numbers and types of the fields to keep: ``int``, ``bytes``, the fields of a struct; or in a list,
            the type of the items of a list, which may be ``bool`` too, or ``memoryview`` for structs as bytes.

    Returns:
        The values of the fields that are set, and where the struct ends.

    Raises:
        Malformed: If there is no complete struct.

    Example:
        >>> read_struct(bytes([0x15, 0x54, 0x00]), 0, {1: int})
        ({1: 42}, 3)
    """
    try:
        return _struct(data, at, fields)
    except (IndexError, RecursionError) as error:
        raise Malformed(f"a struct at byte {at} does not end") from error


def _struct(data: bytes | memoryview, at: int, fields: Fields) -> tuple[dict[int, Any], int]:
    # Footers have hundreds of thousands of integers and short texts: read them inline, without a call.
    values: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        wire_type = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        expected = fields.get(number)
        if wire_type in _INTEGERS or wire_type == _BINARY:
            value = data[at]
            at += 1
            if value > 127:
                value, at = _varint(data, at - 1)
            if wire_type == _BINARY:
                start, at = at, _within(data, at + value)
                if expected is bytes:
                    values[number] = bytes(data[start:at])
            elif expected is int:
                values[number] = (value >> 1) ^ -(value & 1)
        elif wire_type == _STRUCT:
            inner, at = _struct(data, at, expected if isinstance(expected, Mapping) else {})
            if isinstance(expected, Mapping):
                values[number] = inner
        elif wire_type == _LIST and isinstance(expected, list):
            values[number], at = _items(data, at, expected[0])
        elif wire_type > _FALSE:
            at = _end(data, at, wire_type)
    return values, at + 1


def _items(data: bytes | memoryview, at: int, expected: Item) -> tuple[list[Any], int]:
    size, wire_type, at = _list_head(data, at)
    values = []
    for _ in range(size):
        value, at = _item(data, at, wire_type, expected)
        values.append(value)
    return values, at


def _item(data: bytes | memoryview, at: int, wire_type: int, expected: Item) -> tuple[Any, int]:
    if wire_type == _STRUCT and isinstance(expected, Mapping):
        return _struct(data, at, expected)
    if wire_type == _STRUCT and expected is memoryview:
        end = _struct(data, at, {})[1]
        return bytes(data[at:end]), end
    if wire_type in _INTEGERS and expected is int:
        return _integer(data, at)
    if wire_type in (_TRUE, _FALSE) and expected is bool:
        return data[at] == _TRUE, at + 1
    if wire_type == _BINARY and expected is bytes:
        size, at = _varint(data, at)
        return bytes(data[at : at + size]), _within(data, at + size)
    raise Malformed(f"the list at byte {at} has items of the type {wire_type}")


def _list_head(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    head = data[at]
    size, at = _varint(data, at + 1) if head >> 4 == _LONG_LIST else (head >> 4, at + 1)
    return size, head & 15, at


def _end(data: bytes | memoryview, at: int, wire_type: int) -> int:
    """Return where a value ends: an item of a list, or the value of a field."""
    if wire_type in _INTEGERS:
        return _varint(data, at)[1]
    if wire_type == _BINARY:
        size, at = _varint(data, at)
        return _within(data, at + size)
    if wire_type == _STRUCT:
        return _struct(data, at, {})[1]
    if wire_type in (_LIST, _SET):
        size, inner, at = _list_head(data, at)
        return _end_of_items(data, at, (inner,), size)
    if wire_type == _MAP:
        size, at = _varint(data, at)
        return _end_of_items(data, at + 1, (data[at] >> 4, data[at] & 15), size) if size else at
    if wire_type not in _SIZES:
        raise Malformed(f"the value at byte {at} has the unknown type {wire_type}")
    return _within(data, at + _SIZES[wire_type])


def _end_of_items(data: bytes | memoryview, at: int, wire_types: tuple[int, ...], size: int) -> int:
    for _ in range(size):
        for wire_type in wire_types:
            at = _end(data, at, wire_type)
    return at


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > _LONGEST_INTEGER:
            raise Malformed(f"the integer at byte {at} is too long")


def _integer(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _within(data: bytes | memoryview, end: int) -> int:
    if end > len(data):
        raise Malformed(f"a value ends at byte {end} of {len(data)}")
    return end


I8, I32, I64 = 3, 5, 6
"""The types of integers that are written."""

_MOST_BEFORE = 15


def write_struct(fields: Mapping[int, Any]) -> bytes:
    """Return a struct.

    Args:
        fields: The values, by ascending field numbers: a pair of `I8`, `I32` or `I64` and an integer, bytes, a mapping
            for a struct; or a list of one of these. Bytes in a list whose first item is a mapping are whole structs.

    Example:
        >>> write_struct({1: (I32, 42)}).hex()
        '155400'
    """
    written, before = bytearray(), 0
    for number, value in fields.items():
        is_near = number - before <= _MOST_BEFORE
        written.append((number - before) << 4 | _wire_type(value) if is_near else _wire_type(value))
        written += (b"" if is_near else _zigzag(number)) + _written(value)
        before = number
    return bytes(written) + b"\0"


def _wire_type(value: Any) -> int:
    if isinstance(value, tuple):
        return int(value[0])
    return _BINARY if isinstance(value, bytes) else _LIST if isinstance(value, list) else _STRUCT


def _written(value: Any) -> bytes:
    if isinstance(value, tuple):
        return bytes([value[1]]) if value[0] == I8 else _zigzag(value[1])
    if isinstance(value, bytes):
        return _unsigned(len(value)) + value
    if isinstance(value, list):
        wire_type = _wire_type(value[0])
        head = bytes([_LONG_LIST << 4 | wire_type]) + _unsigned(len(value))
        return head + b"".join(
            item if wire_type == _STRUCT and isinstance(item, bytes) else _written(item) for item in value
        )
    return write_struct(value)


def _zigzag(value: int) -> bytes:
    return _unsigned(value << 1 ^ value >> _LONGEST_INTEGER)


def _unsigned(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])

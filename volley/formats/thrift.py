"""Decodes Thrift's compact protocol, as far as Parquet's footers and page headers need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    Fields: TypeAlias = Mapping[int, "type[int] | type[bytes] | Fields | list[Fields]"]

__all__ = ["Malformed", "read_struct"]

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
        at: Where the struct starts in them.
        fields: The numbers and types of the fields to keep: ``int``, ``bytes``, the fields of a struct, or in a list
            those of a list of structs.

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
            values[number], at = _structs(data, at, expected[0])
        elif wire_type > _FALSE:
            at = _end(data, at, wire_type)
    return values, at + 1


def _structs(data: bytes | memoryview, at: int, fields: Fields) -> tuple[list[dict[int, Any]], int]:
    size, wire_type, at = _list_head(data, at)
    if wire_type != _STRUCT:
        raise Malformed(f"the list at byte {at} is not one of structs")
    values = []
    for _ in range(size):
        value, at = _struct(data, at, fields)
        values.append(value)
    return values, at


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

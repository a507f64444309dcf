"""Thrift's compact protocol → plain values: as much of it as Parquet's footers and page headers need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    Fields: TypeAlias = Mapping[int, "type[int] | type[bytes] | Fields | list[Fields]"]

__all__ = ["Malformed", "read_struct"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = 1, 2, 3, 7, 8, 9, 10, 11, 12, 13
_INTEGERS = (4, 5, 6)
# A bool in a list is a byte.
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
_LONG_LIST = 15
_LONGEST_INTEGER = 63


class Malformed(Exception):
    """The bytes are not the compact protocol, or end in the middle of a value."""


def read_struct(data: bytes | memoryview, at: int, fields: Fields) -> tuple[dict[int, Any], int]:
    """Read a struct; fields that are not asked for, or are of another type, are skipped.

    Args:
        data: The bytes.
        at: Where in them the struct begins.
        fields: The numbers and types of the fields to keep: ``int``, ``bytes``, the fields of a struct, or in a list
            those of a list of structs.

    Returns:
        The values of these fields as far as they are set, and where the struct ends.

    Raises:
        Malformed: If there is no whole struct.

    Example:
        >>> read_struct(bytes([0x15, 0x54, 0x00]), 0, {1: int})
        ({1: 42}, 3)
    """
    try:
        return _struct(data, at, fields)
    except (IndexError, RecursionError) as error:
        raise Malformed(f"a struct at byte {at} does not end") from error


def _struct(data: bytes | memoryview, at: int, fields: Fields) -> tuple[dict[int, Any], int]:
    # Footers have hundreds of thousands of integers and short texts: these are read here, without a call.
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        asked = fields.get(number)
        if kind in _INTEGERS or kind == _BINARY:
            value = data[at]
            at += 1
            if value > 127:
                value, at = _varint(data, at - 1)
            if kind == _BINARY:
                start, at = at, _within(data, at + value)
                if asked is bytes:
                    found[number] = bytes(data[start:at])
            elif asked is int:
                found[number] = (value >> 1) ^ -(value & 1)
        elif kind == _STRUCT:
            inner, at = _struct(data, at, asked if isinstance(asked, Mapping) else {})
            if isinstance(asked, Mapping):
                found[number] = inner
        elif kind == _LIST and isinstance(asked, list):
            found[number], at = _structs(data, at, asked[0])
        elif kind > _FALSE:
            at = _behind(data, at, kind)
    return found, at + 1


def _structs(data: bytes | memoryview, at: int, fields: Fields) -> tuple[list[dict[int, Any]], int]:
    size, kind, at = _list_head(data, at)
    if kind != _STRUCT:
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


def _behind(data: bytes | memoryview, at: int, kind: int) -> int:
    """Where a value ends that stands by itself: as an item, or in a field that has it."""
    if kind in _INTEGERS:
        return _varint(data, at)[1]
    if kind == _BINARY:
        size, at = _varint(data, at)
        return _within(data, at + size)
    if kind == _STRUCT:
        return _struct(data, at, {})[1]
    if kind in (_LIST, _SET):
        size, inner, at = _list_head(data, at)
        return _behind_items(data, at, (inner,), size)
    if kind == _MAP:
        size, at = _varint(data, at)
        return _behind_items(data, at + 1, (data[at] >> 4, data[at] & 15), size) if size else at
    if kind not in _SIZES:
        raise Malformed(f"the value at byte {at} has the unknown type {kind}")
    return _within(data, at + _SIZES[kind])


def _behind_items(data: bytes | memoryview, at: int, kinds: tuple[int, ...], size: int) -> int:
    for _ in range(size):
        for kind in kinds:
            at = _behind(data, at, kind)
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

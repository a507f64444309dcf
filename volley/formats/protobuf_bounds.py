"""Bounds what a Protobuf message takes in memory before it is parsed: by its length, or else by a walk.

Two bytes make an element with all its columns. Most messages can't take much, whatever their bytes are; the elements
of all others are counted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from volley.errors import SourceError
from volley.formats.input_file import LARGEST_VALUE, megabytes

__all__ = ["Bounds"]

# The most bytes that an array takes for a value, besides those of a text.
_VALUE = 16
# What a part of a Struct takes, with its text.
_JSON_PART = 400
_SHORTEST = 2
_LONGEST_NUMBER = 10
_DEEPEST = 100
_FIXED = {1: 8, 5: 4}
_VARINT, _BYTES, _GROUP, _END = 0, 2, 3, 4
_MESSAGES = (10, 11)
_TEXTS = (9, 12)
_ENUM = 14


class _Type:
    """A message: what one without elements takes in memory.

    Attributes:
        values: What a value of a field takes which is no message, by the field's number.
        item: The most that an item of a list of such values takes, of which a byte makes one; 0 = it has no list.

    Args:
        message: Its descriptor.
        types: The types made so far, by full name: one may contain itself.
    """

    def __init__(self, message: Any, types: dict[str, _Type]) -> None:
        types[message.full_name] = self
        self.size = _JSON_PART if message.file.name == "google/protobuf/struct.proto" else _VALUE
        self.inner: dict[int, _Type] = {}
        self.elements: list[_Type] = []
        self.values: dict[int, int] = {}
        self.item = 0
        self.texts = {field.number for field in message.fields if field.type in _TEXTS}
        for field in message.fields:
            if field.type in _MESSAGES:
                inner = self.inner[field.number] = types.get(field.message_type.full_name) or _Type(
                    field.message_type, types
                )
                self.elements += [inner] if field.is_repeated else []
                self.size += _VALUE if field.is_repeated else inner.size
            else:
                value = _VALUE + (max(map(len, field.enum_type.values_by_name)) if field.type == _ENUM else 0)
                self.values[field.number] = value
                self.size += _VALUE if field.is_repeated else value
                self.item = max(self.item, value if field.is_repeated else 0)


class Bounds:
    """What messages of a type can take in memory.

    Args:
        message: Its descriptor; it has been shown to have columns.
    """

    def __init__(self, message: Any) -> None:
        types: dict[str, _Type] = {}
        self._root = _Type(message, types)
        # Of a field that is not repeated, the parser makes one message of several.
        elements = [inner.size / _SHORTEST for kind in types.values() for inner in kind.elements]
        # A text takes its own bytes too.
        self._growth = 1 + max([*(kind.item for kind in types.values()), *elements])

    def most(self, count: int, length: int) -> float:
        """Return the most that messages take together.

        Args:
            length: The number of their bytes.
        """
        return self._root.size * count + self._growth * length

    def size(self, data: bytes) -> float:
        """Return the most that a message takes; if its length does not say that it is little, by its elements.

        Raises:
            SourceError: If it takes more than `LARGEST_VALUE`.
        """
        most = self.most(1, len(data))
        return most if most <= LARGEST_VALUE else _Walk(data, self._root).size


def _value(kind: _Type | None, number: int) -> int:
    """Return what a value of a field takes, in a message of a known type or another."""
    return _VALUE if kind is None else kind.values.get(number, _VALUE)


class _Walk:
    """Passes over the fields of a message up to where it is damaged, which its parser then tells."""

    def __init__(self, data: bytes, root: _Type) -> None:
        self._data = data
        self.size = root.size
        with suppress(IndexError):
            self._message(root, 0, len(data), 0)

    def _message(self, kind: _Type | None, at: int, end: int, depth: int) -> int:
        """Pass over a message; return where it ends, for a group behind its end."""
        if depth > _DEEPEST:
            raise IndexError
        while at < end:
            tag, at = self._number(at)
            number, wire = tag >> 3, tag & 7
            inner = kind.inner.get(number) if kind else None
            if wire == _VARINT:
                _, at = self._number(at)
                self._spend(_value(kind, number))
            elif wire in _FIXED:
                at += _FIXED[wire]
                self._spend(_value(kind, number))
            elif wire == _BYTES:
                at = self._bytes(kind, number, at, end, depth)
            elif wire == _GROUP:
                self._spend(inner.size if inner else 0)
                at = self._message(inner, at, end, depth + 1)
            elif wire == _END:
                return at
            else:
                raise IndexError
        return at

    def _bytes(self, kind: _Type | None, number: int, at: int, end: int, depth: int) -> int:
        length, at = self._number(at)
        if at + length > end:
            raise IndexError
        inner = kind.inner.get(number) if kind else None
        if inner is not None:
            self._spend(inner.size)
            self._message(inner, at, at + length, depth + 1)
        else:
            is_text = kind is None or number in kind.texts
            # What is no text may be numbers, one a byte.
            self._spend(length + _VALUE if is_text else _value(kind, number) * length)
        return at + length

    def _spend(self, size: int) -> None:
        self.size += size
        if self.size > LARGEST_VALUE:
            raise SourceError(
                f"a message takes more than {megabytes(LARGEST_VALUE)} in memory",
                hint="that is the limit of a value; mend what writes it",
            )

    def _number(self, at: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise IndexError

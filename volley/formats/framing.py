"""Takes off what stands in front of a message in Confluent's format: which schema it was written with."""

from __future__ import annotations

from collections.abc import Sequence

from volley.errors import SourceError
from volley.formats.schema_registry import BY_GUID, BY_ID

__all__ = ["HEADERS", "Keyed", "Tombstone", "framed", "head_of", "indexes_of"]

HEADERS = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""The headers that name the schema of a message's value or key."""

_LENGTHS = {BY_ID[0]: 5, BY_GUID[0]: 17}
_MOST_INDEXES = 100
_LONGEST_NUMBER = 5


class Tombstone(bytes):
    """The key of a message that has no value, in the place of the value."""


class Keyed(bytes):
    """The value of a message, with its key."""

    key: bytes | None

    @classmethod
    def of(cls, value: bytes, key: bytes | None) -> Keyed:
        """Return a value with its key."""
        keyed = cls(value)
        keyed.key = key
        return keyed


def framed(part: str, data: bytes | None, headers: Sequence[tuple[str, bytes]] | None) -> bytes | None:
    """Return a message's value or key with its schema in front, also if a header names it.

    Args:
        part: ``"value"`` or ``"key"``.

    Example:
        >>> framed("value", b"x", [("__value_schema_id", bytes([1]) + bytes(16))])[-2:]
        b'\\x00x'
    """
    if data is None or not headers:
        return data
    name = HEADERS[part]
    head = next((value for key, value in reversed(headers) if key == name), None)
    return data if head is None else head + data


def head_of(value: bytes) -> bytes:
    """Return the first bytes of a message, which name its schema.

    Raises:
        SourceError: If it does not begin with 0 and an id, or 1 and a GUID.

    Example:
        >>> head_of(bytes([0, 0, 0, 0, 7]) + b"rest")
        b'\\x00\\x00\\x00\\x00\\x07'
    """
    length = _LENGTHS.get(value[0], 0) if value else 0
    if not 0 < length <= len(value):
        raise SourceError("not in Confluent's format: it does not begin with 0 and a schema's id, or 1 and a GUID")
    return value[:length]


def indexes_of(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return where a Protobuf message stands in its file, from outside to inside, and where it begins.

    Raises:
        SourceError: If the numbers are cut, or too many.

    Example:
        >>> indexes_of(bytes.fromhex("060402000805"), 0)
        ((2, 1, 0), 4)
    """
    count, at = _number(value, start)
    if not 0 <= count <= _MOST_INDEXES:
        raise SourceError(f"not in Confluent's format: it has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _number(value, at)
        indexes.append(index)
    return tuple(indexes) or (0,), at


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Read a number: seven bits a byte, the lowest ones first; its sign is the lowest bit."""
    number = shift = 0
    for byte in value[at : at + _LONGEST_NUMBER]:
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise SourceError("not in Confluent's format: its message indexes are cut")

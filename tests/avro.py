"""Makes Avro by hand: numbers, and files of blocks that no writer would make."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MARK", "avro_file", "long", "record", "text"]

MARK = b"0123456789abcdef"


def long(value: int) -> bytes:
    """Encode a number: zigzag, then seven bits a byte."""
    rest, encoded = (value << 1) ^ (value >> 63), b""
    while rest > 0x7F:
        encoded += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return encoded + bytes([rest])


def text(value: str | bytes) -> bytes:
    """Encode a text, or bytes."""
    data = value.encode() if isinstance(value, str) else value
    return long(len(data)) + data


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    """Return the schema of a record; a field is its name, its type and, if it has one, its default."""
    named = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return {"type": "record", "name": name, "fields": named}


def avro_file(schema: Any, count: int, block: bytes, codec: str = "null") -> bytes:
    """Return a file of one block."""
    metadata = {"avro.schema": json.dumps(schema), "avro.codec": codec}
    header = b"Obj\x01" + long(2) + b"".join(text(key) + text(value) for key, value in metadata.items()) + long(0)
    return header + MARK + long(count) + text(block) + MARK

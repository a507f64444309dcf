"""Tells the format of a file by its first bytes, where its name does not tell it."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

__all__ = ["FIRST_BYTES", "delimiter_of", "format_of_content"]

FIRST_BYTES = 64 << 10
"""How many bytes of a file are looked at."""

_BINARY = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_DELIMITERS = ",;\t|"
_UNPACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": lambda data: zlib.decompressobj(31).decompress(data, FIRST_BYTES),
    b"BZh": lambda data: bz2.BZ2Decompressor().decompress(data, FIRST_BYTES),
    b"\x28\xb5\x2f\xfd": lambda data: pa.input_stream(pa.BufferReader(data), compression="zstd").read(FIRST_BYTES),
}


def format_of_content(data: bytes) -> str | None:
    """Return the name of the format of a file that begins with these bytes; None = they do not tell.

    Example:
        >>> format_of_content(b'{"id": 1}'), format_of_content(b"id,name"), format_of_content(b"PAR1")
        ('json', 'csv', 'parquet')
    """
    binary = next((name for magic, name in _BINARY.items() if data.startswith(magic)), None)
    if binary is not None:
        return binary
    text = _text(data)
    if text is None:
        return None
    if not text and data:
        # Of a block of compressed text there is too little to look into it.
        return None
    return "json" if text.startswith(("{", "[")) else "csv"


def delimiter_of(data: bytes) -> str:
    """Return the character between the fields of CSV that begins with these bytes: that which its first line has most.

    Example:
        >>> delimiter_of(b"id;name;price, net")
        ';'
    """
    line = (_text(data) or "").partition("\n")[0]
    return max(_DELIMITERS, key=line.count)


def _text(data: bytes) -> str | None:
    """Return the text that bytes begin with, also of a compressed file; None = they are none."""
    for magic, unpack in _UNPACKED.items():
        if data.startswith(magic):
            # What is cut off in the middle, or damaged, is told when the file is read.
            with suppress(OSError, EOFError, zlib.error, pa.ArrowException):
                data = unpack(data)
            break
    text = data.decode(errors="replace").lstrip("\ufeff \t\r\n")
    return None if "\0" in text else text

"""Decompresses blocks of Avro files, of every codec of the specification, up to a bound."""

from __future__ import annotations

import binascii
import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from volley.errors import MissingDependencyError

__all__ = ["CODECS", "OversizedError", "decompressed"]

_PIECE = 1 << 20
# A dictionary of the strongest preset has 64 MB.
_LZMA_MEMORY = 128 << 20
_CHECKSUM = 4
_LZ4_SIZE = 4


class OversizedError(ValueError):
    """The content of a block is larger than the bound."""


def decompressed(codec: str, data: bytes, most: int) -> bytes:
    """Return the content of a block.

    Args:
        codec: One of `CODECS`.
        data: The block.
        most: The most bytes of content; no more are decompressed.

    Raises:
        OversizedError: If it has more.
        ValueError: If the block is damaged.
        OSError, EOFError, zlib.error, lzma.LZMAError: Likewise.
        MissingDependencyError: If the codec needs a package that is not installed.

    Example:
        >>> decompressed("deflate", zlib.compress(b"rows", wbits=-15), most=4)
        b'rows'
    """
    return CODECS[codec](data, most)


def _check(size: int, most: int) -> None:
    if size > most:
        raise OversizedError(f"it has more than {most:,} bytes")


def _null(data: bytes, most: int) -> bytes:
    _check(len(data), most)
    return data


def _whole(decompressor: Any, data: bytes, most: int) -> bytes:
    """Decompress one stream of a decompressor of the standard library."""
    # One byte more shows whether there is more.
    content: bytes = decompressor.decompress(data, most + 1)
    _check(len(content), most)
    if not decompressor.eof:
        raise EOFError("its compressed content is cut")
    return content


def _deflate(data: bytes, most: int) -> bytes:
    return _whole(zlib.decompressobj(-zlib.MAX_WBITS), data, most)


def _bzip2(data: bytes, most: int) -> bytes:
    return _whole(bz2.BZ2Decompressor(), data, most)


def _xz(data: bytes, most: int) -> bytes:
    return _whole(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY), data, most)


def _zstandard(data: bytes, most: int) -> bytes:
    """Decompress frames that need not say how large their content is."""
    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while piece := stream.read(_PIECE):
            size += len(piece)
            _check(size, most)
            pieces.append(piece)
    return b"".join(pieces)


def _snappy(data: bytes, most: int) -> bytes:
    """Decompress a block with its checksum at the end; its size in front is a number of seven bits a byte."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    _check(size, most)
    content: bytes = pa.decompress(data[:-_CHECKSUM], size, "snappy", asbytes=True)
    if binascii.crc32(content) != int.from_bytes(data[-_CHECKSUM:], "big"):
        raise ValueError("it has a wrong checksum")
    return content


def _lz4(data: bytes, most: int) -> bytes:
    """Decompress a codec of fastavro's own: the size of the content, then LZ4 without a frame."""
    try:
        import lz4.block
    except ImportError as error:
        # Arrow's LZ4 does not tell when the content is shorter than its size.
        raise MissingDependencyError("Avro's codec lz4 needs the package lz4", hint="pip install lz4") from error
    _check(int.from_bytes(data[:_LZ4_SIZE], "little"), most)
    try:
        content: bytes = lz4.block.decompress(data)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from error
    return content


CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": _null,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
    "lz4": _lz4,
}
"""Codecs by their names in files; each function takes a block and the most bytes of its content."""

"""Reads Avro object container files: the header, then block by block; lengths are checked before anything is read."""

from __future__ import annotations

import binascii
import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from volley.errors import MissingDependencyError, SourceError
from volley.formats.input_file import InputFile, megabytes

__all__ = ["CODECS", "LARGEST_BLOCK", "AvroContainer", "Block", "decompressed"]

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


LARGEST_BLOCK = 256 << 20
"""The limit of a block's content, in bytes: it is in memory as a whole. Avro's writers make blocks of 64 KB."""

_MAGIC = b"Obj\x01"
_MARK = 16
_LONGEST_HEADER = 16 << 20
_LONGEST_NUMBER = 10
_DAMAGE = (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Block:
    """A block of a file.

    Args:
        number: Its number, from 1.
    """

    number: int
    count: int
    data: bytes


@dataclass(frozen=True)
class AvroContainer:
    """An open file, of which the header is read at the first use.

    Args:
        file: The file, for its name and size.
        stream: The open file, at its start.
    """

    file: InputFile
    stream: Any

    @cached_property
    def schema(self) -> str:
        """The schema of the records, as JSON.

        Raises:
            ValueError: If the header is damaged.
            EOFError: Likewise.
        """
        return self.header[0]["avro.schema"].decode()

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks.

        Raises:
            SourceError: If the codec is unknown, a block is too large, or its content is damaged; names the block.
            ValueError: If a block does not end where it should.
            EOFError: If the file ends in a block.
        """
        codec, number = self._codec, 0
        while (first := self.stream.read(1)) != b"":
            number += 1
            count, size = self._number(first), self._number()
            if count < 0:
                raise ValueError(f"block {number} has {count} records")
            content = self._content(codec, number, size)
            if self._read(_MARK) != self.header[1]:
                raise ValueError(f"block {number} does not end where it should")
            yield Block(number, count, content)

    def place(self, number: int) -> str:
        """Return the place of a block, for errors."""
        return f"{self.file.name}, block {number}"

    @cached_property
    def header(self) -> tuple[Mapping[str, bytes], bytes]:
        """The file's metadata, and the mark at the end of each block. Raises like `schema`."""
        if self.stream.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as one")
        metadata: dict[str, bytes] = {}
        while count := self._number():
            if count < 0:
                self._number()
            for _ in range(abs(count)):
                name = self._short().decode()
                metadata[name] = self._short()
                if self.stream.tell() > _LONGEST_HEADER:
                    raise self._too_large(self.file.name, "header", _LONGEST_HEADER)
        return metadata, self._read(_MARK)

    @property
    def _codec(self) -> str:
        codec = self.header[0].get("avro.codec", b"null").decode()
        if codec not in CODECS:
            raise SourceError(
                f"{self.file.name} has the codec {codec!r}, which Volley does not read",
                hint=f"write it with one of {', '.join(CODECS)}",
            )
        return codec

    def _content(self, codec: str, number: int, size: int) -> bytes:
        if size > LARGEST_BLOCK:
            self._check_left(size)
            raise self._too_large(self.place(number), "block", LARGEST_BLOCK)
        data = self._read(size)
        try:
            return decompressed(codec, data, LARGEST_BLOCK)
        except OversizedError as error:
            raise self._too_large(self.place(number), "block", LARGEST_BLOCK) from error
        except _DAMAGE as error:
            raise SourceError(
                f"{self.place(number)} is damaged: {codec} can't decompress it: {error}", hint="was the file changed?"
            ) from error

    def _too_large(self, place: str, what: str, most: int) -> SourceError:
        return SourceError(
            f"{place}: a {what} of more than {megabytes(most)}",
            hint=f"write the file with a shorter {what}: that is the limit",
        )

    def _short(self) -> bytes:
        """Read a value of the header."""
        size = self._number()
        if size > _LONGEST_HEADER:
            raise self._too_large(self.file.name, "header", _LONGEST_HEADER)
        return self._read(size)

    def _read(self, size: int) -> bytes:
        self._check_left(size)
        data = bytes(self.stream.read(size))
        if len(data) != size:
            raise EOFError("it ends too early")
        return data

    def _check_left(self, size: int) -> None:
        if not 0 <= size <= self.file.size - self.stream.tell():
            raise EOFError("it ends too early, or a length in it is damaged")

    def _number(self, byte: bytes = b"") -> int:
        """Read a number: seven bits a byte, the lowest ones first; its sign is the lowest bit."""
        value = 0
        for place in range(_LONGEST_NUMBER):
            byte = byte or self._read(1)
            value |= (byte[0] & 0x7F) << (7 * place)
            if byte[0] < 0x80:
                return (value >> 1) ^ -(value & 1)
            byte = b""
        raise ValueError("a number has more than 64 bits")

"""Opens Avro files: their header, and their blocks, uncompressed."""

from __future__ import annotations

import binascii
import bz2
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

__all__ = ["AvroFile"]

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_JOINED_BYTES = 1 << 20


class AvroFile:
    """The header of an Avro file.

    Args:
        content: The whole file.

    Raises:
        ValueError: If it is not an Avro file.
        EOFError: If it ends in the header.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(_MAGIC):
            raise ValueError("it is not an Avro file")
        self._content = content
        self._decoder = new_decoder(content)
        self._decoder.skip(len(_MAGIC))
        meta = self._meta()
        self._sync = self._read(_SYNC_SIZE)
        self._codec = meta.get("avro.codec", b"null").decode()
        self.schema = meta["avro.schema"].decode()

    def items(self) -> Iterator[tuple[int, BinaryDecoder]]:
        """Yield numbers of items, and decoders of so many; all of them must be read.

        Small blocks are joined: pyiceberg writes a block for each item.

        Raises:
            ValueError: If the file is damaged.
            EOFError: If it ends in a block.
        """
        count, joined, size = 0, [], 0
        for items, block in self._blocks():
            count += items
            size += len(block)
            joined.append(block)
            if size > _JOINED_BYTES:
                yield from _decoders(count, joined)
                count, joined, size = 0, [], 0
        yield from _decoders(count, joined)

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        if self._codec not in _CODECS:
            raise ValueError(f"unknown compression {self._codec}")
        decompress, decoder, end = _CODECS[self._codec], self._decoder, len(self._content)
        while decoder.tell() < end:
            count = decoder.read_int()
            block = self._read(decoder.read_int())
            if self._read(_SYNC_SIZE) != self._sync:
                raise ValueError("a block does not end where it should")
            yield count, decompress(block)

    def _meta(self) -> dict[str, bytes]:
        meta = {}
        while count := self._decoder.read_int():
            if count < 0:
                self._decoder.skip_int()
            for _ in range(abs(count)):
                name = self._read(self._decoder.read_int())
                meta[name.decode()] = self._read(self._decoder.read_int())
        return meta

    def _read(self, size: int) -> bytes:
        # pyiceberg's compiled decoder reads on behind the end.
        if not 0 <= size <= len(self._content) - self._decoder.tell():
            raise EOFError("it ends too early")
        return self._decoder.read(size)


def _decoders(count: int, blocks: list[bytes]) -> Iterator[tuple[int, BinaryDecoder]]:
    joined = b"".join(blocks)
    decoder = new_decoder(joined)
    yield count, decoder
    if decoder.tell() != len(joined):
        raise ValueError("a block is damaged")


def _snappy(data: bytes) -> bytes:
    """Decompress a block, which a checksum follows; its size in front is a number of seven bits a byte."""
    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    block: bytes = pa.decompress(data[:-4], size, "snappy", asbytes=True)
    if binascii.crc32(block) != int.from_bytes(data[-4:], "big"):
        raise ValueError("a block has a wrong checksum")
    return block


def _zstandard(data: bytes) -> bytes:
    """Decompress frames that need not say how large their content is."""
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        block: bytes = stream.read()
    return block


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, -zlib.MAX_WBITS),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": bz2.decompress,
}

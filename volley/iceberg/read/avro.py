"""Opens Avro files: their header, and their blocks, uncompressed."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

from volley.formats.avro_blocks import CODECS, LARGEST_BLOCK, decompressed

__all__ = ["AvroFile"]

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_JOINED_BYTES = 1 << 20
_BEHIND = 2


class AvroFile:
    """The header of an Avro file.

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

    def items(self) -> Iterator[tuple[BinaryDecoder, int, int]]:
        """Yield decoders, each with the size of what it has, and with the number of items there; all must be read.

        Small blocks are joined: pyiceberg writes a block for each item. A decoder may read twice its size of zeros
        behind the end: pyiceberg's compiled one does not check where its memory ends.

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
        if self._codec not in CODECS:
            raise ValueError(f"unknown compression {self._codec}")
        decoder, content, sync = self._decoder, self._content, self._sync
        while decoder.tell() < len(content):
            count, size = decoder.read_int(), decoder.read_int()
            start = decoder.tell()
            end = start + size
            if size < 0 or not content.startswith(sync, end):
                raise ValueError("a block does not end where it should")
            yield count, decompressed(self._codec, content[start:end], LARGEST_BLOCK)
            decoder.skip(size + _SYNC_SIZE)

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


def _decoders(count: int, blocks: list[bytes]) -> Iterator[tuple[BinaryDecoder, int, int]]:
    size = sum(map(len, blocks))
    decoder = new_decoder(b"".join([*blocks, bytes(_BEHIND * size + _SYNC_SIZE)]))
    yield decoder, size, count
    if decoder.tell() != size:
        raise ValueError("a block is damaged")

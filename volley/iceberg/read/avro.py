"""Opens the blocks of Avro files for pyiceberg's decoder, uncompressed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import nullcontext

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

from volley.formats.avro_blocks import CODECS, LARGEST_BLOCK, AvroContainer, decompressed
from volley.formats.input_file import InputFile

__all__ = ["JoinedBlocks"]

_JOINED_BYTES = 1 << 20
# What a decoder can read beyond the end of its memory: so many times its size, and some bytes more.
_BEHIND, _MARGIN = 2, 16


class JoinedBlocks:
    """The blocks of an Avro file, small ones joined.

    Raises:
        SourceError: If its header is too large.
        ValueError: If it is not an Avro file.
        EOFError: If it ends in the header.
    """

    def __init__(self, content: bytes) -> None:
        stream = io.BytesIO(content)
        file = AvroContainer(InputFile("", len(content), lambda: nullcontext(stream)), stream)
        metadata, self._mark = file.header
        self.schema = file.schema
        self._codec = metadata.get("avro.codec", b"null").decode()
        self._content, self._start = content, stream.tell()

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
        decoder, content, mark = new_decoder(self._content), self._content, self._mark
        decoder.skip(self._start)
        while decoder.tell() < len(content):
            count, size = decoder.read_int(), decoder.read_int()
            start = decoder.tell()
            end = start + size
            if size < 0 or not content.startswith(mark, end):
                raise ValueError("a block does not end where it should")
            yield count, decompressed(self._codec, content[start:end], LARGEST_BLOCK)
            decoder.skip(size + len(mark))


def _decoders(count: int, blocks: list[bytes]) -> Iterator[tuple[BinaryDecoder, int, int]]:
    size = sum(map(len, blocks))
    decoder = new_decoder(b"".join([*blocks, bytes(_BEHIND * size + _MARGIN)]))
    yield decoder, size, count
    if decoder.tell() != size:
        raise ValueError("a block is damaged")

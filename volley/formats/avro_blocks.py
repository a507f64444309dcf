"""Reads Avro object container files: the header, then block by block; lengths are checked before anything is read."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from volley.errors import SourceError
from volley.formats.avro_codecs import CODECS, OversizedError, decompressed
from volley.formats.input_file import InputFile, megabytes

__all__ = ["LARGEST_BLOCK", "AvroFile", "Block"]

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
        count: Its number of records.
        data: Its content.
    """

    number: int
    count: int
    data: bytes


@dataclass(frozen=True)
class AvroFile:
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
        return self._header[0]["avro.schema"].decode()

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
            if self._read(_MARK) != self._header[1]:
                raise ValueError(f"block {number} does not end where it should")
            yield Block(number, count, content)

    def place(self, number: int) -> str:
        """Return the place of a block, for errors."""
        return f"{self.file.name}, block {number}"

    @cached_property
    def _header(self) -> tuple[Mapping[str, bytes], bytes]:
        """The file's metadata, and the mark at the end of each block."""
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
        codec = self._header[0].get("avro.codec", b"null").decode()
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

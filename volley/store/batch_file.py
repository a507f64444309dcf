"""Files of Arrow batches that are read again: any batch alone, and only after its checksum is found right.

A file is the line ``volley <format> <version>``, a block for each batch, the index, and a tail. A block is an Arrow
stream of one batch and begins at a multiple of 64 bytes. The index is JSON: place, length and CRC-32 of each block, and
what the writer tells at the end. The tail has the index's length, a CRC-32 of line and index, and a mark.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Protocol

import pyarrow as pa

from volley.storage.envelope import MAGIC, StateFormat

__all__ = ["BatchFile", "BatchFileWriter", "Batches", "Damaged", "damage", "open_batches"]

_ALIGNMENT = 64
_LINE = re.compile(rb"volley ([a-z-]+) (\d{1,9})\n")
_LONGEST_LINE = 64
_SMALL = 1 << 20
_TAIL = struct.Struct("<QI4s")
_MARK = b"vend"
# How a file and a stream of Arrow itself begin: version 1.
_ARROW, _STREAM = b"ARROW1", b"\xff\xff\xff\xff"


class Damaged(ValueError):
    """A file is damaged; the message says how."""


class Batches(Protocol):
    """The batches of a file of any version."""

    @property
    def end(self) -> Mapping[str, Any]:
        """What the writer told at the end."""

    def __len__(self) -> int: ...

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch."""


class BatchFileWriter:
    """Writes a file."""

    def __init__(self, sink: IO[bytes], format: StateFormat, options: pa.ipc.IpcWriteOptions | None = None) -> None:
        self._sink = sink
        self._options = options
        self._line = b"volley %s %d\n" % (format.name.encode(), format.version)
        self._blocks: list[tuple[int, int, int]] = []
        self.size = 0
        self._write(self._line)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a batch.

        Raises:
            OSError: If it can't be written.
        """
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema, options=self._options) as writer:
            writer.write_batch(batch)
        block = memoryview(stream.getvalue())
        self._write(b"\0" * (-self.size % _ALIGNMENT))
        self._blocks.append((self.size, len(block), zlib.crc32(block)))
        self._write(block)

    def close(self, end: Mapping[str, object] | None = None) -> int:
        """Write the index, and return the file's size in bytes. The file stays open.

        Args:
            end: What `BatchFile.end` returns: values of JSON.

        Raises:
            OSError: If it can't be written.
        """
        index = json.dumps({"blocks": self._blocks, "end": end or {}}).encode()
        self._write(index + _TAIL.pack(len(index), zlib.crc32(index, zlib.crc32(self._line)), _MARK))
        return self.size

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self.size += len(data)


class BatchFile:
    """The batches of a file.

    Raises:
        Damaged: If it is damaged, or of another format.
        StorageError: If a newer Volley wrote it.
    """

    def __init__(self, source: pa.NativeFile, format: StateFormat, path: str) -> None:
        self._source = source
        line, index = _index_of(source)
        name, version = _named(line)
        format.check(name, version, path)
        values = json.loads(index)
        self._blocks: list[tuple[int, int, int]] = values["blocks"]
        self._end: Mapping[str, Any] = values["end"]

    @property
    def end(self) -> Mapping[str, Any]:
        """What the writer told at the end."""
        return self._end

    def __len__(self) -> int:
        return len(self._blocks)

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch.

        Raises:
            Damaged: If it is damaged.
        """
        place, size, checksum = self._blocks[number]
        block = _read(self._source, place, size)
        if len(block) != size or zlib.crc32(block) != checksum:
            raise Damaged(f"batch {number} does not fit its checksum")
        # Threads cost more than they save where little is compressed.
        options = pa.ipc.IpcReadOptions(use_threads=size > _SMALL)
        with pa.ipc.open_stream(block, options=options) as stream:
            return stream.read_next_batch()


class _ArrowFile:
    """A file of Arrow itself, as Volley 0.2.0 wrote them, without checksums."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._reader = pa.ipc.open_file(source)

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    @property
    def end(self) -> Mapping[str, Any]:
        with damage():
            metadata = self._reader.get_batch_with_custom_metadata(len(self) - 1).custom_metadata
            end: Mapping[str, Any] = json.loads(metadata[b"end"])
            return end

    def batch(self, number: int) -> pa.RecordBatch:
        with damage():
            return self._reader.get_batch(number)


class _ArrowStream:
    """A stream of Arrow, as Volley 0.2.0 wrote parked rows, without checksums; its batches are read in their order."""

    def __init__(self, source: pa.NativeFile) -> None:
        source.seek(0)
        self._batches = list(pa.ipc.open_stream(source))
        self.end: Mapping[str, Any] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, number: int) -> pa.RecordBatch:
        return self._batches[number]


def open_batches(source: pa.NativeFile, format: StateFormat, path: str) -> Batches:
    """Return the batches of a file of any version.

    Raises:
        Damaged: If it is damaged, or of another format.
        StorageError: If a newer Volley wrote it.
    """
    with damage():
        beginning = bytes(_read(source, 0, len(_ARROW)))
        if beginning == _ARROW:
            return _ArrowFile(source)
        if beginning.startswith(_STREAM):
            return _ArrowStream(source)
        return BatchFile(source, format, path)


@contextmanager
def damage() -> Iterator[None]:
    """Raise Damaged for whatever Arrow raises on a damaged file; a file that is missing or can't be reached is none."""
    try:
        yield
    except (Damaged, FileNotFoundError, ConnectionError, PermissionError, TimeoutError):
        raise
    except (OSError, ValueError, LookupError, TypeError, OverflowError, pa.ArrowException) as error:
        raise Damaged(f"it can't be read: {error}") from error


def _index_of(source: pa.NativeFile) -> tuple[bytes, bytes]:
    """Return the first line and the index, both checked."""
    total = source.size()
    line = bytes(_read(source, 0, min(_LONGEST_LINE, total))).partition(b"\n")[0] + b"\n"
    if not line.startswith(MAGIC) or total < len(line) + _TAIL.size:
        raise Damaged("it does not begin like a file of Volley's, or is cut short")
    size, checksum, mark = _TAIL.unpack(_read(source, total - _TAIL.size, _TAIL.size))
    if mark != _MARK or size > total - _TAIL.size:
        raise Damaged("it is cut short")
    index = bytes(_read(source, total - _TAIL.size - size, size))
    if zlib.crc32(index, zlib.crc32(line)) != checksum:
        raise Damaged("its index does not fit its checksum")
    return line, index


def _named(line: bytes) -> tuple[str, int]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise Damaged("its first line is not one of Volley's")
    return match[1].decode(), int(match[2])


def _read(source: pa.NativeFile, place: int, size: int) -> pa.Buffer:
    source.seek(place)
    return source.read_buffer(size)

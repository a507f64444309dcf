"""Holds the column chunks of a Parquet row group in memory, and reads the sizes of their pages from page headers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.formats.parquet_footer import Chunk
from volley.formats.thrift import Malformed, read_struct

if TYPE_CHECKING:
    from volley.formats.thrift import Fields

__all__ = ["Pages", "Window", "count_values", "pages_of"]

_HEADER = 512
_LONGEST_HEADER = 16 << 20
_GAP = 64 << 10
# PageHeader in parquet.thrift: the page type, the decompressed and compressed size; for each type the number of values,
# and for data pages of both versions the encoding.
_FIELDS: Fields = {1: int, 2: int, 3: int, 5: {1: int, 2: int}, 7: {1: int}, 8: {1: int, 4: int}}
_DICTIONARY = 2
_ABOUT = {0: (5, 2), _DICTIONARY: (7, 2), 3: (8, 4)}
_DELTA_BYTE_ARRAY = 7


class Window:
    """A file with some byte ranges held in memory; the rest is read from the file.

    Args:
        stream: The open file.
    """

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._at = 0
        self._held: list[tuple[int, memoryview]] = []

    def hold(self, chunks: Sequence[Chunk]) -> None:
        """Read these chunks into memory and drop the previous ones; chunks that are close are read together."""
        self._held = []
        for start, end in _joined(chunks):
            self._stream.seek(start)
            self._held.append((start, memoryview(self._stream.read(end - start))))

    def read(self, size: int = -1) -> bytes | memoryview:
        data = self._read(self._at, size)
        self._at += len(data)
        return data

    def _read(self, position: int, size: int) -> bytes | memoryview:
        for start, data in self._held:
            if start <= position and 0 <= size <= start + len(data) - position:
                return data[position - start : position - start + size]
        self._stream.seek(position)
        read: bytes = self._stream.read(size)
        return read

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            self._stream.seek(0, os.SEEK_END)
            position += self._stream.tell()
        self._at = position + self._at if whence == os.SEEK_CUR else position
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: the caller closes the file."""


def _joined(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        start, end = chunk.start, chunk.start + chunk.size
        if joined and start <= joined[-1][1] + _GAP:
            start, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((start, end))
    return joined


@dataclass(frozen=True)
class Pages:
    """The sizes of a chunk's pages, in bytes.

    Args:
        data: Its largest data page, decompressed.
        dictionary: Its dictionary, decompressed; 0 = it has none.
        mean: The largest average value size of a page: at least one value is as large.
        value: Like `mean`, but the whole page if the lengths of its values are unknown.
    """

    data: int
    dictionary: int
    mean: float
    value: float


def pages_of(window: Window, chunk: Chunk) -> Pages:
    """Return the page sizes of a chunk, by its page headers. Stops at a damaged one: decoding it will raise."""
    data, dictionary, mean, value = 0, 0, 0.0, 0.0
    for page_type, size, count, encoding in _headers(window, chunk.start, chunk.size):
        if page_type == _DICTIONARY:
            dictionary = max(dictionary, size)
        else:
            data = max(data, size)
        mean = max(mean, size / max(1, count))
        # In this encoding, values that share a prefix take next to nothing in the page.
        value = max(value, size if encoding == _DELTA_BYTE_ARRAY else mean)
    return Pages(data, dictionary, mean, value)


def count_values(window: Window, start: int, size: int) -> int:
    """Return how many values the data pages in some bytes have, nulls included, by the page headers."""
    return sum(count for page_type, _, count, _ in _headers(window, start, size) if page_type != _DICTIONARY)


def _headers(window: Window, start: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the type, decompressed size, number of values and encoding of each page."""
    position, end = start, start + size
    while position < end:
        header, length = _header(window, position, end)
        if length == 0 or (packed := header.get(3, 0)) < 0:
            return
        page_type = header.get(1, -1)
        if page_type in _ABOUT:
            field, encoding = _ABOUT[page_type]
            inner = header.get(field, {})
            yield page_type, header.get(2, 0), inner.get(1, 0), inner.get(encoding, 0)
        position += length + packed


def _header(window: Window, at: int, end: int) -> tuple[dict[int, Any], int]:
    """Return a page's header and its length in bytes; empty and 0 if it is damaged."""
    size = _HEADER
    while True:
        window.seek(at)
        data = window.read(min(size, end - at))
        try:
            return read_struct(data, 0, _FIELDS)
        except Malformed:
            if size >= min(_LONGEST_HEADER, end - at):
                return {}, 0
            size *= 8

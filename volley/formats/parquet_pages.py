"""The column chunks of a Parquet row group in memory, and the sizes of their pages: known before a page is unpacked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.formats.parquet_footer import Chunk
from volley.formats.thrift import Malformed, read_struct

if TYPE_CHECKING:
    from volley.formats.thrift import Fields

__all__ = ["Pages", "Window", "pages_of"]

_HEADER = 512
_LONGEST_HEADER = 16 << 20
_NEAR = 64 << 10
# PageHeader in parquet.thrift: the kind, the size, the size in the file; of each kind the number of values, and for
# data pages of both versions the encoding.
_FIELDS: Fields = {1: int, 2: int, 3: int, 5: {1: int, 2: int}, 7: {1: int}, 8: {1: int, 4: int}}
_DICTIONARY = 2
_ABOUT = {0: (5, 2), _DICTIONARY: (7, 2), 3: (8, 4)}
_DELTA_BYTE_ARRAY = 7


class Window:
    """A file of which some ranges are held in memory; the rest is read from the file itself.

    Args:
        stream: The file.
    """

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._at = 0
        self._held: list[tuple[int, memoryview]] = []

    def hold(self, chunks: Sequence[Chunk]) -> None:
        """Read these chunks in place of those that were held; what lies near each other is read in one go."""
        self._held = []
        for start, end in _joined(chunks):
            self._stream.seek(start)
            self._held.append((start, memoryview(self._stream.read(end - start))))

    def read(self, size: int = -1) -> bytes | memoryview:
        found = self._read(self._at, size)
        self._at += len(found)
        return found

    def _read(self, at: int, size: int) -> bytes | memoryview:
        for start, data in self._held:
            if start <= at and 0 <= size <= start + len(data) - at:
                return data[at - start : at - start + size]
        self._stream.seek(at)
        found: bytes = self._stream.read(size)
        return found

    def seek(self, at: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            self._stream.seek(0, os.SEEK_END)
            at += self._stream.tell()
        self._at = at + self._at if whence == os.SEEK_CUR else at
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """The file belongs to who opened it."""


def _joined(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        start, end = chunk.start, chunk.start + chunk.size
        if joined and start <= joined[-1][1] + _NEAR:
            start, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((start, end))
    return joined


@dataclass(frozen=True)
class Pages:
    """The sizes of a chunk's pages, in bytes.

    Args:
        data: Its largest data page, unpacked.
        dictionary: Its dictionary; 0 = it has none.
        mean: A value on average, in the page where that is most: at least one is as large.
        value: The same, but where nothing is known of the lengths of a page's values, all that it has.
    """

    data: int
    dictionary: int
    mean: float
    value: float


def pages_of(window: Window, chunk: Chunk) -> Pages:
    """What the headers of a chunk's pages say. Where one is damaged the look ends: decoding it is an error."""
    data, dictionary, mean, value = 0, 0, 0.0, 0.0
    for kind, size, count, encoding in _headers(window, chunk):
        if kind == _DICTIONARY:
            dictionary = max(dictionary, size)
        else:
            data = max(data, size)
        mean = max(mean, size / max(1, count))
        # Values that share what they begin with take next to nothing in the page.
        value = max(value, size if encoding == _DELTA_BYTE_ARRAY else mean)
    return Pages(data, dictionary, mean, value)


def _headers(window: Window, chunk: Chunk) -> Iterator[tuple[int, int, int, int]]:
    """Kind, unpacked size, number of values and encoding of each page."""
    at, end = chunk.start, chunk.start + chunk.size
    while at < end:
        found, length = _header(window, at, end)
        if length == 0 or (packed := found.get(3, 0)) < 0:
            return
        kind = found.get(1, -1)
        if kind in _ABOUT:
            about, encoding = _ABOUT[kind]
            inner = found.get(about, {})
            yield kind, found.get(2, 0), inner.get(1, 0), inner.get(encoding, 0)
        at += length + packed


def _header(window: Window, at: int, end: int) -> tuple[dict[int, Any], int]:
    """A page's header and its bytes; none if it is damaged."""
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

"""Reads the columns and row groups of a Parquet file from its footer, and the sizes of its pages from their headers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.errors import SourceError
from volley.formats.input_file import InputFile
from volley.formats.thrift import Malformed, read_struct

if TYPE_CHECKING:
    from volley.formats.thrift import Fields

__all__ = [
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
    "ColumnChunk",
    "Pages",
    "RowGroup",
    "Window",
    "count_values",
    "damaged",
    "footer_bytes",
    "pages_of",
    "refuse_encrypted",
    "row_groups",
]

BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = 6, 7

_TAIL = 64 << 10
_MAGIC, _MAGIC_ENCRYPTED = b"PAR1", b"PARE"

# Field numbers of parquet.thrift.
_ELEMENT: Fields = {1: int, 2: int, 4: bytes, 5: int, 6: int, 10: {5: {}}}
_CHUNK: Fields = {5: int, 7: int, 9: int, 11: int}
_FOOTER: Fields = {2: [_ELEMENT], 4: [{1: [{3: _CHUNK, 8: {}}], 3: int}]}
_DECIMAL = 5


@dataclass(frozen=True)
class Leaf:
    """A leaf column; a nested column has several.

    Args:
        path: The names from the top-level column down to the leaf, joined by dots.
        length: The bytes of a value, if of fixed length.
        is_decimal: True if its values are decimals; they can be stored as integers or bytes.
    """

    path: str
    physical_type: int
    length: int
    is_decimal: bool


@dataclass(frozen=True)
class ColumnChunk:
    """A column chunk: the values of a leaf in a row group.

    Args:
        start: The file position of its first page.
        size: Its size in the file, in bytes.
        values: The number of its values, nulls included.
        is_encrypted: True if reading it needs a key.
    """

    leaf: Leaf
    start: int
    size: int
    values: int
    is_encrypted: bool


@dataclass(frozen=True)
class RowGroup:
    """A row group."""

    rows: int
    chunks: Sequence[ColumnChunk]


def row_groups(file: InputFile, stream: Any) -> list[RowGroup]:
    """Return the row groups of an open file, by its footer.

    Raises:
        SourceError: If it is encrypted, damaged or missing.
    """
    try:
        footer, _ = read_struct(footer_bytes(file, stream), 0, _FOOTER)
        leaves = list(_leaves(iter(footer[2])))
        return [_group(row_group, leaves) for row_group in footer[4]]
    except (Malformed, KeyError, RecursionError) as error:
        raise damaged(file, f"its footer is damaged ({error})") from error


def damaged(file: InputFile, reason: object) -> SourceError:
    """Return the error for a file that is not complete Parquet."""
    return SourceError(f"{file.name} is not a whole Parquet file: {reason}", hint="write it again; it may be cut short")


def refuse_encrypted(file: InputFile, chunks: Iterable[ColumnChunk]) -> None:
    """Raise SourceError if one of these chunks is encrypted; the error names the column."""
    for chunk in chunks:
        if chunk.is_encrypted:
            raise SourceError(
                f"{file.name}: column {chunk.leaf.path!r} is encrypted, and can't be read",
                hint="decrypt the file before, or declare a schema without that column: schema=…",
            )


def footer_bytes(file: InputFile, stream: Any) -> bytes:
    """Return the footer of an open file, still encoded.

    Raises:
        SourceError: If it is encrypted or missing.
    """
    stream.seek(0, os.SEEK_END)
    size = stream.tell()
    stream.seek(max(0, size - _TAIL))
    tail: bytes = stream.read(_TAIL)
    if tail.endswith(_MAGIC_ENCRYPTED):
        raise SourceError(
            f"{file.name} is an encrypted Parquet file, which can't be read",
            hint="decrypt it before, or write it with a plain footer and the columns that are needed unencrypted",
        )
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if not tail.endswith(_MAGIC) or length > size:
        raise damaged(file, "it has no footer")
    if length > len(tail):
        stream.seek(size - length)
        tail = stream.read(length)
    return tail[-length:-8]


def _leaves(elements: Iterator[Mapping[int, Any]]) -> Iterator[Leaf]:
    """Yield the leaves below the root; the root itself is not a column."""
    for _ in range(_next(elements).get(5, 0)):
        yield from _below(elements, "")


def _below(elements: Iterator[Mapping[int, Any]], prefix: str) -> Iterator[Leaf]:
    element = _next(elements)
    path = prefix + element[4].decode(errors="replace")
    if not element.get(5):
        decimal = element.get(6) == _DECIMAL or _DECIMAL in element.get(10, ())
        yield Leaf(path, element[1], element.get(2, 0), decimal)
    for _ in range(element.get(5, 0)):
        yield from _below(elements, f"{path}.")


def _next(elements: Iterator[Mapping[int, Any]]) -> Mapping[int, Any]:
    element = next(elements, None)
    if element is None:
        raise Malformed("the schema ends in the middle of a column")
    return element


def _group(row_group: Mapping[int, Any], leaves: Sequence[Leaf]) -> RowGroup:
    if len(row_group[1]) != len(leaves):
        raise Malformed(f"a row group has {len(row_group[1])} columns, the schema has {len(leaves)}")
    return RowGroup(
        row_group[3], [_chunk(column_chunk, leaf) for column_chunk, leaf in zip(row_group[1], leaves, strict=True)]
    )


def _chunk(column_chunk: Mapping[int, Any], leaf: Leaf) -> ColumnChunk:
    is_encrypted = 8 in column_chunk
    # A column that is encrypted with its own key may lack its metadata.
    metadata = column_chunk.get(3, {}) if is_encrypted else column_chunk[3]
    pages, dictionary = metadata.get(9, 0), metadata.get(11, 0)
    start, size = dictionary if 0 < dictionary < pages else pages, metadata.get(7, 0)
    if start < 0 or size < 0:
        raise Malformed(f"column {leaf.path!r} has {size} bytes from byte {start} on")
    return ColumnChunk(leaf, start, size, metadata.get(5, 0), is_encrypted)


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
    """A file with some byte ranges held in memory; the rest is read from the file."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._at = 0
        self._held: list[tuple[int, memoryview]] = []

    def hold(self, chunks: Sequence[ColumnChunk]) -> None:
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


def _joined(chunks: Sequence[ColumnChunk]) -> list[tuple[int, int]]:
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


def pages_of(window: Window, chunk: ColumnChunk) -> Pages:
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

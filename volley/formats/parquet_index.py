"""Cuts pages out of a Parquet file by its page index: a small file with the pages that have some rows of a column.

See https://parquet.apache.org/docs/file-format/pageindex.
"""

from __future__ import annotations

import base64
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from volley.formats.input_file import InputFile
from volley.formats.parquet_footer import Window, count_values, damaged, footer_bytes
from volley.formats.thrift import I32, I64, Malformed, read_struct, write_struct

if TYPE_CHECKING:
    from volley.formats.thrift import Fields

__all__ = ["PageStatistics", "PagedColumn", "PagedFile"]

_MAGIC = b"PAR1"
_REPEATED = 2

# Field numbers of parquet.thrift.
_ELEMENT: Fields = {3: int, 4: bytes, 5: int}
_METADATA: Fields = {1: int, 2: [int], 4: int, 6: int, 9: int, 11: int}
_CHUNK: Fields = {3: _METADATA, 4: int, 5: int, 6: int, 7: int, 8: {}}
_FOOTER: Fields = {2: [memoryview], 4: [{1: [_CHUNK], 3: int}], 6: bytes}
_OFFSETS: Fields = {1: [{1: int, 2: int, 3: int}]}
_STATISTICS: Fields = {1: [bool], 2: [bytes], 3: [bytes], 5: [int]}


@dataclass(frozen=True)
class PageStatistics:
    """What is known of the values of a page.

    Args:
        rows: The rows of the page in its row group.
        low: A lower bound, in Parquet's plain encoding; None if all values are null.
        nulls: The number of nulls; None = unknown.
    """

    rows: range
    low: bytes | None
    high: bytes | None
    nulls: int | None


@dataclass(frozen=True)
class PagedColumn:
    """A column of a row group, with the places of its pages.

    Args:
        element: Its element of the footer's schema, encoded.
        chunk: Its column chunk, decoded.
        rows: The number of rows of the row group.
        pages: The place of each page in the file and its first row in the row group.
    """

    name: str
    element: bytes
    chunk: Mapping[int, Any]
    rows: int
    pages: Sequence[Mapping[int, int]]

    @property
    def physical_type(self) -> int:
        """The number of its physical type."""
        return int(self.chunk[3][1])

    @property
    def rows_of_pages(self) -> list[range]:
        """The rows of each page in the row group."""
        borders = [page[3] for page in self.pages] + [self.rows]
        return [range(first, end) for first, end in pairwise(borders)]


class PagedFile:
    """A Parquet file with a page index."""

    def __init__(self, file: InputFile, stream: Any) -> None:
        self.file = file
        self.stream = stream

    @cached_property
    def _footer(self) -> dict[int, Any]:
        footer, _ = read_struct(footer_bytes(self.file, self.stream), 0, _FOOTER)
        return footer

    @cached_property
    def _size(self) -> int:
        """The file's size in bytes."""
        return int(self.stream.seek(0, os.SEEK_END))

    @cached_property
    def mapped(self) -> memoryview | None:
        """The bytes of a local file, of which only those that are looked at are read; None of another file."""
        try:
            return memoryview(mmap.mmap(self.stream.fileno(), 0, access=mmap.ACCESS_READ))
        except (AttributeError, OSError, ValueError):
            return None

    @cached_property
    def _flat(self) -> dict[str, tuple[int, bytes]]:
        """The number of the leaf and the encoded element of each column that is neither nested nor a list."""
        flat, leaf, elements = dict[str, tuple[int, bytes]](), 0, iter(self._footer[2][1:])
        for encoded in elements:
            element, _ = read_struct(encoded, 0, _ELEMENT)
            if element.get(5):
                leaf += _leaves_below(elements, element[5])
                continue
            if element.get(3) != _REPEATED:
                flat[element[4].decode(errors="replace")] = leaf, encoded
            leaf += 1
        return flat

    def column(self, group: int, name: str) -> PagedColumn | None:
        """Return a column of a row group; None if it is nested or encrypted, or if its pages are not indexed.

        Raises:
            SourceError: If the index is damaged.
        """
        try:
            if name not in self._flat:
                return None
            leaf, element = self._flat[name]
            row_group = self._footer[4][group]
            chunk = row_group[1][leaf]
            if 8 in chunk or not chunk.get(5):
                return None
            pages = self._read(chunk[4], chunk[5], _OFFSETS)[1]
            column = PagedColumn(name, element, chunk, row_group[3], pages)
            return column if _is_sound(column) else None
        except (Malformed, KeyError, IndexError) as error:
            raise damaged(self.file, f"the page index of column {name!r} is damaged ({error})") from error

    def statistics(self, column: PagedColumn) -> list[PageStatistics]:
        """Return the statistics of each page of a column; none if the file has none.

        Raises:
            SourceError: If the index is damaged.
        """
        if not column.chunk.get(7):
            return []
        try:
            index = self._read(column.chunk[6], column.chunk[7], _STATISTICS)
            rows = column.rows_of_pages
            nulls = index.get(5) or [None] * len(rows)
            pages = zip(rows, index[1], index[2], index[3], nulls, strict=True)
            return [
                PageStatistics(rows, None, None, len(rows)) if is_null else PageStatistics(rows, low, high, count)
                for rows, is_null, low, high, count in pages
            ]
        except (Malformed, KeyError, ValueError) as error:
            raise damaged(self.file, f"the page index of column {column.name!r} is damaged ({error})") from error

    def cut(self, column: PagedColumn, rows: range, field: pa.Field) -> tuple[InputFile, int]:
        """Return a Parquet file in memory with the pages of a column that have some rows, and its first row.

        Raises:
            SourceError: If the index does not fit the pages.
        """
        spans = column.rows_of_pages
        first = next(number for number, span in enumerate(spans) if rows.start < span.stop)
        last = next(number for number, span in enumerate(spans) if rows.stop <= span.stop)
        start, end = column.pages[first][1], column.pages[last][1] + column.pages[last][2]
        dictionary = self.read_bytes(_start(column), column.pages[0][1])
        content = dictionary + self.read_bytes(start, end)
        count = spans[last].stop - spans[first].start
        if count_values(Window(BytesIO(content)), 0, len(content)) != count:
            raise damaged(self.file, f"the page index of column {column.name!r} does not fit its pages")
        footer = self._small_footer(column, field, count, len(dictionary), len(content))
        whole = _MAGIC + content + footer + len(footer).to_bytes(4, "little") + _MAGIC
        file = replace(self.file, size=len(whole), open=lambda: nullcontext(BytesIO(whole)))
        return file, spans[first].start

    def _small_footer(self, column: PagedColumn, field: pa.Field, rows: int, dictionary: int, size: int) -> bytes:
        """Return the footer of a file with one column and one row group."""
        metadata = column.chunk[3]
        first = len(_MAGIC)
        chunk = {
            1: (I32, column.physical_type),
            2: [(I32, encoding) for encoding in metadata[2]],
            3: [column.name.encode()],
            4: (I32, metadata[4]),
            5: (I64, rows),
            6: (I64, metadata[6]),
            7: (I64, size),
            9: (I64, first + dictionary),
            **({11: (I64, first)} if dictionary else {}),
        }
        root = {4: b"schema", 5: (I32, 1)}
        schema = base64.b64encode(pa.schema([field]).serialize().to_pybytes())
        footer = {
            1: (I32, 2),
            2: [root, column.element],
            3: (I64, rows),
            4: [{1: [{2: (I64, first), 3: chunk}], 2: (I64, size), 3: (I64, rows)}],
            5: [{1: b"ARROW:schema", 2: schema}],
            # Readers work around the faults of some writers.
            **({6: self._footer[6]} if 6 in self._footer else {}),
        }
        return write_struct(footer)

    def _read(self, position: int, size: int, fields: Fields) -> dict[int, Any]:
        return read_struct(self.read_bytes(position, position + size), 0, fields)[0]

    def read_bytes(self, start: int, end: int) -> bytes:
        """Return bytes of the file.

        Raises:
            SourceError: If it ends before.
        """
        if not 0 <= start <= end <= self._size:
            raise damaged(self.file, f"it has no bytes {start} to {end}")
        self.stream.seek(start)
        return bytes(self.stream.read(end - start))


def _leaves_below(elements: Iterator[bytes], children: int) -> int:
    """Consume the elements below a nested one, and return the number of its leaves."""
    leaves = 0
    for _ in range(children):
        element, _ = read_struct(next(elements), 0, _ELEMENT)
        leaves += _leaves_below(elements, element[5]) if element.get(5) else 1
    return leaves


def _start(column: PagedColumn) -> int:
    """Return where the chunk starts: at its dictionary, if it has one."""
    pages, dictionary = column.chunk[3].get(9, 0), column.chunk[3].get(11, 0)
    return int(dictionary if 0 < dictionary < pages else min(pages, column.pages[0][1]))


def _is_sound(column: PagedColumn) -> bool:
    """Return True if the pages follow each other in the file, and cover all rows."""
    follows = all(page[1] + page[2] == after[1] for page, after in pairwise(column.pages))
    rows = column.rows_of_pages
    return follows and bool(rows) and rows[0].start == 0 and all(len(span) > 0 for span in rows)

"""Reads Parquet files as Arrow batches, one row group after the other; memory bounds the rows of a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.files import FormatReader
from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.options import NoOptions
from volley.formats.parquet_footer import (
    BYTE_ARRAY,
    FIXED_LEN_BYTE_ARRAY,
    ColumnChunk,
    Pages,
    RowGroup,
    Window,
    damaged,
    pages_of,
    refuse_encrypted,
    row_groups,
)
from volley.formats.rows import fitting

__all__ = ["FORMAT", "OpenParquet", "opened"]

_BATCH_ROWS = 65_536
_BATCH_BYTES = 64 << 20
_PROBE_BUFFER = 64 << 10
_FIXED_BYTES = 16
# A larger row group is not read into memory as a whole: each column is read through a buffer.
_LARGEST_GROUP = 256 << 20
_COLUMN_BUFFER = 4 << 20
# The reader decompresses one page per column at the same time. Pages usually have a megabyte; pyarrow checks a page's
# size only every 1,024 values, so images of 100 KB give pages of 100 MB. Decompressing a dictionary makes a copy.
_USUAL_PAGE = 16 << 20
_LARGEST_PAGES = 512 << 20
_COPIES_OF_A_DICTIONARY = 2
# The unit in which 96-bit timestamps of older writers are read, as Spark does: nanoseconds would overflow before 1677
# and after 2262.
_INT96 = "us"


def infer(file: InputFile, options: NoOptions) -> pa.Schema:
    """Return the schema of the file."""
    try:
        with file.open() as stream:
            for group in row_groups(file, stream):
                refuse_encrypted(file, group.chunks)
            return pq.ParquetFile(stream, coerce_int96_timestamp_unit=_INT96).schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged(file, error) from error


def rows_before(file: InputFile, part: tuple[int, int]) -> int:
    """Return the number of the file's rows before a part."""
    with opened(file) as parquet:
        return sum(group.rows for group in parquet.groups[: parquet.part(*part).start])


def rows(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions, encoded: bool = False
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the row groups of a part with the places of their rows, and a `BadRow` for each row that doesn't fit.

    Args:
        schema: Only its columns are read.
        encoded: True: a column with a small dictionary stays dictionary-encoded.
    """
    for batch, before in _batches(file, schema, part, encoded):
        yield from fitting(file, batch, schema, partial(_position, file, before), encoded)


def _position(file: InputFile, before: int, row: int) -> str:
    return f"{file.name}, row {before + row + 1}"


def _batches(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], dictionaries: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the batches of a part, each with the number of the file's rows before it."""
    with opened(file) as parquet:
        file.check_columns(parquet.schema, schema)
        present = set(parquet.schema.names)
        columns = [name for name in schema.names if name in present]
        yield from parquet.batches(columns, parquet.part(*part), schema if dictionaries else None)


@contextmanager
def opened(file: InputFile) -> Iterator[OpenParquet]:
    """Open a Parquet file for as long as the context lasts.

    Raises:
        SourceError: If it is damaged or encrypted.
    """
    try:
        with file.open() as stream:
            groups = row_groups(file, stream)
            source = pq.ParquetFile(stream, coerce_int96_timestamp_unit=_INT96)
            yield OpenParquet(file, stream, groups, source.metadata, source.schema_arrow)
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        raise damaged(file, error) from error


@dataclass(frozen=True)
class OpenParquet:
    """An open Parquet file.

    Args:
        file: The file, for its name in errors.
        metadata: Its footer, as pyarrow's object.
        schema: Its columns, as Arrow reads them.
    """

    file: InputFile
    stream: Any
    groups: Sequence[RowGroup]
    metadata: pq.FileMetaData
    schema: pa.Schema

    def part(self, number: int, parts: int) -> range:
        """Return the row groups of one of several parts of similar size."""
        count = len(self.groups)
        return range(number * count // parts, (number + 1) * count // parts)

    def batches(
        self, columns: Sequence[str], groups: Iterable[int], encoded: pa.Schema | None = None, rows: int = _BATCH_ROWS
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows of some row groups, each batch with the number of the file's rows before it.

        Args:
            columns: The names of the top-level columns to read.
            groups: The numbers of the row groups, ascending.
            encoded: The types of columns that stay dictionary-encoded if their dictionary is small; None = none stays.
            rows: The most rows of a batch; long values make it smaller.
        """
        window = Window(self.stream)
        starts = [0, *accumulate(group.rows for group in self.groups)]
        for index in groups:
            before = starts[index]
            group = _OpenRowGroup.open(self.file, window, self.metadata, index, self.groups[index], columns)
            for batch in group.batches(columns, encoded, rows):
                yield batch, before
                before += batch.num_rows


@dataclass(frozen=True)
class _OpenRowGroup:
    """A row group of an open file, with the columns to read.

    Args:
        file: The file, for its name in errors.
        metadata: Its footer, as pyarrow's object.
        number: The number of the row group, from 0.
        columns: The column chunks to read, and their page sizes.
        buffer: The read buffer per column in bytes; 0 = all chunks are in memory.
    """

    file: InputFile
    window: Window
    metadata: pq.FileMetaData
    number: int
    rows: int
    columns: Sequence[tuple[ColumnChunk, Pages]]
    buffer: int

    @classmethod
    def open(
        cls,
        file: InputFile,
        window: Window,
        metadata: pq.FileMetaData,
        number: int,
        group: RowGroup,
        columns_to_read: Collection[str],
    ) -> _OpenRowGroup:
        """Read the headers of all pages; nothing is decompressed yet."""
        chunks = [chunk for chunk in group.chunks if _is_of(chunk.leaf.path, columns_to_read)]
        refuse_encrypted(file, chunks)
        fits = sum(chunk.size for chunk in chunks) <= _LARGEST_GROUP
        window.hold(chunks if fits else [])
        columns = [(chunk, pages_of(window, chunk)) for chunk in chunks]
        return cls(file, window, metadata, number, group.rows, columns, 0 if fits else _COLUMN_BUFFER)

    def batches(self, names: Sequence[str], encoded: pa.Schema | None, most: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `most` in a batch; see `OpenParquet.batches`."""
        self._refuse_large_pages()
        stored = self._stored()
        encoded_paths = [
            path for path, values in stored.items() if encoded is not None and _can_stay_encoded(path, values, encoded)
        ]
        rows = min(most, self._rows_of_a_batch(stored))
        # Free the dictionaries: they can be large, and are no longer needed.
        stored.clear()
        return self._read(encoded_paths, self.buffer, rows, names)

    def _read(
        self, dictionaries: Sequence[str], buffer: int, rows: int, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        reader = pq.ParquetFile(
            self.window,
            metadata=self.metadata,
            read_dictionary=dictionaries,
            buffer_size=buffer,
            pre_buffer=False,
            coerce_int96_timestamp_unit=_INT96,
        )
        batches: Iterator[pa.RecordBatch] = reader.iter_batches(rows, [self.number], names, use_threads=False)
        return batches

    def _refuse_large_pages(self) -> None:
        """Raise SourceError if one page per column, decompressed together, would take too much memory."""
        for chunk, pages in self.columns:
            if chunk.leaf.physical_type == BYTE_ARRAY and pages.mean > LARGEST_VALUE:
                raise self._too_large(chunk, "value", pages.mean, LARGEST_VALUE)
        needed = [_unpacked(pages) for _, pages in self.columns]
        if sum(needed) > _LARGEST_PAGES:
            chunk, pages = self.columns[needed.index(max(needed))]
            more = "write the file with smaller row groups"
            raise self._too_large(chunk, "page", max(pages.data, pages.dictionary), _LARGEST_PAGES, more)

    def _too_large(self, chunk: ColumnChunk, what: str, size: float, limit: int, more: str = "") -> SourceError:
        message = f"{self.file.name}: column {chunk.leaf.path!r} has a {what} of {megabytes(size)}"
        return SourceError(message, hint="; ".join(filter(None, [f"{megabytes(limit)} are the limit", more])))

    def _stored(self) -> dict[str, pa.Array]:
        """Return the dictionary of each column of text or bytes that has one; reads the first row for it."""
        # Decimals can be stored as bytes of any length too; Arrow never returns those as dictionaries.
        paths = [
            chunk.leaf.path
            for chunk, pages in self.columns
            if pages.dictionary and chunk.leaf.physical_type == BYTE_ARRAY and not chunk.leaf.is_decimal
        ]
        if not paths:
            return {}
        first = next(self._read(paths, _PROBE_BUFFER, 1, paths), None)
        leaves = [leaf for column in (first.columns if first else ()) for leaf in _dictionaries(column)]
        return dict(zip(paths, (leaf.dictionary for leaf in leaves), strict=True)) if first else {}

    def _rows_of_a_batch(self, stored: Mapping[str, pa.Array]) -> int:
        """Return how many rows fit into a batch; page sizes are encoded sizes: a long repeated value is stored once."""
        row = 0.0
        for chunk, pages in self.columns:
            values = stored.get(chunk.leaf.path)
            longest = 0 if values is None else pc.max(pc.binary_length(values)).as_py() or 0
            value = max(longest, _bytes_of_a_value(chunk, pages))
            count = max(1.0, chunk.values / max(1, self.rows))
            if (most := max(value, count * _FIXED_BYTES)) > LARGEST_VALUE:
                raise self._too_large(chunk, "value", most, LARGEST_VALUE)
            row += value * count
        return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, row))))


def _unpacked(pages: Pages) -> int:
    needed = pages.data, pages.dictionary * _COPIES_OF_A_DICTIONARY
    return sum(size for size in needed if size > _USUAL_PAGE)


def _is_of(path: str, columns: Collection[str]) -> bool:
    """Return True if the leaf at this path is one of the columns, or nested in one; names may contain dots."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in columns for length in range(1, len(parts) + 1))


def _bytes_of_a_value(chunk: ColumnChunk, pages: Pages) -> float:
    """Return the bytes that a value of a column takes in memory, by the headers of its pages."""
    if chunk.leaf.physical_type == FIXED_LEN_BYTE_ARRAY:
        return float(chunk.leaf.length)
    return _FIXED_BYTES + (pages.value if chunk.leaf.physical_type == BYTE_ARRAY else 0)


def _can_stay_encoded(path: str, values: pa.Array, schema: pa.Schema) -> bool:
    """Return True if the column at this path can keep this dictionary in memory."""
    from volley.columns.dictionaries import is_small

    if path not in schema.names or "." in path:
        return False
    field = schema.field(path)
    return field.type == values.type and is_small(values, field)


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """Yield the dictionary arrays within an array, in the order of Parquet's leaf columns."""
    if pa.types.is_dictionary(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            yield from _dictionaries(array.field(index))
    elif pa.types.is_map(array.type):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_nested(array.type):
        # Lists of all kinds.
        yield from _dictionaries(array.values)


FORMAT = FormatReader(infer, rows, encoded_rows=partial(rows, encoded=True), rows_before=rows_before)
"""The reader of Parquet files."""

"""Parquet → Arrow batches, one row group after the other; a batch has as many rows as fit into bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volley.arrow.batches import conform
from volley.arrow.bisect import process_or_bisect
from volley.arrow.python_values import bad_row
from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.files import FormatReader
from volley.formats.input_file import LARGEST_VALUE, InputFile
from volley.formats.parquet_footer import (
    BYTE_ARRAY,
    FIXED_LEN_BYTE_ARRAY,
    Chunk,
    Group,
    damaged,
    read_footer,
    refuse_encrypted,
)
from volley.formats.parquet_pages import Pages, Window, pages_of

__all__ = ["FORMAT"]

_BATCH_ROWS = 65_536
_BATCH_BYTES = 64 << 20
_PROBE_BUFFER = 64 << 10
_FIXED_BYTES = 16
# A larger row group is not taken into memory whole: each column is read through a buffer.
_LARGEST_GROUP = 256 << 20
_COLUMN_BUFFER = 4 << 20
# The reader unpacks a page of each column at the same time. Writers make pages of a megabyte; pyarrow looks at a page's
# size only after 1,024 values, and images of 100 KB make one of 100 MB. A dictionary is copied while it is unpacked.
_USUAL_PAGE = 16 << 20
_LARGEST_PAGES = 512 << 20
_COPIES_OF_A_DICTIONARY = 2
# The unit of the timestamps of 96 bits that older writers make, as Spark reads them: as nanoseconds, years before 1677
# and after 2262 would be others.
_INT96 = "us"


def check(schema: pa.Schema) -> None:
    """Parquet holds all types."""


def infer(file: InputFile, options: Mapping[str, Any]) -> pa.Schema:
    """The schema that stands in the file."""
    try:
        with file.open() as stream:
            for group in read_footer(file, stream).groups:
                refuse_encrypted(file, group.chunks)
            return pq.ParquetFile(stream, coerce_int96_timestamp_unit=_INT96).schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged(file, error) from error


def read(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The row groups of part `i` of `n`; only the columns that are wanted."""
    return _strict(_rows(file, schema, part, dictionaries=False))


def read_encoded(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The same; a column of few values is not taken out of its dictionary."""
    return _strict(_rows(file, schema, part, dictionaries=True))


def _strict(rows: Iterator[PositionedBatch | BadRow]) -> Iterator[pa.RecordBatch]:
    for found in rows:
        if isinstance(found, BadRow):
            hint = "mend the file, or declare a schema that fits it"
            raise SourceError(f"{found.position}: {found.error}", hint=hint)
        yield found.batch


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[PositionedBatch | BadRow]:
    """The same rows, and each that does not fit the schema."""
    return _rows(file, schema, part, dictionaries=False)


def _rows(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], dictionaries: bool
) -> Iterator[PositionedBatch | BadRow]:
    for batch, before in _batches(file, schema, part, dictionaries):
        # Types that never fit are the file's fault, not a row's.
        file.conform(batch.slice(0, 0), schema)
        yield from _fitting(file, batch, schema, before, dictionaries)


def _fitting(
    file: InputFile, batch: pa.RecordBatch, schema: pa.Schema, before: int, dictionaries: bool
) -> Iterator[PositionedBatch | BadRow]:
    def attempt(start: int, end: int) -> PositionedBatch | BadRow:
        rows = conform(batch.slice(start, end - start), schema, dictionaries)
        return PositionedBatch(rows, lambda row: position(start + row))

    def single(row: int, error: Exception) -> BadRow:
        assert isinstance(error, SourceError)
        return bad_row(batch, row, error.message, position(row))

    def position(row: int) -> str:
        return f"{file.name}, row {before + row + 1}"

    return process_or_bisect(batch.num_rows, attempt, single, (SourceError,))


def _batches(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], dictionaries: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The row groups of part `i` of `n`, with the number of rows in front of each batch."""
    number, parts = part
    try:
        with file.open() as stream:
            groups = read_footer(file, stream).groups
            source = pq.ParquetFile(stream, coerce_int96_timestamp_unit=_INT96)
            present = set(source.schema_arrow.names)
            columns = [name for name in schema.names if name in present]
            first, last = number * len(groups) // parts, (number + 1) * len(groups) // parts
            before = sum(group.rows for group in groups[:first])
            window = Window(stream)
            for at in range(first, last):
                group = _RowGroup.found(file, window, source.metadata, at, groups[at], columns)
                for batch in group.batches(columns, schema if dictionaries else None):
                    yield batch, before
                    before += batch.num_rows
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        raise damaged(file, error) from error


@dataclass(frozen=True)
class _RowGroup:
    """A row group of an open file, of which the wanted columns can be read.

    Args:
        file: The file's name is in errors.
        window: The open file.
        metadata: Its footer as pyarrow has it.
        at: The number of the row group.
        rows: How many rows it has.
        columns: The chunks that are wanted, and the sizes of their pages.
        buffer: Through how many bytes a column is read; 0 = all chunks are in memory.
    """

    file: InputFile
    window: Window
    metadata: pq.FileMetaData
    at: int
    rows: int
    columns: Sequence[tuple[Chunk, Pages]]
    buffer: int

    @classmethod
    def found(
        cls, file: InputFile, window: Window, metadata: pq.FileMetaData, at: int, group: Group, names: Collection[str]
    ) -> _RowGroup:
        """Look at the headers of all pages; nothing is unpacked yet."""
        chunks = [chunk for chunk in group.chunks if _is_of(chunk.leaf.path, names)]
        refuse_encrypted(file, chunks)
        fits = sum(chunk.size for chunk in chunks) <= _LARGEST_GROUP
        window.hold(chunks if fits else [])
        columns = [(chunk, pages_of(window, chunk)) for chunk in chunks]
        return cls(file, window, metadata, at, group.rows, columns, 0 if fits else _COLUMN_BUFFER)

    def batches(self, names: Sequence[str], encoded: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """The rows; where `encoded` is a schema, columns of few values of its types stay dictionaries."""
        self._refuse_large_pages()
        stored = self._stored()
        few = [path for path, values in stored.items() if encoded is not None and _stays(path, values, encoded)]
        rows = self._rows_of_a_batch(stored)
        # A dictionary can be large, and is not needed any more.
        stored.clear()
        return self._read(few, self.buffer, rows, names)

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
        found: Iterator[pa.RecordBatch] = reader.iter_batches(rows, [self.at], names, use_threads=False)
        return found

    def _refuse_large_pages(self) -> None:
        """Refuse a row group whose pages, one of each column, take too much memory before they give a single row."""
        for chunk, pages in self.columns:
            if chunk.leaf.kind == BYTE_ARRAY and pages.mean > LARGEST_VALUE:
                raise self._too_large(chunk, "value", pages.mean, LARGEST_VALUE)
        needed = [_unpacked(pages) for _, pages in self.columns]
        if sum(needed) > _LARGEST_PAGES:
            chunk, pages = self.columns[needed.index(max(needed))]
            more = "write the file with smaller row groups"
            raise self._too_large(chunk, "page", max(pages.data, pages.dictionary), _LARGEST_PAGES, more)

    def _too_large(self, chunk: Chunk, what: str, size: float, limit: int, more: str = "") -> SourceError:
        message = f"{self.file.name}: column {chunk.leaf.path!r} has a {what} of {size / (1 << 20):,.0f} MB"
        return SourceError(message, hint="; ".join(filter(None, [f"{limit >> 20} MB are the limit", more])))

    def _stored(self) -> dict[str, pa.Array]:
        """The dictionary of each column of text or bytes that has one; the first row is read for it."""
        # Decimals can be bytes of any length, too; those Arrow does not give as dictionaries.
        paths = [
            chunk.leaf.path
            for chunk, pages in self.columns
            if pages.dictionary and chunk.leaf.kind == BYTE_ARRAY and not chunk.leaf.is_decimal
        ]
        if not paths:
            return {}
        first = next(self._read(paths, _PROBE_BUFFER, 1, paths), None)
        leaves = [leaf for column in (first.columns if first else ()) for leaf in _dictionaries(column)]
        return dict(zip(paths, (leaf.dictionary for leaf in leaves), strict=True)) if first else {}

    def _rows_of_a_batch(self, stored: Mapping[str, pa.Array]) -> int:
        """How many rows fit into a batch. Sizes are encoded ones: a long value that recurs is stored once."""
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
    """True if the leaf at this path is one of the columns, or below one; names may have dots of their own."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in columns for length in range(1, len(parts) + 1))


def _bytes_of_a_value(chunk: Chunk, pages: Pages) -> float:
    """What a value of a column takes in memory, by the headers of its pages."""
    if chunk.leaf.kind == FIXED_LEN_BYTE_ARRAY:
        return float(chunk.leaf.length)
    return _FIXED_BYTES + (pages.value if chunk.leaf.kind == BYTE_ARRAY else 0)


def _stays(path: str, values: pa.Array, schema: pa.Schema) -> bool:
    """True if this dictionary can be that of one of the columns in memory, too."""
    from volley.arrow.dictionaries import is_small

    return path in schema.names and "." not in path and schema.field(path).type == values.type and is_small(values)


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """The dictionary arrays in an array, in the order in which Parquet has their columns."""
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


FORMAT = FormatReader(check, infer, read, read_tolerant, read_encoded)
"""Parquet, as a FileSource reads it."""

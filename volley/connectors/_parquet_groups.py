"""Parquet → Arrow batches, one row group after the other; a batch has as many rows as fit into bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volley._halving import halved
from volley._types import conform
from volley.connectors._input_file import LARGEST_VALUE, InputFile
from volley.errors import SourceError
from volley.source import BadRow, Located

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["check", "infer", "read", "read_encoded", "read_tolerant"]

_BATCH_ROWS = 65_536
_BATCH_BYTES = 64 << 20
_PROBE_BUFFER = 64 << 10
# Values that share what they begin with take next to nothing in the file: what one of them holds is not known.
_GUESS = 1 << 20
_FIXED_BYTES = 16


def check(schema: pa.Schema) -> None:
    """Parquet holds all types."""


def infer(file: InputFile, options: Mapping[str, Any]) -> pa.Schema:
    """The schema that stands in the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            return pq.ParquetFile(stream).schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _broken(file, error) from error


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


def _strict(rows: Iterator[Located | BadRow]) -> Iterator[pa.RecordBatch]:
    for found in rows:
        if isinstance(found, BadRow):
            hint = "mend the file, or declare a schema that fits it"
            raise SourceError(f"{found.position}: {found.error}", hint=hint)
        yield found.batch


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[Located | BadRow]:
    """The same rows, and each that does not fit the schema."""
    return _rows(file, schema, part, dictionaries=False)


def _rows(file: InputFile, schema: pa.Schema, part: tuple[int, int], dictionaries: bool) -> Iterator[Located | BadRow]:
    for batch, before in _batches(file, schema, part, dictionaries):
        # Types that never fit are the file's fault, not a row's.
        file.conform(batch.slice(0, 0), schema)
        yield from _fitting(file, batch, schema, before, dictionaries)


def _fitting(
    file: InputFile, batch: pa.RecordBatch, schema: pa.Schema, before: int, dictionaries: bool
) -> Iterator[Located | BadRow]:
    def attempt(start: int, end: int) -> Located | BadRow:
        rows = conform(batch.slice(start, end - start), schema, dictionaries)
        return Located(rows, lambda row: position(start + row))

    def single(row: int, error: Exception) -> BadRow:
        assert isinstance(error, SourceError)
        return BadRow.of(batch, row, error.message, position(row))

    def position(row: int) -> str:
        return f"{file.name}, row {before + row + 1}"

    return halved(batch.num_rows, attempt, single, (SourceError,))


def _batches(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], dictionaries: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The row groups of part `i` of `n`, with the number of rows in front of each batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, parts = part
    try:
        with file.open() as stream:
            source = pq.ParquetFile(stream)
            count = source.num_row_groups
            present = set(source.schema_arrow.names)
            columns = [name for name in schema.names if name in present]
            first, last = number * count // parts, (number + 1) * count // parts
            before = sum(source.metadata.row_group(group).num_rows for group in range(first))
            for group in range(first, last):
                chunks = _chunks(source.metadata, group, set(columns))
                stored = _stored(stream, source.metadata, group, chunks)
                rows = _rows_of_a_batch(file, source.metadata, group, chunks, stored)
                few = [path for path in stored if dictionaries and _stays(path, stored[path], schema)]
                reader = pq.ParquetFile(stream, metadata=source.metadata, read_dictionary=few) if few else source
                for batch in reader.iter_batches(rows, [group], columns, use_threads=False):
                    yield batch, before
                    before += batch.num_rows
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        raise _broken(file, error) from error


def _chunks(metadata: pq.FileMetaData, group: int, columns: Collection[str]) -> list[pq.ColumnChunkMetaData]:
    """What the footer says of the columns in a row group."""
    found = metadata.row_group(group)
    chunks = (found.column(at) for at in range(found.num_columns))
    return [chunk for chunk in chunks if _is_of(chunk.path_in_schema, columns)]


def _rows_of_a_batch(
    file: InputFile,
    metadata: pq.FileMetaData,
    group: int,
    chunks: Sequence[pq.ColumnChunkMetaData],
    stored: Mapping[str, pa.Array],
) -> int:
    """How many rows fit into a batch. Footers tell encoded sizes only: a long value that recurs is stored once."""
    import pyarrow.compute as pc

    count_rows = max(1, metadata.row_group(group).num_rows)
    longest = {path: pc.max(pc.binary_length(values)).as_py() or 0 for path, values in stored.items()}
    row = 0.0
    for chunk in chunks:
        value = max(longest.get(chunk.path_in_schema, 0), _bytes_of_a_value(metadata, chunk))
        count = max(1.0, chunk.num_values / count_rows)
        if (most := max(value, count * _FIXED_BYTES)) > LARGEST_VALUE:
            taken = f"column {chunk.path_in_schema!r} has a value of {most / (1 << 20):,.0f} MB"
            raise SourceError(f"{file.name}: {taken}", hint=f"{LARGEST_VALUE >> 20} MB are the limit")
        row += value * count
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, row))))


def _is_of(path: str, columns: Collection[str]) -> bool:
    """True if the leaf at this path is one of the columns, or below one; names may have dots of their own."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in columns for length in range(1, len(parts) + 1))


def _bytes_of_a_value(metadata: pq.FileMetaData, chunk: pq.ColumnChunkMetaData) -> float:
    """What a value of a column takes in memory, by the footer."""
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        paths = (metadata.schema.column(at) for at in range(metadata.num_columns))
        return float(next((each.length for each in paths if each.path == chunk.path_in_schema), _FIXED_BYTES))
    if chunk.physical_type != "BYTE_ARRAY":
        return _FIXED_BYTES
    if "DELTA_BYTE_ARRAY" in chunk.encodings:
        return min(_GUESS, int(chunk.total_uncompressed_size))
    return float(chunk.total_uncompressed_size / max(1, chunk.num_values) + _FIXED_BYTES)


def _stays(path: str, values: pa.Array, schema: pa.Schema) -> bool:
    """True if this dictionary can be that of one of the columns in memory, too."""
    from volley._encoded import is_few

    return path in schema.names and "." not in path and schema.field(path).type == values.type and is_few(values)


def _stored(
    stream: Any, metadata: pq.FileMetaData, group: int, chunks: Sequence[pq.ColumnChunkMetaData]
) -> dict[str, pa.Array]:
    """The dictionary of each column of text or bytes that has one; the first row is read for it."""
    import pyarrow.parquet as pq

    listed = [
        chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    ]
    leaves_of_file = (metadata.schema.column(at) for at in range(metadata.num_columns))
    # Decimals can be bytes of any length, too; those Arrow does not give as dictionaries.
    decimals = {leaf.path for leaf in leaves_of_file if leaf.logical_type.type == "DECIMAL"}
    paths = [path for path in listed if path not in decimals]
    if not paths:
        return {}
    probe = pq.ParquetFile(stream, metadata=metadata, read_dictionary=paths, buffer_size=_PROBE_BUFFER)
    first = next(probe.iter_batches(1, [group], paths, use_threads=False), None)
    leaves = [leaf for column in (first.columns if first else ()) for leaf in _dictionaries(column)]
    return dict(zip(paths, (leaf.dictionary for leaf in leaves), strict=True)) if first else {}


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """The dictionary arrays in an array, in the order in which Parquet has their columns."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            yield from _dictionaries(array.field(index))
    elif pa.types.is_map(array.type):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _dictionaries(array.values)


def _broken(file: InputFile, error: Exception) -> SourceError:
    return SourceError(f"{file.name} is not a whole Parquet file: {error}", hint="write it again; it may be cut short")

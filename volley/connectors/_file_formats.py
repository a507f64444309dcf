"""The formats that files are read in: how each is recognised, its schema inferred and its rows read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley._halving import halved
from volley._types import conform
from volley.connectors import _csv_rows, _csv_salvage, _json_lines
from volley.connectors._input_file import InputFile
from volley.errors import SourceError
from volley.source import BadRow, Located

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "Format", "format_of"]

_BATCH_ROWS = 65_536
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True)
class Format:
    """One file format.

    Args:
        extensions: The file names it is recognised by.
        check: Refuses a schema that the format can't be read into.
        infer: From a file and the format's options to a schema.
        read: From a file, the schema, the part of it to read and the options to batches, in bounded memory.
        read_tolerant: The same, with the place of each row, and with the rows that can't be read.
        options: The options it knows.
        divisible: True if a large file is read in parts, by several tasks.
    """

    extensions: tuple[str, ...]
    check: Callable[[pa.Schema], None]
    infer: Callable[[InputFile, Mapping[str, Any]], pa.Schema]
    read: Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[pa.RecordBatch]]
    read_tolerant: Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[Located | BadRow]]
    options: tuple[str, ...] = ()
    divisible: bool = False

    def compression(self, path: str) -> str | None:
        """How a file of this format is compressed as a whole, by its name; Parquet never is."""
        return (
            None if self.divisible else next((kind for end, kind in _COMPRESSIONS.items() if path.endswith(end)), None)
        )


def format_of(path: str) -> str | None:
    """The name of the format that a path's extension tells."""
    for ending in _COMPRESSIONS:
        path = path.removesuffix(ending)
    return next((name for name, known in FORMATS.items() if path.endswith(known.extensions)), None)


def _check_parquet(schema: pa.Schema) -> None:
    """Parquet holds all types."""


def _infer_parquet(file: InputFile, options: Mapping[str, Any]) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            return pq.ParquetFile(stream).schema_arrow
    except pa.ArrowException as error:
        raise _cut_short(file, error) from error


def _read_parquet(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of one part, one batch after the other."""
    for found in _read_parquet_tolerant(file, schema, part, options):
        if isinstance(found, BadRow):
            raise SourceError(
                f"{found.position}: {found.error}", hint="mend the file, or declare a schema that fits it"
            )
        yield found.batch


def _read_parquet_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[Located | BadRow]:
    """The same rows, and each that does not fit the schema."""
    for batch, before in _parquet_batches(file, schema, part):
        # Types that never fit are the file's fault, not a row's.
        file.conform(batch.slice(0, 0), schema)
        yield from _fitting(file, batch, schema, before)


def _fitting(file: InputFile, batch: pa.RecordBatch, schema: pa.Schema, before: int) -> Iterator[Located | BadRow]:
    def attempt(start: int, end: int) -> Located | BadRow:
        rows = conform(batch.slice(start, end - start), schema)
        return Located(rows, lambda row: position(start + row))

    def single(row: int, error: Exception) -> BadRow:
        assert isinstance(error, SourceError)
        return BadRow.of(batch, row, error.message, position(row))

    def position(row: int) -> str:
        return f"{file.name}, row {before + row + 1}"

    return halved(batch.num_rows, attempt, single, (SourceError,))


def _parquet_batches(file: InputFile, schema: pa.Schema, part: tuple[int, int]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The row groups of part `i` of `n`, only the columns that are wanted; with the rows in front of each batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, parts = part
    try:
        with file.open() as stream:
            source = pq.ParquetFile(stream)
            count = source.num_row_groups
            groups = list(range(number * count // parts, (number + 1) * count // parts))
            columns = [name for name in schema.names if name in source.schema_arrow.names]
            before = sum(source.metadata.row_group(group).num_rows for group in range(number * count // parts))
            for batch in source.iter_batches(_BATCH_ROWS, groups, columns, use_threads=False) if groups else ():
                yield batch, before
                before += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _cut_short(file, error) from error


def _cut_short(file: InputFile, error: Exception) -> SourceError:
    return SourceError(f"{file.name} is not a whole Parquet file: {error}", hint="write it again; it may be cut short")


FORMATS = {
    "json": Format(
        extensions=(".json", ".jsonl", ".ndjson"),
        check=_json_lines.check,
        infer=_json_lines.infer,
        read=_json_lines.read,
        read_tolerant=_json_lines.read_tolerant,
    ),
    "csv": Format(
        extensions=(".csv",),
        check=_csv_rows.check,
        infer=_csv_rows.infer,
        read=_csv_rows.read,
        read_tolerant=_csv_salvage.read_tolerant,
        options=("header", "delimiter"),
    ),
    "parquet": Format(
        extensions=(".parquet",),
        check=_check_parquet,
        infer=_infer_parquet,
        read=_read_parquet,
        read_tolerant=_read_parquet_tolerant,
        divisible=True,
    ),
}

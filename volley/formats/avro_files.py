"""Reads Avro object container files as Arrow batches, one block after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from volley.arrow.uuids import array_of
from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError, VolleyError
from volley.formats.avro import avro_columns, file_reader
from volley.formats.files import FormatReader
from volley.formats.fitting import fitting, strict
from volley.formats.input_file import InputFile
from volley.formats.options import NoOptions

__all__ = ["FORMAT"]

_BATCH_ROWS = 10_000


def check(schema: pa.Schema) -> None:
    """Do nothing: a value that a column can't hold is a bad row."""


def infer(file: InputFile, options: NoOptions) -> pa.Schema:
    """Return the schema of the file."""
    with _opened(file) as (_, schema):
        return schema


def read(file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows; one task reads a whole file."""
    return strict(read_tolerant(file, schema, part, options))


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the same rows with their places, and a `BadRow` for each row that doesn't fit the schema."""
    with _opened(file) as (records, own):
        file.check_columns(own, schema)
        # At least one column: batches without columns have lost their number of rows.
        fields, before = [field for field in own if field.name in schema.names] or [*own][:1], 0
        while rows := list(islice(records, _BATCH_ROWS)):
            columns = [array_of([row[field.name] for row in rows], field.type) for field in fields]
            batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
            yield from fitting(file, batch, schema, partial(_position, file, before))
            before += len(rows)


def _position(file: InputFile, before: int, row: int) -> str:
    return f"{file.name}, row {before + row + 1}"


@contextmanager
def _opened(file: InputFile) -> Iterator[tuple[Iterator[dict[str, Any]], pa.Schema]]:
    """Open a file as its records and their columns."""
    try:
        with file.open() as stream:
            text, records = file_reader(stream, file.name)
            yield records, avro_columns(text)
    except VolleyError:
        raise
    except Exception as error:
        # fastavro raises any type of exception on broken bytes.
        raise SourceError(
            f"{file.name} is not a whole Avro file: {type(error).__name__}: {error}",
            hint="was it cut, or is it another format?",
        ) from error


FORMAT = FormatReader(check, infer, read, read_tolerant)
"""The reader of Avro files."""

"""Reads ORC files as Arrow batches, one stripe after the other; memory holds a stripe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyarrow import orc

from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.files import FormatReader
from volley.formats.fitting import fitting, strict
from volley.formats.input_file import InputFile
from volley.formats.options import NoOptions

__all__ = ["FORMAT"]


def check(schema: pa.Schema) -> None:
    """Do nothing: ORC holds all types that a file of it is read into."""


def infer(file: InputFile, options: NoOptions) -> pa.Schema:
    """Return the schema of the file."""
    with _opened(file) as source:
        schema: pa.Schema = source.schema
        return schema


def read(file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions) -> Iterator[pa.RecordBatch]:
    """Yield the stripes of a part; only the schema's columns are read."""
    return strict(read_tolerant(file, schema, part, options))


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the same rows with their places, and a `BadRow` for each row that doesn't fit the schema."""
    number, parts = part
    with _opened(file) as source:
        file.check_columns(source.schema, schema)
        # At least one column: batches without columns have lost their number of rows.
        columns = [name for name in schema.names if name in source.schema.names] or source.schema.names[:1]
        for stripe in range(number * source.nstripes // parts, (number + 1) * source.nstripes // parts):
            batch = source.read_stripe(stripe, columns)
            yield from fitting(file, batch, schema, partial(_position, file, stripe))


def _position(file: InputFile, stripe: int, row: int) -> str:
    return f"{file.name}, stripe {stripe + 1}, row {row + 1}"


@contextmanager
def _opened(file: InputFile) -> Iterator[orc.ORCFile]:
    try:
        with file.open() as stream:
            yield orc.ORCFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{file.name} is not a whole ORC file: {error}", hint="was it cut, or is it another format?"
        ) from error


FORMAT = FormatReader(check, infer, read, read_tolerant)
"""The reader of ORC files."""

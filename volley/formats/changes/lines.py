"""Reads files of changes: one message a line, or an array of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from volley.columns.letters import column_in, payload_of
from volley.contracts.rows import BadRow, PositionedBatch
from volley.formats.change_options import CHANGES, ChangeOptions
from volley.formats.changes.decoder import ChangeValues
from volley.formats.changes.packed import change_values
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile
from volley.formats.json_lines import texts_of
from volley.formats.messages import Decoder

__all__ = list(CHANGES)


def _infer(file: InputFile, options: ChangeOptions) -> pa.Schema | None:
    raise AssertionError("a schema is declared")


def _rows(
    value_format: str, file: InputFile, schema: pa.Schema, part: tuple[int, int], options: ChangeOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the rows of changes, and a `BadRow` for each line that is no message."""
    own = pa.schema([field for field in schema if field.name not in options.added])
    on_unknown = "drop" if file.columns is None else file.columns.on_unknown
    sight = None if file.columns is None else file.columns.sight
    inferred = None if sight is None else sight.columns
    decoder = (
        change_values(own, value_format, options, on_unknown)
        if inferred is None
        else ChangeValues(own, value_format, options, on_unknown, inferred=inferred)
    )
    for place, before, text in texts_of(file, part):
        yield from _items(place, before, text.split(b"\n"), decoder)


def _items(file: InputFile, before: int, texts: list[bytes], decoder: Decoder) -> Iterator[PositionedBatch | BadRow]:
    lines = [(number, line.strip()) for number, line in enumerate(texts, before + 1) if line.strip()]
    values = [line for _, line in lines]

    def position(number: int) -> str:
        return file.position(lines[number][0])

    def bad_row(number: int, fault: str) -> BadRow:
        payload, format = payload_of(values[number], decoder.format)
        return BadRow(payload, fault, position(number), format, column_in(fault))

    yield from decoder.sort(values, file.name).items(position, bad_row)


def _reader(value_format: str) -> FormatReader:
    def columns(schema: pa.Schema, options: ChangeOptions) -> pa.Schema:
        return change_values(schema, value_format, options, "drop").schema

    return FormatReader(_infer, partial(_rows, value_format), columns=columns)


# The readers of files, by the name of their format.
debezium, maxwell, canal, dms, airbyte, olake, changes = map(_reader, CHANGES)

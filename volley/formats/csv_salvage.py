"""Reads CSV files that have bad rows: batches of good rows, and each bad row; slow only after the first bad block."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.csv as pcsv

from volley.arrow.bisect import process_or_bisect
from volley.bad_rows import BadRow, PositionedBatch
from volley.formats.csv import batches, check, header, infer, part_of_rows, read, reason, rules
from volley.formats.csv_floats import texts_of
from volley.formats.csv_records import Record, raw_records, records
from volley.formats.csv_values import BadValue, decoded
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile
from volley.formats.options import CsvOptions

__all__ = ["FORMAT"]

_GROUP = 10_000


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: CsvOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the file's rows with their line numbers, and a `BadRow` for each row that can't be read."""
    file = part_of_rows(file, part, options)
    names = header(file, schema, options)
    if names is None:
        return
    done = 1 if options.has_header else 0
    places = _Places(file, options)
    try:
        for batch in batches(file, schema, options):
            yield PositionedBatch(batch, partial(places.position, done + 1))
            done += batch.num_rows
    except (BadValue, pa.ArrowInvalid):
        # Arrow drops the whole block: read everything after the last good batch again, as raw rows.
        yield from _salvaged(file, islice(raw_records(file, options), done, None), names, schema, options)


class _Places:
    """The line each row starts at; reads the file a second time, only if a row is bad."""

    def __init__(self, file: InputFile, options: CsvOptions) -> None:
        self._file = file
        self._records = enumerate(records(file, options), 1)

    def position(self, first: int, row: int) -> str:
        # A field too long for Python's reader ends the search.
        with suppress(csv.Error):
            for number, (line, _) in self._records:
                if number == first + row:
                    return self._file.position(line)
        return self._file.position(first + row, "row")


def _salvaged(
    file: InputFile, raw: Iterator[Record], names: list[str], schema: pa.Schema, options: CsvOptions
) -> Iterator[PositionedBatch | BadRow]:
    while group := list(islice(raw, _GROUP)):

        def attempt(start: int, end: int, group: list[Record] = group) -> PositionedBatch | BadRow:
            return PositionedBatch(
                _parsed(group[start:end], names, schema, options),
                lambda row: file.position(group[start + row].line),
            )

        def single(index: int, error: Exception, group: list[Record] = group) -> BadRow:
            record = group[index]
            reason_text = error.reason if isinstance(error, BadValue) else reason(error, names)
            return BadRow(record.payload, reason_text, file.position(record.line))

        yield from process_or_bisect(len(group), attempt, single, (BadValue, pa.ArrowInvalid))


def _parsed(group: list[Record], names: list[str], schema: pa.Schema, options: CsvOptions) -> pa.RecordBatch:
    if not all(record.whole for record in group):
        raise BadValue(0, "a quote is opened and never closed")
    data = "".join(record.text for record in group).encode(errors="surrogateescape")
    # As for whole files: without a line end, Arrow may read an empty last value as a text.
    data += b"" if data.endswith((b"\r", b"\n")) else b"\n"
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)

    def parse(columns: pa.Schema) -> pa.RecordBatch:
        table = pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **rules(columns, options))
        if table.num_rows != len(group):
            raise BadValue(0, f"{table.num_rows} rows where one should be")
        return table.combine_chunks().to_batches()[0]

    return decoded(parse(schema), schema, options, lambda: parse(texts_of(schema)))


FORMAT = FormatReader(check, infer, read, read_tolerant)
"""The reader of CSV files."""

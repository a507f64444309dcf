"""Reads CSV files that have bad rows: batches of good rows, and each bad row; slow only after the first bad block."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.csv as pcsv

from volley.columns.batches import one_batch
from volley.columns.bisect import process_or_bisect
from volley.contracts.rows import BadRow, PositionedBatch
from volley.formats.csv import batches, check, header, infer, part_of_rows, read, reason, rules
from volley.formats.csv_faults import collect_widths, conversion_faults, marked
from volley.formats.csv_numbers import texts_of
from volley.formats.csv_records import Record, records
from volley.formats.csv_values import BadValue, decoded
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile
from volley.formats.options import CsvOptions
from volley.formats.sorted_rows import Sorted, joined

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
        yield from _salvaged(file, islice(records(file, options), done, None), names, schema, options)


class _Places:
    """The line each row starts at; reads the file a second time, only if a row is bad."""

    def __init__(self, file: InputFile, options: CsvOptions) -> None:
        self._file = file
        self._records = enumerate(records(file, options), 1)

    def position(self, first: int, row: int) -> str:
        for number, record in self._records:
            if number == first + row:
                return self._file.position(record.line)
        return self._file.position(first + row, "row")


def _salvaged(
    file: InputFile, raw: Iterator[Record], names: list[str], schema: pa.Schema, options: CsvOptions
) -> Iterator[PositionedBatch | BadRow]:
    while group := list(islice(raw, _GROUP)):

        def position(number: int, group: list[Record] = group) -> str:
            return file.position(group[number].line)

        def bad_row(number: int, fault: str, group: list[Record] = group) -> BadRow:
            return BadRow(group[number].payload, fault, file.position(group[number].line))

        yield from _sorted(group, names, schema, options).items(position, bad_row)


def _sorted(group: list[Record], names: list[str], schema: pa.Schema, options: CsvOptions) -> Sorted:
    faults = _faults(group, names, schema, options)
    good = [number for number in range(len(group)) if number not in faults]

    def attempt(start: int, end: int) -> Sorted:
        numbers = good[start:end]
        return Sorted([_parsed([group[number] for number in numbers], names, schema, options)], numbers, {})

    def single(index: int, error: Exception) -> Sorted:
        return Sorted([], [], {good[index]: error.reason if isinstance(error, BadValue) else reason(error, names)})

    pieces = process_or_bisect(len(good), attempt, single, (BadValue, pa.ArrowInvalid)) if good else ()
    return joined([Sorted([], [], faults), *pieces])


def _faults(group: list[Record], names: list[str], schema: pa.Schema, options: CsvOptions) -> dict[int, str]:
    """Return the rows that are surely bad, and why."""
    faults = {number: record.fault for number, record in enumerate(group) if record.fault}
    texts = {number: marked(record.text) for number, record in enumerate(group) if not record.fault}
    rows = [(number, text) for number, text in texts.items() if text is not None]
    widths: dict[int, str] = {}
    batch = _texts([text for _, text in rows], names, schema, options, widths)
    if batch is None:
        return faults
    faults |= {rows[row][0]: fault for row, fault in widths.items()}
    numbers = [number for row, (number, _) in enumerate(rows) if row not in widths]
    for row, fault in conversion_faults(batch, schema, options):
        faults.setdefault(numbers[row], fault)
    return faults


def _texts(
    texts: list[str], names: list[str], schema: pa.Schema, options: CsvOptions, widths: dict[int, str]
) -> pa.RecordBatch | None:
    """Return the fields of rows as texts, and collect those with the wrong number; None if they can't be told apart."""
    data = "".join(text if text.endswith(("\n", "\r")) else f"{text}\n" for text in texts).encode()
    columns = pa.schema([(field.name, pa.string()) for field in schema])
    settings = rules(columns, options)
    collect_widths(settings["parse_options"], widths)
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)
    try:
        table = pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **settings)
    except pa.ArrowInvalid:
        return None
    return one_batch(table) if table.num_rows + len(widths) == len(texts) else None


def _parsed(group: list[Record], names: list[str], schema: pa.Schema, options: CsvOptions) -> pa.RecordBatch:
    data = "".join(record.text for record in group).encode(errors="surrogateescape")
    # As for whole files: without a line end, Arrow may read an empty last value as a text.
    data += b"" if data.endswith((b"\r", b"\n")) else b"\n"
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)

    def parse(columns: pa.Schema) -> pa.RecordBatch:
        table = pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **rules(columns, options))
        if table.num_rows != len(group):
            raise BadValue(0, f"{table.num_rows} rows where one should be")
        return table.combine_chunks().to_batches()[0]

    may_have_hexadecimal = b"x" in data or b"X" in data
    return decoded(parse(schema), schema, options, lambda: parse(texts_of(schema)), may_have_hexadecimal)


FORMAT = FormatReader(check, infer, read, read_tolerant)
"""The reader of CSV files."""

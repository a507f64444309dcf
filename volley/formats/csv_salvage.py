"""Reads CSV files that have bad rows: batches of good rows, and each bad row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from volley.columns.batches import one_batch
from volley.columns.letters import column_in, payload_of
from volley.columns.readable import json_of
from volley.contracts.rows import BadRow, PositionedBatch
from volley.formats.csv import HINT, batches, check, header, infer, reason, rules
from volley.formats.csv_blocks import Block, blocks
from volley.formats.csv_columns import CsvColumns, marked, unescaped
from volley.formats.csv_values import BadValue, decoded, has_hexadecimal, texts_of
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile
from volley.formats.lines import RawRow, part_of_rows, records
from volley.formats.options import CsvOptions
from volley.formats.rows import Sorted, sort_good

__all__ = ["FORMAT"]

_ERRORS = (BadValue, pa.ArrowInvalid)
_MOST_SHOWN, _CUT = 100, b" ..."


def collect_widths(parse: pcsv.ParseOptions, faults: dict[int, str]) -> None:
    """Leave out rows with too few or too many fields.

    Args:
        parse: The options by which the rows are parsed.
        faults: Takes the faults, by the rows' numbers from 0.
    """

    def left_out(row: pcsv.InvalidRow) -> str:
        text = unescaped(row.text)
        shown = text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - len(_CUT)] + _CUT
        wrong = f"Expected {row.expected_columns} columns, got {row.actual_columns}: {shown.decode(errors='replace')}"
        faults[row.number - 1] = f"CSV parse error: {wrong}"
        return "skip"

    parse.invalid_row_handler = left_out


def rows(
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
    except _ERRORS as error:
        # Arrow drops the whole block: read everything after the last good batch again, as raw rows.
        suspects = {column_in(_reason(error, names))}
        yield from _salvaged(file, blocks(file, options, done), names, schema, options, suspects)


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
    file: InputFile,
    blocks: Iterator[Block],
    names: list[str],
    schema: pa.Schema,
    options: CsvOptions,
    suspects: Collection[str | None],
) -> Iterator[PositionedBatch | BadRow]:
    own = f"csv {json_of(names)}"
    # Where values of a column were bad, others are.
    bad_columns = {*suspects}
    for block in blocks:

        def position(number: int, block: Block = block) -> str:
            return file.position(block.line(number))

        def bad_row(number: int, fault: str, block: Block = block) -> BadRow:
            payload, format = payload_of(block.text(number), "text" if number in block.faults else own)
            column = column_in(fault)
            bad_columns.add(column)
            return BadRow(payload, fault, file.position(block.line(number)), format, column)

        items = None if bad_columns else _whole(block, names, schema, options)
        items = items or _sorted(block, names, schema, options, bad_columns)
        bad_columns.clear()
        yield from items.items(position, bad_row)


def _whole(block: Block, names: list[str], schema: pa.Schema, options: CsvOptions) -> Sorted | None:
    """Return the rows of a block; None if one may be bad."""
    if block.faults:
        return None
    with suppress(*_ERRORS):
        rows = _parsed(block.data, names, schema, options)
        if block.has(rows.num_rows):
            return Sorted([rows], range(rows.num_rows), {})
    return None


def _sorted(
    block: Block, names: list[str], schema: pa.Schema, options: CsvOptions, suspects: Collection[str | None] = ()
) -> Sorted:
    """Sort the rows of a block: in one pass if bad values are in the suspected columns alone, or if there are none."""
    for texts in (suspects, schema.names):
        faults, rows = _looked_at(block, texts, names, schema, options)
        if rows is not None and rows.num_rows == len(block):
            return Sorted([rows], [*range(len(block))], {})
        good = np.delete(np.arange(len(block)), [*faults])
        # Looked up by few, and copied by none.
        numbers: list[int] = good.tolist()
        if rows is not None and rows.num_rows == len(numbers):
            return Sorted([rows], numbers, dict(sorted(faults.items())))

    def convert(start: int, end: int) -> Sorted:
        rows = _parsed(block.joined(good[start:end]), names, schema, options)
        if rows.num_rows != end - start:
            raise BadValue(0, f"{rows.num_rows} rows where one should be")
        return Sorted([rows], numbers[start:end], {})

    return sort_good(faults, numbers, convert, lambda _, error: _reason(error, names), _ERRORS)


def _reason(error: Exception, names: list[str]) -> str:
    return error.reason if isinstance(error, BadValue) else reason(error, names)


def _looked_at(
    block: Block, texts: Collection[str | None], names: list[str], schema: pa.Schema, options: CsvOptions
) -> tuple[dict[int, str], pa.RecordBatch | None]:
    """Return the rows that are surely bad, and why; and those that are surely good, None if that is in doubt.

    Args:
        texts: The columns that may have bad values.
    """
    faults = dict(block.faults)
    numbers, data, has_marks = _marked_rows(block)
    hexadecimal, widths = has_hexadecimal(data, schema, options), dict[int, str]()
    rows = _read(data, names, _with_texts(schema, texts, hexadecimal), options, widths)
    count = rows.num_rows + len(widths) if rows is not None else 0
    if rows is None or not (block.has(count) if numbers is None else len(numbers) == count):
        return faults, None
    if numbers is None:
        numbers = range(count)
    faults |= {numbers[row]: fault for row, fault in widths.items()}
    if widths:
        numbers = [number for row, number in enumerate(numbers) if row not in widths]
    columns, is_good = CsvColumns(rows, schema, options, hexadecimal, has_marks), np.ones(rows.num_rows, np.bool_)
    for row, fault in columns.faults():
        faults.setdefault(numbers[row], fault)
        is_good[row] = False
    return faults, columns.chosen(is_good)


def _with_texts(schema: pa.Schema, texts: Collection[str | None], hexadecimal: bool) -> pa.Schema:
    """Return a schema with texts in the place of some columns, of binary ones, and of ints if they may be misread."""

    def as_read(field: pa.Field) -> pa.DataType:
        is_text = field.name in texts or pa.types.is_binary(field.type)
        return pa.string() if is_text or (hexadecimal and pa.types.is_integer(field.type)) else field.type

    return pa.schema([(field.name, as_read(field)) for field in schema])


def _marked_rows(block: Block) -> tuple[Sequence[int] | None, bytes, bool]:
    """Return the rows that can be marked, None if all can; their text; and False if no byte had to be."""
    numbers = [number for number in range(len(block)) if number not in block.faults] if block.faults else None
    data = block.data if numbers is None else block.joined(numbers)
    if (text := marked(data)) is not None:
        return numbers, text, text is not data
    each = range(len(block)) if numbers is None else numbers
    texts = {number: text for number in each if (text := marked(block.joined([number]))) is not None}
    return [*texts], b"".join(texts.values()), True


def _read(
    data: bytes, names: list[str], schema: pa.Schema, options: CsvOptions, widths: dict[int, str]
) -> pa.RecordBatch | None:
    """Return rows, and collect those with the wrong number of fields; None if a value is bad."""
    settings = rules(schema, options)
    collect_widths(settings["parse_options"], widths)
    # Marked rows are UTF-8.
    settings["convert_options"].check_utf8 = False
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)
    try:
        rows = one_batch(pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **settings))
    except pa.ArrowInvalid:
        return None
    floats = (column for column in rows.columns if pa.types.is_floating(column.type))
    return None if any(pc.any(pc.is_inf(column)).as_py() for column in floats) else rows


def _parsed(data: bytes, names: list[str], schema: pa.Schema, options: CsvOptions) -> pa.RecordBatch:
    """Return rows.

    Raises:
        BadValue: If a value doesn't fit its column's type.
        pyarrow.ArrowInvalid: If a row can't be parsed.
    """
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)

    def parse(columns: pa.Schema) -> pa.RecordBatch:
        return one_batch(pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **rules(columns, options)))

    return decoded(
        parse(schema), schema, options, lambda: parse(texts_of(schema)), has_hexadecimal(data, schema, options)
    )


@dataclass(frozen=True)
class CsvValues:
    """Decodes rows of CSV files that were bad, each by itself.

    Args:
        names: The names in the header of their file.
        columns: The columns to read them into; null where the file has none.
    """

    names: tuple[str, ...]
    columns: pa.Schema
    options: CsvOptions

    def sort(self, values: Sequence[bytes | None], place: str = "") -> Sorted:
        """Return the rows that can be read, and why the others can't."""
        rows = [RawRow(number, f"{(value or b'').decode()}\n") for number, value in enumerate(values, 1)]
        return _sorted(Block.of(rows), [*self.names], self.columns, self.options)


FORMAT = FormatReader(infer, rows, check, hint=HINT)
"""The reader of CSV files."""

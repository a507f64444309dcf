"""Reads CSV files that have bad rows: batches of good rows, and each bad row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from volley.columns.batches import one_batch
from volley.columns.letters import column_in
from volley.columns.readable import json_of
from volley.columns.texts import is_text_of
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import ExpressionError
from volley.formats.csv import HINT, batches, check, header, infer, reason, rules
from volley.formats.csv_blocks import Block, Positions, blocks
from volley.formats.csv_values import (
    BadValue,
    decoded,
    has_hexadecimal,
    in_formats,
    misread,
    no_value,
    requested,
    texts_of,
    value_of_text,
    with_point,
)
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile
from volley.formats.lines import RawRow, part_of_rows, records
from volley.formats.options import CsvOptions
from volley.formats.rows import Sorted, sort_good

__all__ = ["FORMAT"]

Faults = Iterator[tuple[int, str]]
"""Rows and what is wrong with them."""

# Bytes that are no UTF-8, as Python escapes them, and characters for private use in their place: Arrow takes these.
_FIRST, _LAST, _MARK = 0xDC80, 0xDCFF, 0x10FF80
_MARKS = {byte: byte - _FIRST + _MARK for byte in range(_FIRST, _LAST + 1)}
_BYTES = {mark: byte for byte, mark in _MARKS.items()}
_MARKED = "[\U0010ff80-\U0010ffff]"
_MARK_BEGINNINGS = {chr(mark).encode()[:3] for mark in _BYTES}

_MOST_SHOWN, _CUT = 100, b" ..."
_BLANKS = " \t"
_TRUTHS = pa.array([*pcsv.ConvertOptions().true_values, *pcsv.ConvertOptions().false_values])
_PLAIN_NUMBER = re.compile(r"[+-]?([0-9]+)(?:\.([0-9]*))?")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_TRIMMED = " \t\n\v\f\r"
_LONGEST_DECIMAL = 38
# Values that surely have a type: the others are converted one by one.
_SURE_INTS = {32: "^-?[0-9]{1,9}$", 64: "^-?[0-9]{1,18}$"}
_SURE_FLOAT = r"^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$"
# Values with other characters surely have not.
_MAY_BE_INT, _MAY_BE_FLOAT = r"^[-+\s\v]*(?:[0-9]*|0[xX][0-9a-fA-F]*)[\s\v]*$", r"^[-+0-9.eE\s\v]*$|(?i:inf|nan)"


def marked(data: bytes) -> bytes | None:
    """Return a text with characters for private use in place of bytes that are no UTF-8; None if it has such itself."""
    if data.isascii():
        return data
    if any(beginning in data for beginning in _MARK_BEGINNINGS):
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="surrogateescape").translate(_MARKS).encode()
    return data


def unmarked(text: str) -> str:
    """Return a text with a replacement character for what is no UTF-8."""
    return text.translate(_BYTES).encode(errors="surrogateescape").decode(errors="replace")


def collect_widths(parse: pcsv.ParseOptions, faults: dict[int, str]) -> None:
    """Leave out rows with too few or too many fields.

    Args:
        parse: The options by which the rows are parsed.
        faults: Takes the faults, by the rows' numbers from 0.
    """

    def left_out(row: pcsv.InvalidRow) -> str:
        text = row.text.translate(_BYTES).encode(errors="surrogateescape")
        shown = text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - len(_CUT)] + _CUT
        wrong = f"Expected {row.expected_columns} columns, got {row.actual_columns}: {shown.decode(errors='replace')}"
        faults[row.number - 1] = f"CSV parse error: {wrong}"
        return "skip"

    parse.invalid_row_handler = left_out


def conversion_faults(texts: pa.RecordBatch, schema: pa.Schema, options: CsvOptions) -> Faults:
    """Yield the rows with values that don't fit; those first that are found first if a row is read by itself.

    Args:
        texts: The rows, each column as text.
    """
    for field in schema:
        yield from _unreadable(field, texts.column(field.name), requested(field.type, options), options)
    for field in schema:
        if requested(field.type, options) != field.type:
            column = texts.column(field.name)
            for row in _unfit(field.type, column, options):
                yield row, no_value(field, column[row].as_py())
    for field in schema:
        yield from misread(field, texts.column(field.name))


def _unreadable(field: pa.Field, column: pa.Array, data_type: pa.DataType, options: CsvOptions) -> Faults:
    """Yield the values that Arrow's reader does not convert."""
    failed = f"column {field.name!r}: CSV conversion error to {data_type}: "
    if pa.types.is_string(data_type):
        for row in _true(pc.match_substring_regex(column, _MARKED)) if _has_others(column) else ():
            yield row, f"{failed}invalid UTF8 data"
    elif pa.types.is_boolean(data_type):
        for row in _true(pc.invert(pc.is_in(column, _TRUTHS, skip_nulls=True))):
            if column[row].is_valid:
                yield row, f"{failed}invalid value '{unmarked(column[row].as_py())}'"
    elif not pa.types.is_binary(data_type):
        trimmed = pc.ascii_trim(column, characters=_BLANKS)
        values = with_point(trimmed, options.decimal_point) if pa.types.is_floating(data_type) else trimmed
        if _converts(values, data_type):
            return
        rows = pa.array(_true(pc.invert(_surely(values, data_type))), pa.int64())
        surely_not = _surely_not(values.take(rows), data_type)
        for row, is_none in zip(rows.to_pylist(), surely_not, strict=True):
            if is_none or not _converts(values[row], data_type):
                yield row, f"{failed}invalid value '{unmarked(trimmed[row].as_py())}'"


def _surely(texts: pa.Array, data_type: pa.DataType) -> pa.BooleanArray:
    if pa.types.is_integer(data_type):
        sure = pc.match_substring_regex(texts, _SURE_INTS[data_type.bit_width])
    elif pa.types.is_floating(data_type):
        sure = pc.match_substring_regex(texts, _SURE_FLOAT)
    else:
        sure = is_text_of(texts, data_type)
    return sure


def _surely_not(texts: pa.Array, data_type: pa.DataType) -> Sequence[bool]:
    """Return True for texts that need no attempt to convert them."""
    if pa.types.is_date(data_type):
        return [False] * len(texts)
    pattern = _MAY_BE_INT if pa.types.is_integer(data_type) else _MAY_BE_FLOAT
    is_none: Sequence[bool] = pc.invert(pc.match_substring_regex(texts, pattern)).to_pylist()
    return is_none


def _has_others(texts: pa.Array) -> bool:
    """Return True if a text has a character that is not ASCII's."""
    return pc.all(pc.string_is_ascii(texts)).as_py() is False


def _converts(texts: pa.Array | pa.Scalar, data_type: pa.DataType) -> bool:
    try:
        pc.cast(texts, data_type)
    except pa.ArrowInvalid:
        return False
    return True


def _unfit(data_type: pa.DataType, column: pa.Array, options: CsvOptions) -> Sequence[int]:
    """Return the rows of the texts that can't be cast to a type that Arrow's reader does not read as we want it."""
    if _are_values(column, data_type, options):
        return []
    if pa.types.is_decimal(data_type):
        texts = column.to_pylist()
        return [row for row, text in enumerate(texts) if text is not None and _is_no_decimal(text, data_type, options)]
    if options.date_formats or options.epoch:
        column = pc.if_else(pc.is_valid(in_formats(column, data_type, options)), pa.scalar(None, pa.string()), column)
    return _true(pc.invert(is_text_of(column, data_type)))


def _is_no_decimal(text: str, data_type: pa.DataType, options: CsvOptions) -> bool:
    number = _PLAIN_NUMBER.fullmatch(text.strip(_TRIMMED))
    if number is None or options.decimal_point != "." or len(text) > _LONGEST_DECIMAL:
        return not _is_value(text, data_type, options)
    whole, fraction = number[1].lstrip("0"), (number[2] or "").rstrip("0")
    precision, scale = int(data_type.precision), int(data_type.scale)
    return len(whole) > precision - scale or len(fraction) > scale


def _is_value(text: str, data_type: pa.DataType, options: CsvOptions) -> bool:
    if options.decimal_point == "." and _NUMBER.fullmatch(text.strip(_TRIMMED)) is None:
        return False
    return _are_values(pa.array([text]), data_type, options)


def _are_values(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> bool:
    try:
        value_of_text(texts, data_type, options)
    except (ExpressionError, pa.ArrowInvalid):
        return False
    return True


def _true(mask: pa.Array) -> Sequence[int]:
    """Return the rows of a mask that are true."""
    rows: Sequence[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return rows


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
    except (BadValue, pa.ArrowInvalid):
        # Arrow drops the whole block: read everything after the last good batch again, as raw rows.
        yield from _salvaged(file, blocks(file, options, done), names, schema, options)


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
    file: InputFile, blocks: Iterator[Block], names: list[str], schema: pa.Schema, options: CsvOptions
) -> Iterator[PositionedBatch | BadRow]:
    own = f"csv {json_of(names)}"
    seems_good = False
    for block in blocks:

        def position(number: int, block: Block = block) -> str:
            return file.position(block.line(number))

        def bad_row(number: int, fault: str, block: Block = block) -> BadRow:
            row = block.row(number)
            format = own if row.is_whole else "text"
            return BadRow(row.payload, fault, file.position(row.line), format, column_in(fault))

        # Bad rows stand close together in most files that have any.
        items = (seems_good and _all_good(block, names, schema, options)) or _sorted(block, names, schema, options)
        seems_good = not items.faults
        yield from items.items(position, bad_row)


def _all_good(block: Block, names: list[str], schema: pa.Schema, options: CsvOptions) -> Sorted | None:
    """Return the rows of a block; None if one is bad."""
    numbers = range(len(block))
    try:
        return None if block.faults else Sorted([_parsed(block, numbers, names, schema, options)], numbers, {})
    except (BadValue, pa.ArrowInvalid):
        return None


def _sorted(block: Block, names: list[str], schema: pa.Schema, options: CsvOptions) -> Sorted:
    faults = _faults(block, names, schema, options)
    good = np.delete(np.arange(len(block)), [*faults])
    numbers: list[int] = good.tolist()

    def convert(start: int, end: int) -> Sorted:
        return Sorted([_parsed(block, good[start:end], names, schema, options)], numbers[start:end], {})

    def why(_: int, error: Exception) -> str:
        return error.reason if isinstance(error, BadValue) else reason(error, names)

    return sort_good(faults, numbers, convert, why, (BadValue, pa.ArrowInvalid))


def _faults(block: Block, names: list[str], schema: pa.Schema, options: CsvOptions) -> dict[int, str]:
    """Return the rows that are surely bad, and why."""
    faults = dict(block.faults)
    numbers, data = _marked_rows(block)
    widths: dict[int, str] = {}
    if data.isascii():
        # Any text is one: it takes longer to read them than to look at the others.
        schema = pa.schema([field for field in schema if not pa.types.is_string(field.type)] or schema)
    batch = _texts(data, len(numbers), names, schema, options, widths)
    if batch is None:
        return faults
    faults |= {numbers[row]: fault for row, fault in widths.items()}
    if widths:
        numbers = [number for row, number in enumerate(numbers) if row not in widths]
    for row, fault in conversion_faults(batch, schema, options):
        faults.setdefault(numbers[row], fault)
    return faults


def _marked_rows(block: Block) -> tuple[Sequence[int], bytes]:
    """Return the rows that can be marked, and their text."""
    numbers: Sequence[int] = range(len(block))
    if block.faults:
        numbers = [number for number in numbers if number not in block.faults]
    data = marked(block.joined(numbers))
    if data is not None:
        return numbers, data
    texts = {number: text for number in numbers if (text := marked(block.joined([number]))) is not None}
    return [*texts], b"".join(texts.values())


def _texts(
    data: bytes, count: int, names: list[str], schema: pa.Schema, options: CsvOptions, widths: dict[int, str]
) -> pa.RecordBatch | None:
    """Return the fields of rows as texts, and collect those with the wrong number; None if they can't be told apart."""
    columns = pa.schema([(field.name, pa.string()) for field in schema])
    settings = rules(columns, options)
    collect_widths(settings["parse_options"], widths)
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)
    try:
        table = pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **settings)
    except pa.ArrowInvalid:
        return None
    return one_batch(table) if table.num_rows + len(widths) == count else None


def _parsed(
    block: Block, numbers: Sequence[int] | Positions, names: list[str], schema: pa.Schema, options: CsvOptions
) -> pa.RecordBatch:
    data = block.joined(numbers)
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)

    def parse(columns: pa.Schema) -> pa.RecordBatch:
        table = pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **rules(columns, options))
        if table.num_rows != len(numbers):
            raise BadValue(0, f"{table.num_rows} rows where one should be")
        return table.combine_chunks().to_batches()[0]

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

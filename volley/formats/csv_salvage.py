"""Reads CSV files that have bad rows: batches of good rows, and each bad row."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from volley.columns.batches import one_batch
from volley.columns.letters import column_in, payload_of
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

_ERRORS = (BadValue, pa.ArrowInvalid)
_MOST_SHOWN, _CUT = 100, b" ..."
_BLANKS = " \t"
_TRUE, _FALSE = pcsv.ConvertOptions().true_values, pcsv.ConvertOptions().false_values
_PLAIN_NUMBER = re.compile(r"[+-]?([0-9]+)(?:\.([0-9]*))?")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_TRIMMED = " \t\n\v\f\r"
_LONGEST_DECIMAL = 38
# Values that surely have a type: the others are converted one by one.
_SURE_DIGITS = {32: 9, 64: 18}
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
    if text.isascii():
        return text
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


class _Columns:
    """The columns of rows, of which some are texts, and the values of those in which each text is one.

    Args:
        rows: The rows; each column that may have bad values is text.
        hexadecimal: True if a hexadecimal number may be in the rows.
    """

    def __init__(self, rows: pa.RecordBatch, schema: pa.Schema, options: CsvOptions, hexadecimal: bool) -> None:
        self._schema, self._options, self._hexadecimal = schema, options, hexadecimal
        columns = [rows.column(field.name) for field in schema]
        self._columns = [
            (field, column, self._values(field, column)) for field, column in zip(schema, columns, strict=True)
        ]

    def faults(self) -> Faults:
        """Yield the rows with values that don't fit; those first that are found first if a row is read by itself."""
        texts = [column for column in self._columns if pa.types.is_string(column[1].type)]
        for field, column, values in texts:
            if values is None or pa.types.is_string(field.type):
                yield from _unreadable(field, column, requested(field.type, self._options), self._options)
        for field, column, values in texts:
            if values is None and requested(field.type, self._options) != field.type:
                for row in _unfit(field.type, column, self._options):
                    yield row, no_value(field, column[row].as_py())
        for field, column, values in texts:
            yield from misread(field, column, values, self._hexadecimal)

    def chosen(self, rows: npt.NDArray[np.bool_]) -> pa.RecordBatch | None:
        """Return some rows in the schema; None if a text may be no value."""
        mask, are_all = pa.array(rows), rows.all()
        columns = [
            (values if are_all else values.filter(mask))
            if values is not None
            else self._values(field, column.filter(mask))
            for field, column, values in self._columns
        ]
        is_sure = all(column is not None for column in columns)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema) if is_sure else None

    def _values(self, field: pa.Field, column: pa.Array) -> pa.Array | None:
        """Return a column as Arrow's reader converts it; None if a text is no value."""
        data_type = requested(field.type, self._options)
        try:
            if column.type == data_type:
                return value_of_text(column, field.type, self._options)
            if pa.types.is_boolean(data_type):
                return _truths(column)
            if pa.types.is_binary(data_type):
                # Bytes that are no UTF-8 have marks in their place.
                return None if _has_others(column) else pc.cast(column, data_type)
            return pc.cast(_number(pc.ascii_trim(column, _BLANKS), data_type, self._options), data_type)
        except (ExpressionError, pa.ArrowInvalid):
            return None


def _truths(texts: pa.Array) -> pa.Array | None:
    """Return texts as Arrow's reader converts them to booleans; None if one is none."""
    are_true, are_false = (pc.is_in(texts, pa.array(words)) for words in (_TRUE, _FALSE))
    is_one = pc.or_(pc.or_(are_true, are_false), pc.is_null(texts))
    return pc.if_else(pc.is_valid(texts), are_true, None) if pc.all(is_one).as_py() is not False else None


def _number(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    return with_point(texts, options.decimal_point) if pa.types.is_floating(data_type) else texts


def _unreadable(field: pa.Field, column: pa.Array, data_type: pa.DataType, options: CsvOptions) -> Faults:
    """Yield the values that Arrow's reader does not convert."""
    failed = f"column {field.name!r}: CSV conversion error to {data_type}: "
    if pa.types.is_string(data_type):
        for row in _true(pc.match_substring_regex(column, _MARKED)) if _has_others(column) else ():
            yield row, f"{failed}invalid UTF8 data"
    elif pa.types.is_boolean(data_type):
        for row in _true(pc.invert(pc.is_in(column, pa.array([*_TRUE, *_FALSE]), skip_nulls=True))):
            if column[row].is_valid:
                yield row, f"{failed}invalid value '{unmarked(column[row].as_py())}'"
    elif not pa.types.is_binary(data_type):
        trimmed = pc.ascii_trim(column, characters=_BLANKS)
        rows = _unsure(_number(trimmed, data_type, options), data_type)
        texts = trimmed.take(pa.array(rows))
        values = _number(texts, data_type, options)
        for row, text, value, is_none in zip(
            rows.tolist(), texts.to_pylist(), values, _surely_not(values, data_type), strict=True
        ):
            if is_none or not _converts(value, data_type):
                yield row, f"{failed}invalid value '{unmarked(text)}'"


def _unsure(texts: pa.Array, data_type: pa.DataType) -> Positions:
    """Return the rows of texts that may be no values."""
    if pa.types.is_integer(data_type):
        digits = _SURE_DIGITS[data_type.bit_width]
        is_sure = pc.and_(pc.ascii_is_decimal(texts), pc.less_equal(pc.binary_length(texts), digits))
        rows = _false(is_sure)
        # Few numbers have a sign.
        return rows[_false(pc.match_substring_regex(texts.take(pa.array(rows)), f"^-?[0-9]{{1,{digits}}}$"))]
    if pa.types.is_floating(data_type):
        return _false(pc.match_substring_regex(texts, _SURE_FLOAT))
    return _false(is_text_of(texts, data_type))


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


def _converts(text: pa.Scalar, data_type: pa.DataType) -> bool:
    try:
        pc.cast(text, data_type)
    except pa.ArrowInvalid:
        return False
    return True


def _unfit(data_type: pa.DataType, column: pa.Array, options: CsvOptions) -> Sequence[int]:
    """Return the rows of the texts that can't be cast to a type that Arrow's reader does not read as we want it."""
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
    rows: Sequence[int] = _false(pc.invert(mask)).tolist()
    return rows


def _false(mask: pa.Array) -> Positions:
    """Return the rows of a mask that are false."""
    return np.flatnonzero(~pc.fill_null(mask, True).to_numpy(zero_copy_only=False))


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
    for block in blocks:

        def position(number: int, block: Block = block) -> str:
            return file.position(block.line(number))

        def bad_row(number: int, fault: str, block: Block = block) -> BadRow:
            payload, format = payload_of(block.text(number), "text" if number in block.faults else own)
            return BadRow(payload, fault, file.position(block.line(number)), format, column_in(fault))

        items = _sorted(block, names, schema, options, suspects)
        # Where values of a column were bad, others are.
        suspects = {column_in(fault) for fault in items.faults.values()}
        yield from items.items(position, bad_row)


def _sorted(
    block: Block, names: list[str], schema: pa.Schema, options: CsvOptions, suspects: Collection[str | None] = ()
) -> Sorted:
    """Sort the rows of a block: in one pass if bad values are in the suspected columns alone, or if there are none."""
    for texts in (suspects, schema.names):
        faults, rows = _looked_at(block, texts, names, schema, options)
        if rows is not None and rows.num_rows == len(block):
            return Sorted([rows], [*range(len(block))], {})
        good = np.delete(np.arange(len(block)), [*faults])
        numbers: list[int] = good.tolist()
        if rows is not None and rows.num_rows == len(numbers):
            return Sorted([rows], numbers, dict(sorted(faults.items())))

    def convert(start: int, end: int) -> Sorted:
        return Sorted([_parsed(block, good[start:end], names, schema, options)], numbers[start:end], {})

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
    numbers, data = _marked_rows(block)
    hexadecimal, widths = has_hexadecimal(data, schema, options), dict[int, str]()
    rows = _read(data, len(numbers), names, _with_texts(schema, texts, hexadecimal), options, widths)
    if rows is None:
        return faults, None
    faults |= {numbers[row]: fault for row, fault in widths.items()}
    if widths:
        numbers = [number for row, number in enumerate(numbers) if row not in widths]
    columns, is_good = _Columns(rows, schema, options, hexadecimal), np.ones(rows.num_rows, np.bool_)
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


def _read(
    data: bytes, count: int, names: list[str], schema: pa.Schema, options: CsvOptions, widths: dict[int, str]
) -> pa.RecordBatch | None:
    """Return rows, and collect those with the wrong number of fields; None if a value is bad, or rows are not apart."""
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
    is_sure = rows.num_rows + len(widths) == count and not any(pc.any(pc.is_inf(column)).as_py() for column in floats)
    return rows if is_sure else None


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

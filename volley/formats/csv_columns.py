"""The columns of CSV rows of which some are bad: the values of the good ones, and what is wrong with the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from volley.columns.texts import is_text_of
from volley.errors import ExpressionError
from volley.formats.csv_blocks import Positions
from volley.formats.csv_values import in_formats, misread, no_value, requested, value_of_text, with_point
from volley.formats.options import CsvOptions

__all__ = ["CsvColumns", "marked", "unescaped"]

Faults = Iterator[tuple[int, str]]
"""Rows and what is wrong with them."""

# Bytes that are no UTF-8, as Python escapes them, and characters for private use in their place: Arrow takes these.
_FIRST, _LAST, _MARK = 0xDC80, 0xDCFF, 0x10FF80
_MARKS = {byte: byte - _FIRST + _MARK for byte in range(_FIRST, _LAST + 1)}
_BYTES = {mark: byte for byte, mark in _MARKS.items()}
_MARKED = "[\U0010ff80-\U0010ffff]"
_MARK_BEGINNINGS = {chr(mark).encode()[:3] for mark in _BYTES}
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


def _unmarked(text: str) -> str:
    """Return a text with a replacement character for what is no UTF-8."""
    if text.isascii():
        return text
    return unescaped(text).decode(errors="replace")


def unescaped(text: str) -> bytes:
    """Return the bytes that a text had before those that are no UTF-8 were marked."""
    return text.translate(_BYTES).encode(errors="surrogateescape")


class CsvColumns:
    """The columns of rows, of which some are texts, and the values of those in which each text is one.

    Args:
        rows: The rows; each column that may have bad values is text.
        hexadecimal: True if a hexadecimal number may be in the rows.
        has_marks: False: no byte of the rows had a mark in its place.
    """

    def __init__(
        self, rows: pa.RecordBatch, schema: pa.Schema, options: CsvOptions, hexadecimal: bool, has_marks: bool
    ) -> None:
        self._schema, self._options = schema, options
        self._hexadecimal, self._has_marks = hexadecimal, has_marks
        self._columns = [_Column(field, rows.column(field.name), requested(field.type, options)) for field in schema]
        self._values = [column.values(column.trimmed, options) for column in self._columns]

    def faults(self) -> Faults:
        """Yield the rows with values that don't fit; those first that are found first if a row is read by itself."""
        pairs = [*zip(self._columns, self._values, strict=True)]
        texts = [(column, values) for column, values in pairs if pa.types.is_string(column.texts.type)]
        for column, values in texts:
            if pa.types.is_string(column.read_as):
                yield from _damaged(column) if self._has_marks else ()
            elif values is None:
                yield from _unreadable(column, self._options)
        for column, values in texts:
            if values is None and column.read_as != column.field.type:
                for row in _unfit(column.field.type, column.texts, self._options):
                    yield row, no_value(column.field, column.texts[row].as_py())
        for column, values in texts:
            yield from misread(column.field, column.texts, values, self._hexadecimal)

    def chosen(self, rows: npt.NDArray[np.bool_]) -> pa.RecordBatch | None:
        """Return some rows in the schema; None if a text may be no value."""
        mask, are_all = pa.array(rows), rows.all()
        columns = [
            (values if are_all else values.filter(mask))
            if values is not None
            else column.values(column.trimmed.filter(mask), self._options)
            for column, values in zip(self._columns, self._values, strict=True)
        ]
        is_sure = all(column is not None for column in columns)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema) if is_sure else None


@dataclass(frozen=True)
class _Column:
    """A column of rows, which may be texts.

    Args:
        read_as: The type that Arrow's reader gives it.
    """

    field: pa.Field
    texts: pa.Array
    read_as: pa.DataType

    @cached_property
    def trimmed(self) -> pa.Array:
        """The column without the blanks around numbers and dates."""
        t = pa.types
        is_kept = self.texts.type == self.read_as or t.is_boolean(self.read_as) or t.is_binary(self.read_as)
        return self.texts if is_kept else pc.ascii_trim(self.texts, _BLANKS)

    def values(self, trimmed: pa.Array, options: CsvOptions) -> pa.Array | None:
        """Return trimmed texts as Arrow's reader converts them; None if one is no value."""
        try:
            if trimmed.type == self.read_as:
                return value_of_text(trimmed, self.field.type, options)
            if pa.types.is_boolean(self.read_as):
                return _truths(trimmed)
            if pa.types.is_binary(self.read_as):
                # Bytes that are no UTF-8 have marks in their place.
                return None if _has_others(trimmed) else pc.cast(trimmed, self.read_as)
            return pc.cast(_number(trimmed, self.read_as, options), self.read_as)
        except (ExpressionError, pa.ArrowInvalid):
            return None

    def failed(self, what: str) -> str:
        """Return the fault of a text as Arrow's reader tells it."""
        return f"column {self.field.name!r}: CSV conversion error to {self.read_as}: {what}"


def _truths(texts: pa.Array) -> pa.Array | None:
    """Return texts as Arrow's reader converts them to booleans; None if one is none."""
    are_true, are_false = (pc.is_in(texts, pa.array(words)) for words in (_TRUE, _FALSE))
    is_one = pc.or_(pc.or_(are_true, are_false), pc.is_null(texts))
    return pc.if_else(pc.is_valid(texts), are_true, None) if pc.all(is_one).as_py() is not False else None


def _number(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    return with_point(texts, options.decimal_point) if pa.types.is_floating(data_type) else texts


def _damaged(column: _Column) -> Faults:
    """Yield the texts with bytes that are no UTF-8."""
    for row in _true(pc.match_substring_regex(column.texts, _MARKED)) if _has_others(column.texts) else ():
        yield row, column.failed("invalid UTF8 data")


def _unreadable(column: _Column, options: CsvOptions) -> Faults:
    """Yield the values that Arrow's reader does not convert."""
    failed = column.failed("invalid value ")
    if pa.types.is_boolean(column.read_as):
        for row in _true(pc.invert(pc.is_in(column.texts, pa.array([*_TRUE, *_FALSE]), skip_nulls=True))):
            if column.texts[row].is_valid:
                yield row, f"{failed}'{_unmarked(column.texts[row].as_py())}'"
    elif not pa.types.is_binary(column.read_as):
        rows = _unsure(_number(column.trimmed, column.read_as, options), column.read_as)
        texts = column.trimmed.take(pa.array(rows))
        values = _number(texts, column.read_as, options)
        for row, text, value, is_none in zip(
            rows.tolist(), texts.to_pylist(), values, _surely_not(values, column.read_as), strict=True
        ):
            if is_none or not _converts(value, column.read_as):
                yield row, f"{failed}'{_unmarked(text)}'"


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

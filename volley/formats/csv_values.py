"""Turns the columns of Arrow's CSV reader into a source's types, and finds the numbers that it reads as others."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from volley.columns.bisect import first_failing
from volley.columns.calendar import moments
from volley.columns.casts import cast
from volley.columns.exact import exact_cast
from volley.errors import ExpressionError
from volley.formats.epochs import times_in_epochs
from volley.formats.options import CsvOptions
from volley.types.arrow import type_name

__all__ = [
    "BadValue",
    "Hexadecimals",
    "decoded",
    "has_hexadecimal",
    "in_formats",
    "is_hexadecimal",
    "misread",
    "no_value",
    "requested",
    "texts_of",
    "value_of_text",
    "with_point",
]

# A number of which a float, at least, can be infinite.
_LONG_NUMBER = r"^\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE]\+?[0-9]{2,}\s*$|^\s*[+-]?[0-9]{38,}(?:\.[0-9]*)?\s*$"
_INFINITY = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_HEXADECIMAL = r"(?i)^\s*0x[0-9a-f]+\s*$"
Codes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

_ZERO, _X, _LOWER = ord("0"), ord("x"), 0x20
_NO_BYTE = 256
# Larger arrays are new pages of memory each time, which take longer than to look at them.
_PIECE = 64 << 10
_BLANKS = b"\r\n \t"
# The most digits of a long, and the characters before an ``x`` that are looked at.
_DIGITS, _AHEAD = 16, 4


def texts_of(schema: pa.Schema) -> pa.Schema:
    """Return a schema of the same columns as binary, which accepts any text."""
    return pa.schema([(name, pa.binary()) for name in schema.names])


class Hexadecimals:
    """A byte stream that notes whether a hexadecimal number, such as ``0x1F``, was in it, if a column has ints.

    Arrow reads those of up to 16 digits as ints. Longer ones, such as hashes, are not noted.
    """

    def __init__(self, stream: Any, schema: pa.Schema, options: CsvOptions) -> None:
        self._stream = stream
        self._looks = any(map(pa.types.is_integer, schema.types))
        delimiter, quote, escape = (
            (text or "").encode() for text in (options.delimiter, options.quote, options.escape)
        )
        self._quote, self._escape = quote, escape
        self._beginnings = _table(BOM_UTF8 + _BLANKS + delimiter + quote + escape)
        self._ends = _table(_BLANKS + delimiter + quote)
        self._width = (_DIGITS + 1) * (2 if escape else 1)
        self._before = b"\n" * _AHEAD
        self.seen = False
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        if self._looks and not self.seen:
            self._look_at(data)
        return data

    def readable(self) -> bool:
        return True

    def _look_at(self, data: bytes) -> None:
        seam = self._width + _AHEAD
        around = self._before + (data[:seam] or b"\n" * seam)
        self._before = (self._before + data[-seam:])[-seam:]
        codes = np.frombuffer(data, np.uint8)
        pieces = (codes[start : start + _PIECE + 2 * seam] for start in range(0, len(codes), _PIECE))
        self.seen = self._is_in(np.frombuffer(around, np.uint8)) or any(map(self._is_in, pieces))

    def _is_in(self, codes: Codes) -> bool:
        """Return True if a number is in a text, but not at its very beginning or end."""
        is_x = codes | _LOWER == _X
        if not is_x.any():
            return False
        behind_zero = is_x[1:] & (codes[:-1] == _ZERO)
        # Arrow takes away escapes within a value, and the quote that ends behind the zero.
        behind_quote = is_x[2:] & (codes[1:-1] == _code(self._quote))
        if behind_quote.any() and (behind_quote & (codes[:-2] == _ZERO)).any():
            return True
        if self._escape:
            behind_zero |= is_x[1:] & (codes[:-1] == _code(self._escape))
        return bool(behind_zero.any()) and self._is_at(codes, np.flatnonzero(behind_zero))

    def _is_at(self, codes: Codes, at: Positions) -> bool:
        at = at[(at >= _AHEAD - 1) & (at < len(codes) - self._width - 1)]
        # A quote and an escape may stand between a zero and its x.
        for behind in range(3 if self._escape else 1):
            zeros = at[codes[at - behind] == _ZERO]
            starts = zeros[self._beginnings[codes[zeros - behind - 1]]]
            if len(starts) and self._ends[sliding_window_view(codes, self._width)[starts + 2]].any():
                return True
        return False


def has_hexadecimal(data: bytes, schema: pa.Schema, options: CsvOptions) -> bool:
    """Return True if a column has ints, and a hexadecimal number may be in a text."""
    numbers = Hexadecimals(BytesIO(data), schema, options)
    numbers.read()
    # The end of a text is looked at by the read behind it.
    numbers.read()
    return numbers.seen


def _code(character: bytes) -> int:
    """Return the code of a character; that of none is no byte's."""
    return character[0] if character else _NO_BYTE


def _table(characters: bytes) -> npt.NDArray[np.bool_]:
    """Return an array that has true at the codes of characters."""
    return np.isin(np.arange(256), [*characters])


def is_hexadecimal(texts: pa.Array) -> pa.Array:
    """Return true for each text that is a hexadecimal number."""
    return pc.match_substring_regex(texts, _HEXADECIMAL)


def first_misread(
    batch: pa.RecordBatch, texts: Callable[[], pa.RecordBatch], hexadecimal: bool
) -> tuple[int, str] | None:
    """Return the first row with a number that Arrow has read as another, and the reason; None if there is none.

    Args:
        texts: Returns the same rows in the schema `texts_of`; called only if a value is in doubt.
        hexadecimal: True if a hexadecimal number may be in the rows.
    """
    doubtful = [
        (field, column)
        for field, column in zip(batch.schema, batch.columns, strict=True)
        if (hexadecimal and pa.types.is_integer(field.type))
        or (pa.types.is_floating(field.type) and pc.any(pc.is_inf(column)).as_py())
    ]
    if not doubtful:
        return None
    rows = texts()
    for field, column in doubtful:
        text = rows.column(field.name)
        if pa.types.is_integer(field.type):
            wrong = is_hexadecimal(text)
        else:
            wrong = pc.and_not(pc.is_inf(column), pc.match_substring_regex(text, _INFINITY))
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            return row, _fault(field, text[row].as_py().decode())
    return None


def misread(field: pa.Field, texts: pa.Array, values: pa.Array | None, hexadecimal: bool) -> Iterator[tuple[int, str]]:
    """Yield the rows of numbers that Arrow reads as others in a column, with the reason.

    Args:
        texts: Its values as texts.
        values: Its values; None if some texts are no number.
        hexadecimal: True if a hexadecimal number may be in the rows.
    """
    if pa.types.is_integer(field.type):
        rows = _true(is_hexadecimal(texts)) if hexadecimal else []
    elif pa.types.is_floating(field.type) and (values is None or pc.any(pc.is_inf(values)).as_py()):
        rows = [row for row in _true(pc.match_substring_regex(texts, _LONG_NUMBER)) if _is_infinite(field, texts[row])]
    else:
        rows = []
    for row in rows:
        yield row, _fault(field, texts[row].as_py())


def _true(mask: pa.Array) -> list[int]:
    rows: list[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return rows


def _is_infinite(field: pa.Field, text: pa.Scalar) -> bool:
    return bool(pc.is_inf(pc.cast(pc.ascii_trim_whitespace(text), field.type)).as_py())


def _fault(field: pa.Field, text: str) -> str:
    if pa.types.is_integer(field.type):
        return f"column {field.name!r}: {text:.80} is hexadecimal, which is read as no {type_name(field.type)}"
    return f"column {field.name!r}: {text:.80} is too large for {field.type}"


class BadValue(Exception):
    """Raised for a value that doesn't fit its column's type.

    Args:
        row: The number of the row in the batch, from 0.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


def requested(data_type: pa.DataType, options: CsvOptions) -> pa.DataType:
    """Return the type to request from Arrow's CSV reader: a string for what our casts read, else the type itself.

    Arrow rejects a timestamp without a zone if the type has one; our cast from strings assumes UTC. Arrow rejects more
    than six digits behind the point of a second; our casts round them down. Arrow's decimals may have more digits than
    their type, or overflow without an error. Its formats are for timestamps only, not for dates: it reads 30 February
    as a day in March.
    """
    t = pa.types
    is_text = t.is_timestamp(data_type) or t.is_time(data_type) or t.is_decimal(data_type) or data_type == pa.uuid()
    return pa.string() if is_text or (options.date_formats and _is_date(data_type)) else data_type


def decoded(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    options: CsvOptions,
    texts: Callable[[], pa.RecordBatch],
    hexadecimal: bool,
) -> pa.RecordBatch:
    """Return a parsed batch in the source's schema.

    Args:
        batch: The batch; its columns have the types `requested`.
        texts: Returns the same rows in the schema `texts_of`.
        hexadecimal: True if a hexadecimal number may be in the rows.

    Raises:
        BadValue: If a value doesn't fit its column's type.
    """
    columns = [_cast(batch.column(field.name), field, options) for field in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if misread := first_misread(rows, texts, hexadecimal):
        raise BadValue(*misread)
    return rows


def _is_date(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _cast(column: pa.Array, field: pa.Field, options: CsvOptions) -> pa.Array:
    def fails(start: int, end: int) -> bool:
        try:
            value_of_text(column.slice(start, end - start), field.type, options)
        except (ExpressionError, pa.ArrowInvalid):
            return True
        return False

    try:
        return value_of_text(column, field.type, options)
    except (ExpressionError, pa.ArrowInvalid) as error:
        row = first_failing(len(column), fails)
        raise BadValue(row, no_value(field, column[row].as_py())) from error


def no_value(field: pa.Field, text: str) -> str:
    """Return the fault of a text that is no value of a column."""
    return f"column {field.name!r}: {text!r} is no {type_name(field.type)}"


def value_of_text(column: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    """Return texts, or values that Arrow has read, in a column's type.

    Raises:
        ExpressionError: If a text is no such value.
        pyarrow.ArrowInvalid: Likewise.
    """
    if column.type == data_type:
        return column
    if pa.types.is_decimal(data_type):
        return exact_cast(with_point(pc.ascii_trim_whitespace(column), options.decimal_point), data_type)
    if options.date_formats:
        return _of_formats(column, data_type, options)
    if options.epoch is not None and pa.types.is_timestamp(data_type):
        return _or_cast(times_in_epochs(column, options.epoch, data_type), column, data_type)
    return cast(column, data_type)


def with_point(texts: pa.Array, decimal_point: str) -> pa.Array:
    """Return numbers with a dot as decimal point, as Arrow reads them; dots that separate digits are an error."""
    if decimal_point == ".":
        return texts
    return pc.replace_substring(pc.replace_substring(texts, ".", "no point"), decimal_point, ".")


def _of_formats(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    return _or_cast(in_formats(texts, data_type, options), texts, data_type)


def _or_cast(values: pa.Array, texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values, and the texts of those that are null cast."""
    return pc.coalesce(values, cast(pc.if_else(pc.is_valid(values), pa.scalar(None, pa.string()), texts), data_type))


def in_formats(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    """Return the values of the texts that are in one of the formats of the options; null for the others."""
    values = pa.nulls(len(texts), data_type)
    if options.epoch is not None and pa.types.is_timestamp(data_type):
        values = times_in_epochs(texts, options.epoch, data_type)
    for format in options.date_formats:
        values = pc.coalesce(values, moments(texts, format).cast(data_type))
    return values

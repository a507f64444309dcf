"""Turns the columns of Arrow's CSV reader into the types of a source, and tells the first value that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.bisect import first_failing
from volley.columns.casts import cast
from volley.columns.exact import exact_cast
from volley.columns.moments import moments
from volley.errors import ExpressionError
from volley.formats.csv_numbers import first_misread
from volley.formats.options import CsvOptions
from volley.types.arrow import type_name

__all__ = ["BadValue", "decoded", "in_formats", "no_value", "requested", "value_of_text", "with_point"]


class BadValue(Exception):
    """Raised for a value that doesn't fit its column's type.

    Args:
        row: The number of the row in the batch, from 0.
        reason: What is wrong.
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
    is_text = t.is_timestamp(data_type) or t.is_time(data_type) or t.is_decimal(data_type)
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
        schema: The source's schema.
        options: The options of the files.
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
    return cast(column, data_type)


def with_point(texts: pa.Array, decimal_point: str) -> pa.Array:
    """Return numbers with a dot as decimal point, as Arrow reads them; dots that separate digits are an error."""
    if decimal_point == ".":
        return texts
    return pc.replace_substring(pc.replace_substring(texts, ".", "no point"), decimal_point, ".")


def _of_formats(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    values = in_formats(texts, data_type, options)
    return pc.coalesce(values, cast(pc.if_else(pc.is_valid(values), pa.scalar(None, pa.string()), texts), data_type))


def in_formats(texts: pa.Array, data_type: pa.DataType, options: CsvOptions) -> pa.Array:
    """Return the values of the texts that are in one of the formats of the options; null for the others."""
    values = pa.nulls(len(texts), data_type)
    for format in options.date_formats:
        values = pc.coalesce(values, moments(texts, format).cast(data_type))
    return values

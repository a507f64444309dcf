"""Reads CSV files as Arrow batches; errors name the line of the bad row and quote it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from volley.arrow.bisect import first_failing
from volley.errors import ConfigError, ExpressionError, SourceError
from volley.formats.csv_floats import first_too_large, texts_of
from volley.formats.input_file import LARGEST_VALUE, InputFile
from volley.formats.line_parts import part_of_lines
from volley.types.arrow import type_name

__all__ = [
    "BadValue",
    "batches",
    "check",
    "decoded",
    "delimiter",
    "header",
    "infer",
    "part_of_rows",
    "read",
    "reason",
    "records",
    "rules",
]

_BLOCK = 4 << 20
_HINT = (
    'mend the file, declare a schema that fits it, or name the texts that mean null: options={"null_values": ["NA"]}'
)
_ROW = re.compile(r"(?:In CSV column #(\d+): )?(.*?)Row #(\d+): (.*)", re.S)


def check(schema: pa.Schema) -> None:
    """Raise ConfigError if CSV can't hold a column's type."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ConfigError(
                f"column {field.name!r}: CSV files can't hold {field.type}", hint="use JSON or Parquet files"
            )
        if field.type == pa.uuid():
            raise ConfigError(f"column {field.name!r}: CSV can't be read into uuid", hint="declare a string")


def part_of_rows(file: InputFile, part: tuple[int, int], options: Mapping[str, Any]) -> InputFile:
    """Return a part of a divisible file, with the file's header in front."""
    return part_of_lines(file, part, has_header=options.get("header", True))


def infer(file: InputFile, options: Mapping[str, Any]) -> pa.Schema | None:
    """Return the schema of the file's first block of rows; None if the file has no rows."""
    if not _has_rows(file, options):
        return None
    try:
        with file.open() as stream, _reader(stream, None, options) as reader:
            return reader.schema
    except pa.ArrowInvalid as error:
        raise _bad_row(file, error, options) from error


def _has_rows(file: InputFile, options: Mapping[str, Any]) -> bool:
    """Return True if the file has a row besides its header, even one too long for Python's reader."""
    lines = 2 if options.get("header", True) else 1
    try:
        return len(list(islice(records(file, options), lines))) == lines
    except (csv.Error, SourceError):
        return True


def read(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows; a column that the file lacks is null, unknown columns are ignored."""
    file = part_of_rows(file, part, options)
    names = header(file, schema, options)
    if names is None:
        return
    done = 1 if options.get("header", True) else 0
    try:
        for batch in batches(file, schema, options):
            yield batch
            done += batch.num_rows
    except BadValue as error:
        raise file.fault(error.reason, *_place(file, done + error.row + 1, options), _HINT) from error
    except pa.ArrowInvalid as error:
        raise _bad_row(file, error, options, names) from error


def batches(file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that is not empty.

    Raises:
        BadValue: If a value doesn't fit its column's type.
        pyarrow.ArrowInvalid: If a block of rows can't be parsed.
    """
    texts = _Texts(file, schema, options)
    with file.open() as stream:
        counted = _Quotes(stream)
        with _reader(counted, schema, options) as reader:
            last: pa.RecordBatch | None = None
            for number, batch in enumerate(reader):
                if last is not None:
                    yield decoded(last, schema, partial(texts.batch, number - 1))
                last = batch
        if last is None:
            return
        # Arrow reads an unclosed quote as one long value that swallows the rest of the file.
        if counted.number % 2 and _ends_in_a_quote(file, options):
            raise BadValue(last.num_rows - 1, "a quote is opened and never closed")
        yield decoded(last, schema, partial(texts.batch, number))


class _Texts:
    """The batches of a file as text; reads the file a second time, only if `batch` is called."""

    def __init__(self, file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._batches = enumerate(_read_texts(file, schema, options))

    def batch(self, number: int) -> pa.RecordBatch:
        """Return the batch with this number; call it with ascending numbers."""
        return next(batch for index, batch in self._batches if index == number)


def _read_texts(file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    with file.open() as stream, _reader(stream, texts_of(schema), options) as reader:
        yield from reader


class _Quotes:
    """A byte stream that counts the quotes it reads."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.number = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self.number += data.count(b'"')
        return data

    def readable(self) -> bool:
        return True


def _ends_in_a_quote(file: InputFile, options: Mapping[str, Any]) -> bool:
    """Return True if the last row is still open at the end of the file; a quote inside a value opens nothing."""
    ended = False

    def lines(text: io.TextIOWrapper) -> Iterator[str]:
        nonlocal ended
        yield from _lines(file, text)
        ended = True

    with file.open() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        with suppress(csv.Error):
            for _ in csv.reader(lines(text), delimiter=delimiter(options)):
                if ended:
                    return True
    return False


def _reader(stream: Any, schema: pa.Schema | None, options: Mapping[str, Any]) -> Any:
    has_header = options.get("header", True)
    return pcsv.open_csv(
        stream,
        read_options=pcsv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK,
            column_names=None if has_header or schema is None else schema.names,
            autogenerate_column_names=not has_header and schema is None,
        ),
        **rules(schema, options),
    )


def rules(schema: pa.Schema | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parse and convert options of `pyarrow.csv`."""
    return {
        "parse_options": pcsv.ParseOptions(delimiter=delimiter(options), newlines_in_values=True),
        "convert_options": pcsv.ConvertOptions(
            column_types=None if schema is None else {field.name: _arrow_type(field.type) for field in schema},
            # Only the columns of the schema: Arrow would guess the types of the others, and a later row can break
            # the guess.
            include_columns=None if schema is None else schema.names,
            include_missing_columns=schema is not None,
            null_values=["", *options.get("null_values", ())],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }


def delimiter(options: Mapping[str, Any]) -> str:
    """Return the column separator: the option ``delimiter``, a comma by default."""
    return str(options.get("delimiter", ","))


def _arrow_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type to request from Arrow's CSV reader: a string for zoned timestamps and decimals.

    Arrow rejects a timestamp without a zone if the type has one; our cast from strings assumes UTC. Arrow's decimals
    may have more digits than their type, or overflow without an error.
    """
    return pa.string() if data_type == pa.timestamp("us", "UTC") or pa.types.is_decimal(data_type) else data_type


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


def decoded(batch: pa.RecordBatch, schema: pa.Schema, texts: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
    """Return a parsed batch in the source's schema.

    Args:
        batch: The batch.
        schema: The source's schema.
        texts: Returns the same rows in the schema `texts_of`.

    Raises:
        BadValue: If a value doesn't fit its column's type.
    """
    rows = pa.RecordBatch.from_arrays([_cast(batch.column(field.name), field) for field in schema], schema=schema)
    if too_large := first_too_large(rows, texts):
        raise BadValue(*too_large)
    return rows


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:

    def fails(start: int, end: int) -> bool:
        try:
            _value_of_text(column.slice(start, end - start), field.type)
        except (ExpressionError, pa.ArrowInvalid):
            return True
        return False

    try:
        return _value_of_text(column, field.type)
    except (ExpressionError, pa.ArrowInvalid) as error:
        row = first_failing(len(column), fails)
        raise BadValue(row, f"column {field.name!r}: {column[row].as_py()!r} is no {type_name(field.type)}") from error


def _value_of_text(column: pa.Array, data_type: pa.DataType) -> pa.Array:

    from volley.arrow.casts import cast
    from volley.arrow.exact import exact_cast

    return (
        exact_cast(pc.ascii_trim_whitespace(column), data_type)
        if pa.types.is_decimal(data_type)
        else cast(column, data_type)
    )


def header(file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the file's columns; None if the file has no rows.

    Raises:
        SourceError: If the header has none of the schema's columns, or one of them twice.
    """
    rows = (row for _, row in records(file, options))
    try:
        first = next(rows, None)
    except csv.Error as error:
        # Arrow reads values that are too long for Python's reader; a column name is never that long.
        if options.get("header", True):
            raise file.fault(f"no header ({error})", 1) from error
        return list(schema.names)
    if first is None or not options.get("header", True):
        return first and schema.names
    if not set(first) & set(schema.names):
        raise SourceError(
            f"{file.name} has none of the columns {schema.names}: its first line is {first}",
            hint='if the file has no header, say so: options={"header": False}',
        )
    if twice := [name for name in schema.names if first.count(name) > 1]:
        raise file.fault(f"column {twice[0]!r} stands twice in the header", 1)
    # Arrow rejects a file that ends right after its header. Errors of the first row are reported when it is read.
    with suppress(csv.Error, SourceError):
        return first if next(rows, None) else None
    return first


def _bad_row(
    file: InputFile, error: Exception, options: Mapping[str, Any], names: list[str] | None = None
) -> SourceError:
    match = _ROW.fullmatch(str(error))
    place = _place(file, int(match[3]), options) if match else (None, "")
    return file.fault(reason(error, names), *place, _HINT)


def reason(error: Exception, names: list[str] | None = None) -> str:
    """Return Arrow's error message with the column's name instead of its number, and without the row number.

    Args:
        error: The exception that Arrow raised.
        names: The names of the file's columns, if known.
    """
    match = _ROW.fullmatch(str(error))
    if match is None:
        return str(error)
    column, kind, _, text = match.groups()
    column_name = f"column {names[int(column)]!r}: " if column and names and int(column) < len(names) else ""
    return f"{column_name}{kind}{text}"


def _place(file: InputFile, record: int, options: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the line and text of a row. Arrow counts rows; a quoted value can span lines."""
    try:
        for number, (line, row) in enumerate(records(file, options), 1):
            if number == record:
                return line, delimiter(options).join(row)
    except csv.Error:
        # The field is too long for Python's reader: Arrow's message alone describes the row.
        pass
    return None, ""


def _lines(file: InputFile, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(LARGEST_VALUE):
        number += 1
        if len(line) == LARGEST_VALUE:
            raise file.fault(f"longer than {LARGEST_VALUE >> 20} MB", number, line[:80])
        yield line


def records(file: InputFile, options: Mapping[str, Any]) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not an empty line, with the number of the line it starts at."""
    with file.open() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        reader = csv.reader(_lines(file, text), delimiter=delimiter(options))
        line = 1
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1

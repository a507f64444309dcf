"""Reads CSV files as Arrow batches; errors name the line of the bad row and quote it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from volley.errors import ConfigError, SourceError
from volley.formats.csv_quotes import Quotes
from volley.formats.csv_values import BadValue, Hexadecimals, decoded, is_hexadecimal, requested, texts_of
from volley.formats.input_file import InputFile, case_of
from volley.formats.lines import OPEN_QUOTE, part_of_rows, records
from volley.formats.options import CsvOptions

__all__ = ["batches", "check", "header", "infer", "reason", "rules"]

_BLOCK = 2 << 20
_LONGEST_NAME = 128 << 10
HINT = (
    'mend the file, declare a schema that fits it, name the texts that mean null: options={"null_values": ["NA"]}, or '
    "give the sink a dead_letter for such rows"
)
# A double holds each whole number of 15 digits, and none of more than 308.
_LONG_NUMBER = r"^[+-]?[0-9]{16,300}$"
_ROW = re.compile(r"(?:In CSV column #(\d+): )?(.*?)Row #(\d+): (.*)", re.S)


def check(schema: pa.Schema) -> None:
    """Raise ConfigError if CSV can't hold a column's type."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ConfigError(
                f"column {field.name!r}: CSV files can't hold {field.type}", hint="use JSON or Parquet files"
            )


def infer(file: InputFile, options: CsvOptions) -> pa.Schema | None:
    """Return the schema of the file's first block of rows; None if the file has no rows."""
    file = part_of_rows(file, (0, 1), options)
    if not _has_rows(file, options):
        return None
    try:
        with file.open() as stream, _reader(stream, None, options) as reader:
            schema = reader.schema
            _ = schema.names
    except UnicodeDecodeError as error:
        # Arrow decodes names when they are asked for.
        raise file.fault(f"a name in the header is not UTF-8 ({error.reason})", 1) from error
    except pa.ArrowInvalid as error:
        raise _bad_row(file, error, options) from error
    counts = Counter(schema.names)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise _stands_twice(file, twice[0])
    texts = next(_read_texts(file, schema, options), None)
    return schema if texts is None else pa.schema([_guessed(file, field, texts.column(field.name)) for field in schema])


def _stands_twice(file: InputFile, name: str) -> SourceError:
    return file.fault(f"column {name!r} stands twice in the header", 1)


def _guessed(file: InputFile, field: pa.Field, texts: pa.Array) -> pa.Field:
    """Return a column with the type that Arrow guesses, or a string if a text is hexadecimal.

    Raises:
        SourceError: If the type is a double, which would round a whole number.
    """
    if pa.types.is_integer(field.type) and pc.any(is_hexadecimal(texts)).as_py():
        return field.with_type(pa.string())
    if pa.types.is_floating(field.type):
        for text in texts.filter(pc.match_substring_regex(texts, _LONG_NUMBER)).to_pylist():
            if int(float(text)) != int(text):
                raise file.fault(f"column {field.name!r}: a double would round {text.decode()}")
    return field


def _has_rows(file: InputFile, options: CsvOptions) -> bool:
    """Return True if the file has a row besides its header."""
    return next(islice(records(file, options), 1 if options.has_header else 0, None), None) is not None


def batches(file: InputFile, schema: pa.Schema, options: CsvOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that is not empty.

    Raises:
        BadValue: If a value doesn't fit its column's type.
        pyarrow.ArrowInvalid: If a block of rows can't be parsed.
    """
    texts = _Texts(file, schema, options)
    with file.open() as stream:
        quotes = Quotes(stream, options)
        numbers = Hexadecimals(quotes, schema, options)
        with _reader(numbers, schema, options) as reader:
            last: pa.RecordBatch | None = None
            for number, batch in enumerate(reader):
                if last is not None:
                    yield decoded(last, schema, options, partial(texts.batch, number - 1), numbers.seen)
                last = batch
        if last is None:
            return
        # Arrow reads an unclosed quote as one long value that swallows the rest of the file.
        if quotes.may_be_open and not all(record.fault is None for record in records(file, options)):
            raise BadValue(last.num_rows - 1, OPEN_QUOTE)
        yield decoded(last, schema, options, partial(texts.batch, number), numbers.seen)


class _Texts:
    """The batches of a file as text; reads the file a second time, only if `batch` is called."""

    def __init__(self, file: InputFile, schema: pa.Schema, options: CsvOptions) -> None:
        self._batches = enumerate(_read_texts(file, schema, options))

    def batch(self, number: int) -> pa.RecordBatch:
        """Return the batch with this number; call it with ascending numbers."""
        return next(batch for index, batch in self._batches if index == number)


def _read_texts(file: InputFile, schema: pa.Schema, options: CsvOptions) -> Iterator[pa.RecordBatch]:
    with file.open() as stream, _reader(stream, texts_of(schema), options) as reader:
        yield from reader


class _Ended:
    """A byte stream whose last line has an end, and of which no piece begins in the middle of one.

    Without an end, Arrow reads an empty last value as an empty text, not as null, if the value before it is quoted. And
    it drops a line feed at the beginning of a piece behind a carriage return, in quotes, too.
    """

    def __init__(self, stream: Any, options: CsvOptions) -> None:
        self._stream = stream
        self._ends = b"\r\n" + (options.escape or "").encode()
        self._ahead = b""
        self.closed = False

    def read(self, size: int) -> bytes:
        # Leave room for a line feed and the end: a piece of its own would be a third block of the last row.
        data = self._ahead or bytes(self._stream.read(size - 2))
        self._ahead = bytes(self._stream.read(size - 2))
        if data[-1:] == b"\r" and self._ahead[:1] == b"\n":
            data += b"\n"
            self._ahead = self._ahead[1:] or bytes(self._stream.read(size - 2))
        if data and not self._ahead and data[-1] not in self._ends:
            data += b"\n"
        return data

    def readable(self) -> bool:
        return True


def _reader(stream: Any, schema: pa.Schema | None, options: CsvOptions) -> Any:
    names = options.column_names or (schema.names if schema is not None else None)
    return pcsv.open_csv(
        _Ended(stream, options),
        read_options=pcsv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK,
            column_names=None if options.has_header else names,
            autogenerate_column_names=not options.has_header and names is None,
        ),
        **rules(schema, options),
    )


def rules(schema: pa.Schema | None, options: CsvOptions) -> dict[str, Any]:
    """Return the parse and convert options of `pyarrow.csv`."""
    return {
        "parse_options": pcsv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            escape_char=options.escape or False,
            newlines_in_values=True,
        ),
        "convert_options": pcsv.ConvertOptions(
            column_types=None if schema is None else {field.name: requested(field.type, options) for field in schema},
            # Only the columns of the schema: Arrow would guess the types of the others, and a later row can break
            # the guess.
            include_columns=None if schema is None else schema.names,
            include_missing_columns=schema is not None,
            null_values=["", *options.null_values],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=options.decimal_point,
            # For guesses alone; `csv_values` parses the columns of a schema.
            timestamp_parsers=[*options.date_formats, pcsv.ISO8601] if options.date_formats else None,
        ),
    }


def header(file: InputFile, schema: pa.Schema, options: CsvOptions) -> list[str] | None:
    """Return the names of the file's columns; None if the file has no rows.

    Raises:
        SourceError: If the header has none of the schema's columns, or one of them twice.
    """
    rows = records(file, options)
    row = next(rows, None)
    if row is None:
        return None
    if not options.has_header:
        return _own_names(file, schema, options)
    if row.fault:
        raise file.fault(row.fault, row.line, row.payload)
    try:
        first = row.fields(options)
    except csv.Error as error:
        # Arrow reads values that are too long for Python's reader; a column name is never that long.
        raise file.fault(f"no header ({error})", row.line) from error
    if max(map(len, first)) > _LONGEST_NAME:
        raise file.fault(f"no header (a name has more than {_LONGEST_NAME:,} characters)", 1)
    if not set(first) & set(columns := file.columns_or(schema).schema.names):
        raise SourceError(
            f"{file.name} has none of the columns {columns}: its first line is {first}{case_of(first, columns)}",
            hint='if the file has no header, say so: options={"header": False}',
        )
    counts = Counter(first)
    if twice := [name for name in schema.names if counts[name] > 1]:
        raise _stands_twice(file, twice[0])
    file.check_columns(pa.schema({name: pa.string() for name in first if name}), schema)
    # Arrow rejects a file that ends right after its header.
    return first if next(rows, None) else None


def _own_names(file: InputFile, schema: pa.Schema, options: CsvOptions) -> list[str]:
    """Return the names of the columns of a file without a header."""
    names = list(options.column_names or schema.names)
    if not set(names) & set(schema.names):
        raise SourceError(
            f"{file.name} has none of the columns {schema.names}: its column_names are {names}",
            hint="column_names has the name of each of the file's columns, in their order",
        )
    return names


def _place(file: InputFile, number: int, options: CsvOptions) -> tuple[int | None, str]:
    """Return the line and text of a row. Arrow counts rows; a value can span lines."""
    row = next(records(file, options, number - 1), None)
    return (row.line, row.payload) if row else (None, "")


def _bad_row(file: InputFile, error: Exception, options: CsvOptions) -> SourceError:
    match = _ROW.fullmatch(str(error))
    where = _place(file, int(match[3]), options) if match else (None, "")
    return file.fault(reason(error), *where, HINT)


def reason(error: Exception, names: list[str] | None = None) -> str:
    """Return Arrow's error message with the column's name instead of its number, and without the row number.

    Args:
        names: The names of the file's columns, if known.
    """
    match = _ROW.fullmatch(str(error))
    if match is None:
        return str(error)
    column, conversion, _, text = match.groups()
    column_name = f"column {names[int(column)]!r}: " if column and names and int(column) < len(names) else ""
    return f"{column_name}{conversion}{text}"

"""CSV → Arrow batches; the row at fault is found and shown with its line."""

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
    """Raise ConfigError if a column is of a type that CSV can't hold."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ConfigError(
                f"column {field.name!r}: CSV files can't hold {field.type}", hint="use JSON or Parquet files"
            )
        if field.type == pa.uuid():
            raise ConfigError(f"column {field.name!r}: CSV can't be read into uuid", hint="declare a string")


def part_of_rows(file: InputFile, part: tuple[int, int], options: Mapping[str, Any]) -> InputFile:
    """A part of a file that is divisible, with the file's header."""
    return part_of_lines(file, part, has_header=options.get("header", True))


def infer(file: InputFile, options: Mapping[str, Any]) -> pa.Schema | None:
    """The schema of the file's first block of rows; None if it has none."""
    if not _has_rows(file, options):
        return None
    try:
        with file.open() as stream, _reader(stream, None, options) as reader:
            return reader.schema
    except pa.ArrowInvalid as error:
        raise _bad_row(file, error, options) from error


def _has_rows(file: InputFile, options: Mapping[str, Any]) -> bool:
    """Whether a row stands in the file beside its header; one too long for Python's reader does."""
    lines = 2 if options.get("header", True) else 1
    try:
        return len(list(islice(records(file, options), lines))) == lines
    except (csv.Error, SourceError):
        return True


def read(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The file's rows; missing columns are null, others are ignored."""
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
    """The rows of a file that is not empty.

    Raises:
        BadValue: If a value is not of its column's type.
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
        # Arrow takes a quote that is never closed for one long value, which swallows the rest of the file.
        if counted.number % 2 and _ends_in_a_quote(file, options):
            raise BadValue(last.num_rows - 1, "a quote is opened and never closed")
        yield decoded(last, schema, partial(texts.batch, number))


class _Texts:
    """The batches of a file as texts: it is read once more, and only if somebody asks."""

    def __init__(self, file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._batches = enumerate(_read_texts(file, schema, options))

    def batch(self, number: int) -> pa.RecordBatch:
        """The batch of this number; numbers are asked for in ascending order."""
        return next(batch for at, batch in self._batches if at == number)


def _read_texts(file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    with file.open() as stream, _reader(stream, texts_of(schema), options) as reader:
        yield from reader


class _Quotes:
    """A stream of bytes that counts the quotes in what is read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.number = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._stream.read(size)
        self.number += found.count(b'"')
        return found

    def readable(self) -> bool:
        return True


def _ends_in_a_quote(file: InputFile, options: Mapping[str, Any]) -> bool:
    """Whether the last row goes on at the end of the file; a quote within a value opens nothing."""
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
    """How text becomes values, as `pyarrow.csv` is told."""
    return {
        "parse_options": pcsv.ParseOptions(delimiter=delimiter(options), newlines_in_values=True),
        "convert_options": pcsv.ConvertOptions(
            column_types=None if schema is None else {field.name: _asked(field.type) for field in schema},
            # Only the columns that are wanted: the others' types would be guessed, and the guess can fail later on.
            include_columns=None if schema is None else schema.names,
            include_missing_columns=schema is not None,
            null_values=["", *options.get("null_values", ())],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }


def delimiter(options: Mapping[str, Any]) -> str:
    """The column separator: the option ``delimiter``, by default a comma."""
    return str(options.get("delimiter", ","))


def _asked(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's CSV reader is asked for.

    It insists on a zone where a type has one; cast from strings, UTC is taken for granted. Its decimals may have more
    digits than their type, or what an overflow leaves of them.
    """
    return pa.string() if kind == pa.timestamp("us", "UTC") or pa.types.is_decimal(kind) else kind


class BadValue(Exception):
    """A value that is not of its column's type.

    Args:
        row: The number of its row in the batch.
        reason: What is wrong.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


def decoded(batch: pa.RecordBatch, schema: pa.Schema, texts: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
    """A parsed batch in the source's schema.

    Args:
        batch: The batch.
        schema: The schema.
        texts: The same rows in the schema `texts_of`.

    Raises:
        BadValue: If a value is not of its column's type.
    """
    rows = pa.RecordBatch.from_arrays([_cast(batch.column(field.name), field) for field in schema], schema=schema)
    if found := first_too_large(rows, texts):
        raise BadValue(*found)
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
        at = first_failing(len(column), fails)
        raise BadValue(at, f"column {field.name!r}: {column[at].as_py()!r} is no {type_name(field.type)}") from error


def _value_of_text(column: pa.Array, kind: pa.DataType) -> pa.Array:

    from volley.arrow.casts import cast
    from volley.arrow.exact import exact_cast

    return exact_cast(pc.ascii_trim_whitespace(column), kind) if pa.types.is_decimal(kind) else cast(column, kind)


def header(file: InputFile, schema: pa.Schema, options: Mapping[str, Any]) -> list[str] | None:
    """The names of the file's columns; None if it has no rows.

    Raises:
        SourceError: If none of the wanted columns is there, or one of them is there twice.
    """
    rows = (row for _, row in records(file, options))
    try:
        first = next(rows, None)
    except csv.Error as error:
        # Arrow takes values that Python's reader finds too long; names of columns they are not.
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
    # Arrow refuses a header that nothing follows, not even the end of its line. What is wrong with the first row, if
    # anything, is not judged here.
    with suppress(csv.Error, SourceError):
        return first if next(rows, None) else None
    return first


def _bad_row(
    file: InputFile, error: Exception, options: Mapping[str, Any], names: list[str] | None = None
) -> SourceError:
    found = _ROW.fullmatch(str(error))
    place = _place(file, int(found[3]), options) if found else (None, "")
    return file.fault(reason(error, names), *place, _HINT)


def reason(error: Exception, names: list[str] | None = None) -> str:
    """What Arrow says is wrong, with the column's name in place of its number, and without the row's.

    Args:
        error: What Arrow raised.
        names: The names of the file's columns, if they are known.
    """
    found = _ROW.fullmatch(str(error))
    if found is None:
        return str(error)
    column, kind, _, text = found.groups()
    named = f"column {names[int(column)]!r}: " if column and names and int(column) < len(names) else ""
    return f"{named}{kind}{text}"


def _place(file: InputFile, record: int, options: Mapping[str, Any]) -> tuple[int | None, str]:
    """The line of a row and what stands there. Arrow counts rows; a quoted value can span lines."""
    try:
        for number, (line, row) in enumerate(records(file, options), 1):
            if number == record:
                return line, delimiter(options).join(row)
    except csv.Error:
        # A field too long for Python's reader: the row is still told by what Arrow says of it.
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
    """The rows, without empty lines, with the line each begins at."""
    with file.open() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        reader = csv.reader(_lines(file, text), delimiter=delimiter(options))
        line = 1
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1

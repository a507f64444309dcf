"""JSON objects, one behind the other in a text → Arrow batches; and what is wrong with a text that is not so."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from volley.errors import ConfigError, SourceError

__all__ = ["check", "fault", "inferred", "parsed"]

_STRING = rb'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(_STRING)
_NULL_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?\s*null")
_NULL_BEHIND_OBJECT = re.compile(rb"\}\s*null")
# What Arrow takes for infinity, beside numbers that are too large.
_STRINGS_AND_INFINITIES = re.compile(_STRING + rb"|-?Inf(?:inity)?")


def check(schema: pa.Schema) -> None:
    """Raise ConfigError if a column is of a type that JSON lines are not read into."""
    for field in schema:
        if _is_unreadable(field.type, nested=False):
            raise ConfigError(
                f"column {field.name!r}: JSON can't be read into {field.type}",
                hint="declare a struct instead of a map, a string instead of uuid, fixed binary or nested time",
            )


def _is_unreadable(kind: pa.DataType, nested: bool) -> bool:
    t = pa.types
    if t.is_list(kind) or t.is_struct(kind):
        return any(_is_unreadable(kind.field(index).type, True) for index in range(kind.num_fields))
    return t.is_map(kind) or t.is_fixed_size_binary(kind) or kind == pa.uuid() or (nested and t.is_time(kind))


def parsed(text: bytes, schema: pa.Schema, unexpected: str = "ignore") -> list[pa.RecordBatch]:
    """The objects of a text as rows: missing fields are null.

    Args:
        text: The objects, with white space between them.
        schema: The columns.
        unexpected: What to do about other fields: ``"ignore"`` them, or ``"error"``.

    Raises:
        SourceError: If the text is not UTF-8, or a value does not fit.
        pyarrow.ArrowInvalid: If it is not JSON, or a value is of another type.
    """
    _check_text(text)
    asked = pa.schema([pa.field(field.name, _asked(field.type)) for field in schema])
    options = pj.ParseOptions(explicit_schema=asked, unexpected_field_behavior=unexpected)
    table = _table(text, options)
    if _infinite(table) and (column := _infinite(_table(_without_infinities(text), options))):
        raise SourceError(f"column {column!r}: a number is too large for its type")
    return [_decoded(batch, schema) for batch in table.to_batches()]


def inferred(text: bytes) -> pa.Schema:
    """The schema that the objects of a text have.

    Raises:
        SourceError: If one of them is no object.
        pyarrow.ArrowInvalid: If the text is not JSON, or a field is of two types.
    """
    return _table(text, None).schema


def _table(text: bytes, options: pj.ParseOptions | None) -> pa.Table:
    # Arrow crashes on a null before the first object, and takes a later one for a row of nulls.
    if _NULL_FIRST.match(text):
        raise SourceError("not a JSON object")
    read_options = pj.ReadOptions(use_threads=False, block_size=max(1, len(text)))
    table = pj.read_json(pa.BufferReader(text), read_options=read_options, parse_options=options)
    if all(column.null_count for column in table.columns) and _has_null(text):
        raise SourceError("not a JSON object")
    return table


def _has_null(text: bytes) -> bool:
    """True if a null stands where an object should."""
    return bool(_NULL_BEHIND_OBJECT.search(text) and _NULL_BEHIND_OBJECT.search(_STRINGS.sub(b'""', text)))


def _without_infinities(text: bytes) -> bytes:
    """The text with nulls where infinity is meant: what Arrow still takes for it is a number."""
    return _STRINGS_AND_INFINITIES.sub(lambda found: found[0] if found[0][:1] == b'"' else b"null", text)


def _infinite(table: pa.Table) -> str | None:
    """A column with an infinite value, if there is one: a half of a percent of what reading the text costs."""
    return next((name for name in table.column_names if any(map(_is_infinite, table[name].chunks))), None)


def _is_infinite(array: pa.Array) -> bool:
    if pa.types.is_floating(array.type):
        return bool(pc.any(pc.is_inf(array)).as_py())
    if pa.types.is_list(array.type):
        return _is_infinite(array.flatten())
    return pa.types.is_struct(array.type) and any(map(_is_infinite, array.flatten()))


def _check_text(text: bytes) -> None:
    """Arrow takes any bytes for a string, and whoever reads the table stumbles over them."""
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"not UTF-8 ({error.reason})") from error


def _asked(kind: pa.DataType) -> pa.DataType:
    """What Arrow's JSON reader is asked for: it knows ISO timestamps, but dates and times only as strings.

    A decimal it multiplies by a power of ten within the bits of its type: 128 are too few for 38 digits.
    """
    if pa.types.is_decimal(kind):
        return pa.decimal256(kind.precision, kind.scale)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_asked(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _asked(field.type)) for field in kind])
    return kind


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    from volley.arrow.batches import conform

    columns = [
        _time_of_day(column) if pa.types.is_time(field.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return conform(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _time_of_day(text: pa.Array) -> pa.Array:
    """Arrow casts strings to timestamps, not to times."""
    return pc.binary_join_element_wise("1970-01-01T", text, "").cast(pa.timestamp("us")).cast(pa.time64("us"))


def fault(lines: list[bytes], schema: pa.Schema | None, unexpected: str = "ignore") -> str | None:
    """What is wrong with these lines, told of the last; None if nothing is."""
    text = b"\n".join(lines)
    if not text.strip():
        return None
    try:
        if schema is None:
            inferred(text)
        else:
            parsed(text, schema, unexpected)
    except (pa.ArrowException, SourceError) as error:
        # Arrow counts rows within what it was given, which says nothing to the reader of a file.
        reason = error.message if isinstance(error, SourceError) else str(error).partition("\n")[0]
        return _not_an_object(lines[-1]) or re.sub(r" in row \d+$", "", reason)
    return None


def _not_an_object(line: bytes) -> str | None:
    try:
        return None if isinstance(json.loads(line), dict) else "not a JSON object"
    except RecursionError:
        return "nested too deep"
    except ValueError as error:
        return f"not JSON ({error})"

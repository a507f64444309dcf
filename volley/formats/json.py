"""Parses text of JSON objects into Arrow batches, and explains why a text can't be parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from volley.columns.calendar import parsed as parsed_times
from volley.errors import ConfigError, SourceError, message_of
from volley.formats.epochs import epoch_times
from volley.formats.json_checks import check_exponents, check_match
from volley.formats.json_faults import shape_of
from volley.formats.json_objects import Number, encoded, values_of, why_no_object, with_numbers
from volley.formats.json_shapes import has_maps, listed, reshaped, restored

if TYPE_CHECKING:
    from volley.formats.json_columns import ObjectReader

__all__ = ["check", "fault", "inferred", "is_rounded", "parsed", "quick_reader"]

_STRING = rb'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(_STRING)
_NULL_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?\s*null")
_NULL_BEHIND_OBJECT = re.compile(rb"\}\s*null")
# A double holds each whole number of 15 digits.
_LONG_NUMBER = re.compile(rb"\d{16}")
_LONGEST_DOUBLE = 300
_WHOLE = re.compile("-?[0-9]+")
_TEXT_FOR_NUMBER = "changed from number to string"
_OTHER_FOR_TEXT = "changed from string to"
_NO_TIMESTAMP = "Failed to convert JSON to timestamp"
_OFFSET = r"Z$|[T ].*[+-][0-9]{2}(:?[0-9]{2})?$"
# Arrow reads these as infinity, and numbers that are too large.
_STRINGS_AND_INFINITIES = re.compile(_STRING + rb"|-?Inf(?:inity)?")


def check(schema: pa.Schema) -> None:
    """Raise ConfigError if JSON can't be read into a column's type."""
    for field in schema:
        if _is_unreadable(field.type, nested=False):
            raise ConfigError(
                f"column {field.name!r}: JSON can't be read into {field.type}",
                hint="declare maps with keys of string, a string instead of fixed binary or nested time",
            )


def _is_unreadable(data_type: pa.DataType, nested: bool) -> bool:
    t = pa.types
    if t.is_map(data_type):
        return not t.is_string(data_type.key_type) or _is_unreadable(data_type.item_type, True)
    if t.is_list(data_type) or t.is_struct(data_type):
        return any(_is_unreadable(child, True) for child in _children(data_type))
    return t.is_fixed_size_binary(data_type) or (nested and t.is_time(data_type))


def parsed(
    text: bytes,
    schema: pa.Schema,
    unexpected: str = "ignore",
    names: Collection[str] | None = None,
    epoch: str | None = None,
    lenient: bool = True,
) -> list[pa.RecordBatch]:
    """Return the objects of a text as rows; missing fields are null.

    Args:
        text: The objects, separated by white space.
        unexpected: ``"ignore"`` skips unknown fields, ``"error"`` raises.
        names: The names of all columns of the source, of which each object that has fields needs one; None = those of
            the schema. Empty = it needs none.
        epoch: The unit of numbers that are timestamps, ``"ms"``, say; None = there are none.
        lenient: False: raise for a value that is no text in a column of strings, whose JSON is read else.

    Raises:
        SourceError: If the text is not UTF-8, a value doesn't fit, or an object has none of the columns.
        pyarrow.ArrowInvalid: If it is not JSON, or a value has another type.
    """
    _check_text(text)
    if epoch is not None:
        return _with_epochs(text, schema, unexpected, names, epoch, lenient)
    asked = listed(schema)
    if asked is not schema and has_maps(schema.types):
        if not lenient:
            raise SourceError("maps are read leniently")
        text = reshaped(text, schema)
    check_exponents(text, asked)
    columns = _asked(asked)
    options = pj.ParseOptions(explicit_schema=columns, unexpected_field_behavior=unexpected)
    try:
        table = _table(text, options)
    except pa.ArrowInvalid as error:
        if lenient and (other := _readable(text, asked, str(error))) != text:
            return [_restored(batch, schema) for batch in parsed(other, asked, unexpected, names)]
        if _NO_TIMESTAMP not in str(error):
            raise
        table = _with_fine_times(text, columns, unexpected, error)
    if names is None or names:
        check_match(text, table, schema.names if names is None else names)
    if _infinite(table) and (column := _infinite(_table(_without_infinities(text), options))):
        raise SourceError(f"column {column!r}: a number is too large for its type")
    return [_restored(_decoded(batch, asked), schema) for batch in table.to_batches()]


def _with_epochs(
    text: bytes, schema: pa.Schema, unexpected: str, names: Collection[str] | None, epoch: str, lenient: bool
) -> list[pa.RecordBatch]:
    """Return rows of which timestamps are numbers, all of them whole ones if it is to be quick."""
    whole = pa.schema([field.with_type(_with_type_of_times(field.type, pa.int64())) for field in schema])
    if whole != schema:
        with suppress(pa.ArrowInvalid, SourceError):
            return [
                _of_epochs(batch, schema, epoch) for batch in parsed(text, whole, unexpected, names, lenient=lenient)
            ]
    return parsed(reshaped(text, schema, epoch), schema, unexpected, names, lenient=lenient)


def _of_epochs(batch: pa.RecordBatch, schema: pa.Schema, epoch: str) -> pa.RecordBatch:
    def times(numbers: pa.Array, data_type: pa.DataType) -> pa.Array:
        return epoch_times(numbers, epoch, data_type)

    pairs = zip(batch.columns, schema, strict=True)
    arrays = [_with_timestamps(column, field.type, times) for column, field in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _readable(text: bytes, schema: pa.Schema, refusal: str) -> bytes:
    """Return a text that Arrow has refused as it reads it; the same text if nothing can be done."""
    if _TEXT_FOR_NUMBER in refusal and (numbers := _with_numbers(text, schema)) != text:
        return numbers
    if _OTHER_FOR_TEXT not in refusal:
        return text
    try:
        return reshaped(text, schema)
    except SourceError:
        return text


def _restored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the columns `listed` with maps and uuids."""
    if batch.schema is schema or batch.schema.types == schema.types:
        return batch
    columns = [restored(column, field.type, field.name) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def quick_reader(schema: pa.Schema) -> ObjectReader | None:
    """Return what reads objects that have fields of these columns alone; None if a column has another type."""
    # Most jobs have no bad row, and need no msgspec.
    from volley.formats.json_columns import reader_of

    if has_maps(schema.types):
        return None
    asked = listed(schema)
    shapes = {field.name: shape for field in asked if (shape := shape_of(field.type))}
    return reader_of(_asked(asked), shapes, lambda batch: _restored(_decoded(batch, asked), schema))


def inferred(text: bytes) -> pa.Schema:
    """Return the schema of the objects of a text.

    Raises:
        SourceError: If one of them is not an object, or has a whole number that neither 64 bits nor a double hold.
        pyarrow.ArrowInvalid: If the text is not JSON, or a field has two types.
    """
    schema = _table(text, None).schema
    if _has_doubles(schema.types) and _LONG_NUMBER.search(_STRINGS.sub(b'""', text)):
        _check_doubles(text, schema)
    return schema


def _has_doubles(data_types: Iterable[pa.DataType]) -> bool:
    return any(pa.types.is_floating(data_type) or _has_doubles(_children(data_type)) for data_type in data_types)


def _with_numbers(text: bytes, schema: pa.Schema) -> bytes:
    """Return a text with numbers for such as "NaN" in columns of doubles; once they are, the same text."""
    places = "|".join(sorted(_places_of_doubles(schema)))
    if not places or not re.search(rf'(?:{places})[ \t\r\n]*"(?:NaN|-?Infinity)"'.encode(), text):
        return text
    row = pa.struct(schema)
    try:
        values = [*values_of(text)]
    except (ValueError, RecursionError):
        return text
    return "\n".join(encoded(with_numbers(value, row)) for value in values).encode()


def _places_of_doubles(fields: Iterable[pa.Field]) -> set[str]:
    """Return patterns of what stands before doubles: their names, or the start of a list or an item."""
    places = set()
    for field in fields:
        inner, before = field.type, re.escape(json.dumps(field.name, ensure_ascii=False)) + r"[ \t\r\n]*:"
        while pa.types.is_list(inner):
            inner, before = inner.value_type, r"[\[,]"
        places |= (
            _places_of_doubles(inner)
            if pa.types.is_struct(inner)
            else {before}
            if pa.types.is_floating(inner)
            else set()
        )
    return places


def _children(data_type: pa.DataType) -> list[pa.DataType]:
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def _check_doubles(text: bytes, schema: pa.Schema) -> None:
    """Raise SourceError if a column of doubles has a whole number that a double would round."""
    try:
        for row in map(dict, values_of(text)):
            for field in schema:
                for number in _rounded(row.get(field.name), field.type):
                    raise SourceError(f"column {field.name!r}: a double would round {number}")
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not JSON ({error})") from error


def _rounded(value: Any, data_type: pa.DataType) -> Iterator[Number]:
    """Yield the whole numbers in a value that are read as doubles and would be rounded."""
    if isinstance(value, list):
        for item in value:
            yield from _rounded(item, data_type.value_type)
    elif isinstance(value, tuple):
        values = dict(value)
        for field in data_type:
            yield from _rounded(values.get(field.name), field.type)
    elif isinstance(value, Number) and pa.types.is_floating(data_type) and is_rounded(value):
        yield value


def is_rounded(number: Number) -> bool:
    """Return True if a number is a whole one that a double would round."""
    return len(number) <= _LONGEST_DOUBLE and _WHOLE.fullmatch(number) is not None and int(float(number)) != int(number)


def _table(text: bytes, options: pj.ParseOptions | None) -> pa.Table:
    # Arrow's reader is not given a null in place of an object: it reads some as rows of nulls.
    if _NULL_FIRST.match(text):
        raise SourceError("not a JSON object")
    read_options = pj.ReadOptions(use_threads=False, block_size=max(1, len(text)))
    table = pj.read_json(pa.BufferReader(text), read_options=read_options, parse_options=options)
    if all(column.null_count for column in table.columns) and _has_null(text):
        raise SourceError("not a JSON object")
    return table


def _has_null(text: bytes) -> bool:
    """Return True if the text has a null in the place of an object."""
    return bool(_NULL_BEHIND_OBJECT.search(text) and _NULL_BEHIND_OBJECT.search(_STRINGS.sub(b'""', text)))


def _without_infinities(text: bytes) -> bytes:
    """Return the text with null for each literal infinity: what Arrow still reads as infinite is a too large number."""
    return _STRINGS_AND_INFINITIES.sub(lambda match: match[0] if match[0][:1] == b'"' else b"null", text)


def _infinite(table: pa.Table) -> str | None:
    """Return the name of a column with an infinite value, or None: costs half a percent of parsing the text."""
    return next((name for name in table.column_names if any(map(_is_infinite, table[name].chunks))), None)


def _is_infinite(array: pa.Array) -> bool:
    if pa.types.is_floating(array.type):
        return bool(pc.any(pc.is_inf(array)).as_py())
    if pa.types.is_list(array.type):
        return _is_infinite(array.flatten())
    return pa.types.is_struct(array.type) and any(map(_is_infinite, array.flatten()))


def _check_text(text: bytes) -> None:
    """Raise SourceError if the text is not UTF-8: Arrow does not check it, and later readers would fail."""
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"not UTF-8 ({error.reason})") from error


def _asked(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _arrow_type(field.type)) for field in schema])


def _arrow_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type to request from Arrow's JSON reader: it parses ISO timestamps, but no dates and times.

    Arrow scales decimals within the bits of their type: 128 bits are too few for 38 digits.
    """
    if pa.types.is_decimal(data_type):
        return pa.decimal256(data_type.precision, data_type.scale)
    if pa.types.is_date(data_type) or pa.types.is_time(data_type):
        return pa.string()
    if pa.types.is_list(data_type):
        return pa.list_(_arrow_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _arrow_type(field.type)) for field in data_type])
    return data_type


def _with_fine_times(text: bytes, columns: pa.Schema, unexpected: str, error: pa.ArrowInvalid) -> pa.Table:
    """Return rows with more than six digits behind the point of a second; raise Arrow's error if one has no time."""
    texts = pa.schema([field.with_type(_with_type_of_times(field.type, pa.string())) for field in columns])
    table = _table(text, pj.ParseOptions(explicit_schema=texts, unexpected_field_behavior=unexpected)).combine_chunks()
    pairs = zip(table.columns, columns, strict=True)
    try:
        arrays = [_with_timestamps(pa.concat_arrays(column.chunks), field.type) for column, field in pairs]
    except pa.ArrowInvalid:
        raise error from None
    return pa.Table.from_arrays(arrays, schema=columns)


def _with_type_of_times(data_type: pa.DataType, times: pa.DataType) -> pa.DataType:
    """Return a type with another one for its timestamps, but for those in maps."""
    if pa.types.is_list(data_type):
        return pa.list_(_with_type_of_times(data_type.value_type, times))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_with_type_of_times(field.type, times)) for field in data_type])
    return times if pa.types.is_timestamp(data_type) else data_type


def _with_timestamps(
    array: pa.Array, data_type: pa.DataType, times: Callable[[pa.Array, pa.DataType], pa.Array] | None = None
) -> pa.Array:
    """Return an array of `_with_type_of_times` in the type with timestamps; `times` makes them, None = of texts."""
    if array.type == data_type:
        return array
    if pa.types.is_list(data_type):
        values = _with_timestamps(array.values, data_type.value_type, times)
        return pa.Array.from_buffers(data_type, len(array), array.buffers()[:2], offset=array.offset, children=[values])
    if pa.types.is_struct(data_type):
        fields = [_with_timestamps(array.field(number), field.type, times) for number, field in enumerate(data_type)]
        return pa.StructArray.from_arrays(fields, fields=list(data_type), mask=array.is_null())
    return (times or _timestamps)(array, data_type)


def _timestamps(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return texts as timestamps, as Arrow's JSON reader does: with an offset or without, whatever the type."""
    has_offset, null = pc.match_substring_regex(texts, _OFFSET), pa.scalar(None, pa.string())
    instants = parsed_times(pc.if_else(has_offset, texts, null), pa.timestamp(data_type.unit, "UTC"))
    others = parsed_times(pc.if_else(has_offset, null, texts), pa.timestamp(data_type.unit))
    return pc.coalesce(instants.cast(data_type), others.cast(data_type))


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    from volley.columns.batches import conform

    columns = [
        _time_of_day(column) if pa.types.is_time(field.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return conform(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _time_of_day(text: pa.Array) -> pa.Array:
    """Return strings as times, by way of timestamps: Arrow has no cast from string to time."""
    return parsed_times(pc.binary_join_element_wise("1970-01-01T", text, ""), pa.timestamp("us")).cast(pa.time64("us"))


def fault(
    lines: list[bytes],
    schema: pa.Schema | None,
    unexpected: str = "ignore",
    names: Collection[str] | None = None,
    epoch: str | None = None,
) -> str | None:
    """Return the reason why the last of these lines can't be parsed; None if all can."""
    text = b"\n".join(lines)
    if not text.strip():
        return None
    try:
        if schema is None:
            inferred(text)
        else:
            parsed(text, schema, unexpected, names, epoch)
    except (pa.ArrowException, SourceError) as error:
        # Drop Arrow's row number: it counts within this text, not within the file.
        reason = message_of(error).partition("\n")[0]
        return why_no_object(lines[-1]) or re.sub(r" in row \d+$", "", reason)
    return None

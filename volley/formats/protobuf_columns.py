"""Maps the fields of Protobuf messages to Arrow types, and collects the values of many messages into columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain, compress
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from volley.errors import ConfigError, SourceError
from volley.formats.protobuf_times import durations, timestamps
from volley.formats.protobuf_types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    ENUM,
    FIXED32,
    FIXED64,
    FLOAT,
    INT32,
    INT64,
    JSON,
    SFIXED32,
    SFIXED64,
    SINT32,
    SINT64,
    STRING,
    TIMESTAMP,
    UINT32,
    UINT64,
    WRAPPERS,
    is_map,
)

__all__ = ["MOST_PARTS", "Columns"]

MOST_PARTS = 10_000
"""The limit of the fields of a message, those of a type counted wherever it stands."""

_DEEPEST = 100
_DIGITS_OF_UINT64 = 20
_DURATION = pa.decimal128(21, 9)
_UNSIGNED = pa.decimal128(_DIGITS_OF_UINT64, 0)

_PLAIN: dict[int, pa.DataType] = {
    DOUBLE: pa.float64(),
    FLOAT: pa.float32(),
    BOOL: pa.bool_(),
    STRING: pa.string(),
    BYTES: pa.binary(),
    **dict.fromkeys((INT32, SINT32, SFIXED32), pa.int32()),
    **dict.fromkeys((INT64, SINT64, SFIXED64, UINT32, FIXED32), pa.int64()),
}

_Convert = Callable[[Sequence[Any]], pa.Array]


class _Column(NamedTuple):
    """How values of Python become a column.

    Args:
        convert: Returns the column of values, none of which is None; messages are values, too.
    """

    type: pa.DataType
    convert: _Convert


class Columns:
    """The columns of a message.

    Args:
        message: Its descriptor.
        nanoseconds: True: timestamps have nanoseconds.

    Raises:
        ConfigError: If a message contains itself, or there are too many fields.
    """

    def __init__(self, message: Any, nanoseconds: bool = False) -> None:
        self._parts = 0
        self._timestamp = pa.timestamp("ns" if nanoseconds else "us", "UTC")
        self._fields = [(field.name, self._field(field, (message,))) for field in message.fields]
        if not self._fields:
            raise ConfigError(f"the message {message.full_name} has no fields", hint="name another: message=…")
        self.schema = pa.schema([pa.field(name, column.type) for name, column in self._fields])

    def arrays(self, messages: Sequence[Any]) -> list[pa.Array]:
        """Return the columns of messages.

        Raises:
            SourceError: If a value has no place in its column; names the field.
        """
        return [column.convert(messages) for _, column in self._fields]

    def _field(self, field: Any, path: tuple[Any, ...]) -> _Column:
        """Return the column of a field: what converts messages that have it.

        Args:
            path: The messages that it is in, from outside to inside.
        """
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise ConfigError(f"the message {path[0].full_name} has more than {MOST_PARTS:,} fields")
        value = attrgetter(field.name)
        if is_map(field):
            keys, values = (self._value(part, path) for part in field.message_type.fields)
            return _map(field.name, keys, values)
        column = self._value(field, path)
        if field.is_repeated:
            return _list(value, column)
        if field.has_presence:
            return _optional(field.name, value, column)
        return _Column(column.type, lambda messages: column.convert([*map(value, messages)]))

    def _value(self, field: Any, path: tuple[Any, ...]) -> _Column:
        """Return the column of a field's single values."""
        if field.type in _PLAIN:
            data_type = _PLAIN[field.type]
            return _Column(data_type, lambda values: pa.array(values, data_type))
        if field.type == ENUM:
            return _Column(pa.string(), _enum(field.enum_type))
        if field.type in (UINT64, FIXED64):
            return _Column(_UNSIGNED, lambda values: pa.array(values, pa.uint64()).cast(_UNSIGNED))
        return self._message(field, path)

    def _message(self, field: Any, path: tuple[Any, ...]) -> _Column:
        message = field.message_type
        if message.file.name.startswith("google/protobuf/"):
            if message.full_name in WRAPPERS:
                inner, value = self._value(message.fields[0], path), attrgetter("value")
                return _Column(inner.type, lambda messages: inner.convert([*map(value, messages)]))
            if message.full_name in JSON:
                return _Column(pa.string(), _json_texts)
            if message.full_name == TIMESTAMP:
                return _times(field.name, self._timestamp, timestamps)
            if message.full_name == DURATION:
                return _times(field.name, _DURATION, durations)
        if message in path or len(path) > _DEEPEST:
            raise ConfigError(
                f"field {field.full_name!r}: the message {message.full_name} contains itself, which columns can't",
                hint="give a schema without this field: schema=…, the text of a .proto file",
            )
        return self._struct(message, (*path, message))

    def _struct(self, message: Any, path: tuple[Any, ...]) -> _Column:
        columns = [(field.name, self._field(field, path)) for field in message.fields]
        if not columns:
            # A table has no columns without fields: what is left is whether it is there.
            return _Column(pa.bool_(), lambda messages: pa.array([True] * len(messages), pa.bool_()))
        fields = [pa.field(name, column.type) for name, column in columns]

        def convert(messages: Sequence[Any]) -> pa.Array:
            arrays = [column.convert(messages) for _, column in columns]
            return pa.StructArray.from_arrays(arrays, fields=fields)

        return _Column(pa.struct(fields), convert)


def _optional(name: str, value: Callable[[Any], Any], column: _Column) -> _Column:
    has = methodcaller("HasField", name)

    def convert(messages: Sequence[Any]) -> pa.Array:
        present = np.fromiter(map(has, messages), bool, len(messages))
        if present.all():
            return column.convert([*map(value, messages)])
        array = column.convert([*map(value, compress(messages, present.tolist()))])
        return array.take(pa.array(np.cumsum(present) - 1, mask=~present))

    return _Column(column.type, convert)


def _list(value: Callable[[Any], Any], column: _Column) -> _Column:
    data_type = pa.list_(column.type)

    def convert(messages: Sequence[Any]) -> pa.Array:
        lists = [*map(value, messages)]
        items = column.convert([*chain.from_iterable(lists)])
        return pa.ListArray.from_arrays(_offsets(lists), items, type=data_type)

    return _Column(data_type, convert)


def _map(field: str, keys: _Column, values: _Column) -> _Column:
    data_type = pa.map_(keys.type, values.type)
    value = attrgetter(field)

    def convert(messages: Sequence[Any]) -> pa.Array:
        maps = [*map(value, messages)]
        try:
            # Sorted, because each process orders them otherwise.
            names = [*map(sorted, maps)]
        except TypeError as error:
            # The library gives the bytes of such keys.
            raise SourceError(f"field {field!r} has keys that are not UTF-8") from error
        ordered = [map(entries.__getitem__, own) for entries, own in zip(maps, names, strict=True)]
        items = values.convert([*chain.from_iterable(ordered)])
        texts = keys.convert([*chain.from_iterable(names)])
        return pa.MapArray.from_arrays(_offsets(maps), texts, items, type=data_type)

    return _Column(data_type, convert)


def _offsets(lists: Sequence[Any]) -> pa.Array:
    ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))
    return pa.array(np.concatenate(([0], ends)), pa.int32())


class _Names(dict[int, str]):
    """The names of an enum's numbers; a number without a name has its digits."""

    def __missing__(self, number: int) -> str:
        return str(number)


def _enum(enum: Any) -> _Convert:
    names = _Names()
    for value in enum.values:
        # Of several names of a number, the first.
        names.setdefault(value.number, value.name)
    return lambda numbers: pa.array([*map(names.__getitem__, numbers)], pa.string())


def _times(field: str, data_type: pa.DataType, times: Callable[..., pa.Array]) -> _Column:
    """Return the column of messages that have seconds and nanoseconds."""

    def convert(messages: Sequence[Any]) -> pa.Array:
        numbers = (
            np.fromiter(map(attrgetter(name), messages), np.int64, len(messages)) for name in ("seconds", "nanos")
        )
        return times(*numbers, data_type, field)

    return _Column(data_type, convert)


def _json_texts(messages: Sequence[Any]) -> pa.Array:
    texts = [json.dumps(_plain(message), ensure_ascii=False, separators=(",", ":")) for message in messages]
    return pa.array(texts, pa.string())


def _plain(message: Any) -> Any:
    """Return a Struct, Value or ListValue as JSON has it; a number that is not finite becomes its name."""
    match message.DESCRIPTOR.name:
        case "Struct":
            return {name: _plain(message.fields[name]) for name in sorted(message.fields)}
        case "ListValue":
            return [*map(_plain, message.values)]
    member = message.WhichOneof("kind")
    if member in (None, "null_value"):
        return None
    value = getattr(message, member)
    if member in ("struct_value", "list_value"):
        return _plain(value)
    if member == "number_value":
        return _number(value)
    return value


def _number(value: float) -> Any:
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value

"""Decodes many Protobuf messages of one schema at once: each step reads one field of all of them.

It reads messages as serializers write them: fields in the order of their numbers, each once. For others it says so,
and the library reads them: whether a message is damaged is never decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.errors import SourceError
from volley.formats.cursors import Cursors, Integers, UnusualError, from_zigzag
from volley.formats.joined_values import Joined
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
    MESSAGE,
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

__all__ = ["ProtobufBatches", "UnsupportedError"]

# The library's own limit is 100.
_DEEPEST = 50
_LONGEST_LENGTH, _LONGEST_TAG = 4, 5
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_WIDTHS = {_EIGHT: 8, _FOUR: 4}
_32_BITS = np.uint64(0xFFFFFFFF)

_Read = Callable[[Cursors], pa.Array]
_ReadAll = Callable[[Cursors], list[pa.Array]]


class UnsupportedError(Exception):
    """The schema has a type that only the library reads."""


class ProtobufBatches:
    """Reads messages of one type into columns.

    Args:
        message: Its descriptor.
        columns: Its columns, as `Columns` has them.

    Raises:
        UnsupportedError: If the message has a type that only the library reads.
    """

    def __init__(self, message: Any, columns: pa.Schema) -> None:
        self._read = _message(message, columns.types, 0)

    def read(self, values: Joined, rows: Integers, starts: Integers | int) -> list[pa.Array] | None:
        """Return the columns of messages; None if the library must read them.

        Args:
            rows: The numbers of the values that have them.
            starts: Where a message begins in each of those.
        """
        try:
            return self._read(values.cursors(rows, starts))
        except (UnusualError, SourceError, pa.ArrowInvalid):
            return None


def _message(message: Any, types: Sequence[pa.DataType], depth: int) -> _ReadAll:
    """Return what reads the fields of messages, up to their end."""
    if depth > _DEEPEST:
        raise UnsupportedError
    reads = [_field(field, data_type, depth) for field, data_type in zip(message.fields, types, strict=True)]
    order = sorted(range(len(reads)), key=lambda place: int(message.fields[place].number))
    places = {field.number: place for place, field in enumerate(message.fields)}
    oneofs = [[places[field.number] for field in oneof.fields] for oneof in message.oneofs if len(oneof.fields) > 1]
    last = None if message.is_extendable else max(places, default=0)

    def read(cursors: Cursors) -> list[pa.Array]:
        columns = {place: reads[place](cursors) for place in order}
        if len(rows := np.flatnonzero(cursors.at != cursors.ends)):
            _skip_unknown(cursors, rows, last)
        for members in oneofs:
            if (sum(columns[place].is_valid().to_numpy(False).astype(np.int8) for place in members) > 1).any():
                raise UnusualError
        return [columns[place] for place in range(len(reads))]

    return read


def _skip_unknown(cursors: Cursors, rows: Integers, last: int | None) -> None:
    """Pass over fields behind the last one that is known, up to the end.

    Args:
        rows: The messages that have some.
        last: The number of that; None = the library reads those behind.
    """
    while len(rows):
        cursors.count_turn()
        part = cursors.part(rows)
        begin = part.at
        tags = part.numbers()
        wires = tags & np.uint64(7)
        is_unknown = (tags >> np.uint64(3) > np.uint64(last or 0)) & (tags <= _32_BITS)
        if last is None or not is_unknown.all() or (part.at - begin > _LONGEST_TAG).any():
            raise UnusualError
        for wire in np.unique(wires).tolist():
            same = np.flatnonzero(wires == wire)
            field = part.part(same)
            _skip(field, wire)
            part.moved(same, field)
        cursors.moved(rows, part)
        rows = rows[part.at != part.ends]


def _field(field: Any, data_type: pa.DataType, depth: int) -> _Read:
    if is_map(field):
        return _map(field, data_type, depth)
    if field.is_repeated:
        return _list(field, data_type, depth)
    unset = pa.nulls(1, data_type) if field.has_presence else _default(field, data_type)
    return _optional(field, _value(field, data_type, depth), unset)


def _default(field: Any, data_type: pa.DataType) -> pa.Array:
    if field.type == ENUM:
        return pa.array([_names(field.enum_type)[field.default_value]], data_type)
    return pa.array([field.default_value], data_type)


def _optional(field: Any, read: _Read, unset: pa.Array | None) -> _Read:
    """Return what reads a field that a message has once at most.

    Args:
        read: Reads its values, behind their tags.
        unset: The value of messages that lack it; None = the library reads them.
    """
    tag = _tag(field.number, _wire(field))

    def values(cursors: Cursors) -> pa.Array:
        has = cursors.starts_with(tag)
        if has.all():
            cursors.pass_over(len(tag))
            return read(cursors)
        if unset is None:
            raise UnusualError
        rows = np.flatnonzero(has)
        places = np.full(len(cursors), len(rows))
        if not len(rows):
            return unset.take(pa.array(places))
        part = cursors.part(rows)
        part.pass_over(len(tag))
        array = pa.concat_arrays([read(part), unset])
        cursors.moved(rows, part)
        places[rows] = np.arange(len(rows))
        return array.take(pa.array(places))

    return values


def _list(field: Any, data_type: pa.DataType, depth: int) -> _Read:
    read, wire = _value(field, data_type.value_type, depth), _wire(field)
    tag, packed = _tag(field.number, wire), _tag(field.number, _BYTES)

    def lists(cursors: Cursors) -> pa.Array:
        # A message with both has a rest that is no known field.
        if wire != _BYTES and (has := cursors.starts_with(packed)).any():
            items, counts = _packed(cursors, np.flatnonzero(has), len(packed), wire)
        else:
            items, counts = _unpacked(cursors, tag, wire)
        values = read(items)
        if (items.at != items.ends).any():
            raise UnusualError
        return pa.ListArray.from_arrays(_offsets(counts), values, type=data_type)

    return lists


def _packed(cursors: Cursors, rows: Integers, width_of_tag: int, wire: int) -> tuple[Cursors, Integers]:
    """Return cursors over the items of packed lists, and how many each message has."""
    part = cursors.part(rows)
    part.pass_over(width_of_tag)
    counts = np.zeros(len(cursors), np.int64)
    items, counts[rows] = part.items(_lengths(part), _WIDTHS.get(wire))
    cursors.moved(rows, part)
    return items, counts


def _unpacked(cursors: Cursors, tag: bytes, wire: int) -> tuple[Cursors, Integers]:
    """Return cursors over items that stand behind a tag each, and how many each message has."""
    counts = np.zeros(len(cursors), np.int64)
    begins, ends = [counts[:0]], [counts[:0]]
    rows = np.flatnonzero(cursors.starts_with(tag))
    while len(rows):
        cursors.count_turn()
        part = cursors.part(rows)
        part.pass_over(len(tag))
        begins.append(part.at)
        _skip(part, wire)
        ends.append(part.at)
        cursors.moved(rows, part)
        counts[rows] += 1
        rows = rows[part.starts_with(tag)]
    # The order of their places is that of messages, and of items in each.
    return cursors.over(np.sort(np.concatenate(begins)), np.sort(np.concatenate(ends))), counts


def _map(field: Any, data_type: pa.MapType, depth: int) -> _Read:
    tag = _tag(field.number, _BYTES)
    key, value = field.message_type.fields
    keys_of = _optional(key, _value(key, data_type.key_type, depth), _default(key, data_type.key_type))
    is_plain = value.type not in (MESSAGE, ENUM)
    unset = _default(value, data_type.item_type) if is_plain else None
    items_of = _optional(value, _value(value, data_type.item_type, depth), unset)

    def maps(cursors: Cursors) -> pa.Array:
        places, counts = _unpacked(cursors, tag, _BYTES)
        entries = places.inner(_lengths(places))
        keys, items = keys_of(entries), items_of(entries)
        if (entries.at != entries.ends).any():
            raise UnusualError
        order = _order(np.repeat(np.arange(len(counts)), counts), keys)
        return pa.MapArray.from_arrays(_offsets(counts), keys.take(order), items.take(order), type=data_type)

    return maps


def _order(rows: Integers, keys: pa.Array) -> pa.Array:
    """Return the order of entries by their maps, then by their keys, of which no map has one twice."""
    entries = pa.table({"row": rows, "key": keys})
    order = pc.sort_indices(entries, [("row", "ascending"), ("key", "ascending")])
    ordered = entries.take(order).combine_chunks()
    same = [pc.equal(column[1:], column[:-1]).to_numpy() for column in ordered.columns]
    if (same[0] & same[1]).any():
        raise UnusualError
    return order


def _offsets(counts: Integers) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


def _value(field: Any, data_type: pa.DataType, depth: int) -> _Read:
    """Return what reads values of a field, behind their tags."""
    if field.type == ENUM:
        return _enum(field.enum_type)
    if field.type in _NUMBERS:
        convert = _NUMBERS[field.type]
        return lambda cursors: pa.array(convert(cursors)).cast(data_type)
    if field.type in (STRING, BYTES):
        # The cast to string checks that the bytes are UTF-8.
        return lambda cursors: cursors.texts(_lengths(cursors)).cast(data_type)
    if field.type != MESSAGE:
        raise UnsupportedError
    read = _struct(field, data_type, depth + 1)
    return lambda cursors: read(cursors.inner(_lengths(cursors)))


def _struct(field: Any, data_type: pa.DataType, depth: int) -> _Read:
    message = field.message_type
    if message.file.name.startswith("google/protobuf/"):
        if message.full_name in JSON:
            raise UnsupportedError
        if message.full_name in WRAPPERS:
            wrapped = _message(message, [data_type], depth)
            return lambda cursors: wrapped(cursors)[0]
        if message.full_name in _TIMES:
            return _times(field, data_type, depth)
    if not message.fields:
        empty = _message(message, [], depth)

        def presence(cursors: Cursors) -> pa.Array:
            empty(cursors)
            return pa.array(np.ones(len(cursors), bool))

        return presence
    fields = [*data_type]
    read = _message(message, [part.type for part in fields], depth)
    return lambda cursors: pa.StructArray.from_arrays(read(cursors), fields=fields)


_TIMES = {TIMESTAMP: timestamps, DURATION: durations}


def _times(field: Any, data_type: pa.DataType, depth: int) -> _Read:
    parts = _message(field.message_type, [pa.int64(), pa.int64()], depth)
    times = _TIMES[field.message_type.full_name]

    def read(cursors: Cursors) -> pa.Array:
        seconds, nanos = parts(cursors)
        return times(seconds.to_numpy(), nanos.to_numpy(), data_type, field.name)

    return read


def _enum(enum: Any) -> _Read:
    names = _names(enum)
    numbers = np.array(sorted(names), np.int32)
    texts = pa.array([names[number] for number in numbers.tolist()], pa.string())

    def read(cursors: Cursors) -> pa.Array:
        values = _int32(cursors)
        places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        if (numbers[places] != values).any():
            raise UnusualError
        return texts.take(pa.array(places))

    return read


def _names(enum: Any) -> dict[int, str]:
    # Of several names of a number, the first.
    return {value.number: value.name for value in reversed([*enum.values])}


def _int32(cursors: Cursors) -> Any:
    # The library takes the lowest bits of a longer number.
    return cursors.numbers().astype(np.uint32).view(np.int32)


def _words(cursors: Cursors, width: int, kind: str) -> Any:
    return cursors.words(width).view(kind)


_NUMBERS: dict[int, Callable[[Cursors], Any]] = {
    INT32: _int32,
    INT64: lambda cursors: cursors.numbers().view(np.int64),
    UINT32: lambda cursors: cursors.numbers() & _32_BITS,
    UINT64: Cursors.numbers,
    SINT32: lambda cursors: from_zigzag(cursors.numbers() & _32_BITS),
    SINT64: lambda cursors: from_zigzag(cursors.numbers()),
    BOOL: lambda cursors: cursors.numbers() != 0,
    FIXED32: partial(_words, width=4, kind="<u4"),
    SFIXED32: partial(_words, width=4, kind="<i4"),
    FLOAT: partial(_words, width=4, kind="<f4"),
    FIXED64: partial(_words, width=8, kind="<u8"),
    SFIXED64: partial(_words, width=8, kind="<i8"),
    DOUBLE: partial(_words, width=8, kind="<f8"),
}


def _wire(field: Any) -> int:
    """Return what tells how long a field's values are."""
    if field.type in (DOUBLE, FIXED64, SFIXED64):
        return _EIGHT
    if field.type in (FLOAT, FIXED32, SFIXED32):
        return _FOUR
    return _BYTES if field.type in (STRING, BYTES, MESSAGE) else _VARINT


def _tag(number: int, wire: int) -> bytes:
    """Return what stands in front of a value."""
    rest, tag = number << 3 | wire, bytearray()
    while rest >= 0x80:
        tag.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*tag, rest])


def _skip(cursors: Cursors, wire: int) -> None:
    if wire == _VARINT:
        cursors.numbers()
    elif wire in _WIDTHS:
        cursors.skip(_WIDTHS[wire])
    elif wire == _BYTES:
        cursors.pass_over(_lengths(cursors))
    else:
        raise UnusualError


def _lengths(cursors: Cursors) -> Integers:
    begin = cursors.at
    lengths = cursors.numbers().view(np.int64)
    if (cursors.at - begin > _LONGEST_LENGTH).any() or (lengths > cursors.ends - cursors.at).any():
        raise UnusualError
    return lengths

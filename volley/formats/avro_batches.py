"""Decodes many Avro records of one schema at once: each step reads one field of all of them.

It reads what most schemas and records have. For others it says so, and they are read one after the other: whether a
record is damaged is never decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from volley.columns.exact import array_of, rescaled
from volley.formats.avro_resolution import can_become, kind_of, named_types
from volley.formats.cursors import Cursors, Integers, UnusualError, from_zigzag
from volley.formats.joined_values import Joined
from volley.formats.repeated_values import Repeated, placed

__all__ = ["AvroBatches", "UnsupportedError"]

_MICROSECONDS_OF_A_DAY = 86_400_000_000
_MOST_ITEMS = 2_000
_DIGITS = 38
_LARGEST = np.iinfo(np.int64).max
_FLOATS = {"float": (4, "<f4"), "double": (8, "<f8")}
_INTEGERS = (pa.int64(), *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")))
_NARROW = (pa.int32(), pa.date32())
_TIME = pa.time64("us")

_Read = Callable[[Cursors], pa.Array]
_Skip = Callable[[Cursors], None]
_Convert = Callable[[Integers], Integers]


class UnsupportedError(Exception):
    """The schema has a type that is read one value after the other."""


class AvroBatches:
    """Reads records of one schema into columns.

    Args:
        writer: Their schema, as `resolved` returns it.
        reader: The schema to read them into, likewise.
        columns: The columns of that, or some of them.

    Raises:
        UnsupportedError: If the schema has a type that is read one value after the other.
    """

    def __init__(self, writer: Any, reader: Any, columns: pa.Schema) -> None:
        if kind_of(writer) != "record":
            raise UnsupportedError
        self._read = _Plans(named_types(writer), named_types(reader)).fields(writer, reader, [*columns])

    def read(self, values: Joined, rows: Integers, start: int) -> list[pa.Array] | None:
        """Return the columns of records; None if one of them is damaged, or must be read by itself.

        Args:
            rows: The numbers of the values that have them.
            start: Where a record begins in each of those.
        """
        try:
            cursors = values.cursors(rows, start)
            arrays = self._read(cursors)
        except (UnusualError, pa.ArrowInvalid):
            return None
        return arrays if (cursors.at == cursors.ends).all() else None


class _Plans:
    """Makes what reads the values of types.

    Args:
        writers: The named types of the schema that values were written with.
        readers: Those of the schema to read them into.
    """

    def __init__(self, writers: Mapping[str, Any], readers: Mapping[str, Any]) -> None:
        self._writers = writers
        self._readers = readers
        self._within: list[str] = []

    def fields(self, writer: Any, reader: Any, columns: Sequence[pa.Field]) -> Callable[[Cursors], list[pa.Array]]:
        """Return what reads the fields of a record into these columns."""
        self._within.append(writer["name"])
        wanted = {field["name"]: field for field in reader["fields"]}
        types = {field.name: field.type for field in columns}
        steps: list[tuple[str, _Read | None, _Skip | None]] = []
        for field in writer["fields"]:
            name, target = field["name"], wanted.pop(field["name"], None)
            if target is None or name not in types:
                steps.append((name, None, self._skip(field["type"])))
            else:
                steps.append((name, self._type(field["type"], target["type"], types[name]), None))
        added = {name: field for name, field in wanted.items() if name in types}
        defaults = {name: array_of([field["default"]], types[name]) for name, field in added.items()}
        self._within.pop()

        def read(cursors: Cursors) -> list[pa.Array]:
            arrays = {}
            for name, convert, skip in steps:
                if convert is not None:
                    arrays[name] = convert(cursors)
                elif skip is not None:
                    skip(cursors)
            count = len(cursors)
            arrays |= {name: value.take(pa.array(np.zeros(count, np.int64))) for name, value in defaults.items()}
            return [arrays[field.name] if field.name in arrays else pa.nulls(count, field.type) for field in columns]

        return read

    def _type(self, writer: Any, reader: Any, data_type: pa.DataType) -> _Read:
        writer, reader = _found(writer, self._writers), _found(reader, self._readers)
        if isinstance(writer, list):
            return self._union(writer, reader, data_type)
        if isinstance(reader, list):
            raise UnsupportedError
        match kind_of(writer):
            case "null":
                return lambda cursors: pa.nulls(len(cursors), data_type)
            case "record":
                return self._record(writer, reader, data_type)
            case "array" if pa.types.is_list(data_type):
                return _list(self._type(writer["items"], reader["items"], data_type.value_type), data_type)
            case "map" if pa.types.is_map(data_type):
                return _map(self._type(writer["values"], reader["values"], data_type.item_type), data_type)
            case "enum" if data_type == pa.string():
                return _enum(writer["symbols"], reader)
        return _plain(writer, data_type)

    def _record(self, writer: Any, reader: Any, data_type: pa.DataType) -> _Read:
        if writer["name"] in self._within or not pa.types.is_struct(data_type) or not data_type.num_fields:
            raise UnsupportedError
        fields = [*data_type]
        read = self.fields(writer, reader, fields)
        return lambda cursors: pa.StructArray.from_arrays(read(cursors), fields=fields)

    def _union(self, members: list[Any], reader: Any, data_type: pa.DataType) -> _Read:
        targets = reader if isinstance(reader, list) else [reader]
        branches: list[_Read | None] = []
        for member in members:
            matches = [target for target in targets if self._is_match(member, target)]
            if len(matches) > 1:
                raise UnsupportedError
            branches.append(self._type(member, matches[0], data_type) if matches else None)
        nulls = [kind_of(member) == "null" for member in members]
        return lambda cursors: _of_branches(cursors, branches, nulls, data_type)

    def _is_match(self, writer: Any, reader: Any) -> bool:
        writer, reader = _found(writer, self._writers), _found(reader, self._readers)
        if "name" in (named := writer if isinstance(writer, dict) else {}):
            return isinstance(reader, dict) and reader.get("name") == named["name"]
        return can_become(kind_of(writer), kind_of(reader))

    def _skip(self, schema: Any) -> _Skip:
        """Return what passes over values of a type."""
        schema = _found(schema, self._writers)
        if isinstance(schema, list):
            branches = [*map(self._skip, schema)]
            return lambda cursors: _skip_branches(cursors, branches)
        match kind_of(schema):
            case "record":
                return self._skip_record(schema)
            case "array":
                return _skip_repeated([self._skip(schema["items"])])
            case "map":
                return _skip_repeated([_skip_text, self._skip(schema["values"])])
            case "fixed":
                return partial(Cursors.skip, width=schema["size"])
            case kind if kind in _SKIPS:
                return _SKIPS[kind]
        raise UnsupportedError

    def _skip_record(self, schema: Any) -> _Skip:
        if schema["name"] in self._within:
            raise UnsupportedError
        self._within.append(schema["name"])
        skips = [self._skip(field["type"]) for field in schema["fields"]]
        self._within.pop()

        def skip(cursors: Cursors) -> None:
            for step in skips:
                step(cursors)

        return skip


def _found(schema: Any, names: Mapping[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _plain(writer: Any, data_type: pa.DataType) -> _Read:
    kind = kind_of(writer)
    logical = writer.get("logicalType") if isinstance(writer, dict) else None
    if kind in ("int", "long"):
        return _number(logical, data_type)
    if kind in ("bytes", "fixed") and logical == "decimal" and pa.types.is_decimal128(data_type):
        return _decimal(writer, data_type)
    if logical is not None:
        raise UnsupportedError
    if kind == "boolean" and data_type == pa.bool_():
        return _boolean
    if kind in _FLOATS and pa.types.is_floating(data_type):
        width, format = _FLOATS[kind]
        return lambda cursors: pa.array(cursors.words(width).view(format)).cast(data_type)
    if kind in ("bytes", "string") and data_type in (pa.binary(), pa.string()):
        # The cast to string checks that the bytes are UTF-8.
        return lambda cursors: cursors.texts(_lengths(cursors)).cast(data_type)
    if kind == "fixed" and data_type == pa.binary():
        return lambda cursors: cursors.texts(np.full(len(cursors), writer["size"]))
    if kind == "fixed" and writer["size"] and data_type == pa.binary(writer["size"]):
        return lambda cursors: _fixed(cursors, data_type)
    raise UnsupportedError


def _number(logical: str | None, data_type: pa.DataType) -> _Read:
    if logical not in _UNITS or (logical in _TIMES) != (data_type == _TIME):
        raise UnsupportedError
    convert = _UNITS[logical]
    if pa.types.is_floating(data_type):
        return lambda cursors: pa.array(convert(from_zigzag(cursors.numbers())).astype(np.float64)).cast(data_type)
    if data_type in _NARROW:
        # The cast to 32 bits checks that they hold the number.
        return lambda cursors: pa.array(convert(from_zigzag(cursors.numbers()))).cast(pa.int32()).view(data_type)
    if data_type in _INTEGERS or data_type == _TIME:
        return lambda cursors: pa.array(convert(from_zigzag(cursors.numbers()))).view(data_type)
    raise UnsupportedError


def _times(factor: int) -> _Convert:
    """Return what converts numbers to a smaller unit."""

    def convert(numbers: Integers) -> Integers:
        if len(numbers) and max(-int(numbers.min()), int(numbers.max())) > _LARGEST // factor:
            raise UnusualError
        return numbers * factor

    return convert


def _time(numbers: Integers) -> Integers:
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= _MICROSECONDS_OF_A_DAY):
        raise UnusualError
    return numbers


_TIMES = ("time-millis", "time-micros")
_milliseconds = _times(1_000)
_UNITS: Mapping[str | None, _Convert] = {
    None: lambda numbers: numbers,
    "volley-millis": _milliseconds,
    "volley-nanos": lambda numbers: numbers // 1_000,
    "volley-millis-volley": _times(1_000_000),
    "volley-micros-volley": _times(1_000),
    "time-millis": lambda numbers: _time(_milliseconds(numbers)),
    "time-micros": _time,
}


def _boolean(cursors: Cursors) -> pa.Array:
    values = cursors.bytes()
    if (values > 1).any():
        raise UnusualError
    return pa.array(values.astype(bool))


def _lengths(cursors: Cursors) -> Integers:
    lengths = from_zigzag(cursors.numbers())
    # What is much longer than all values would overflow a place.
    if len(lengths) and (lengths.min() < 0 or lengths.max() > cursors.ends[-1]):
        raise UnusualError
    return lengths


def _fixed(cursors: Cursors, data_type: pa.FixedSizeBinaryType) -> pa.Array:
    texts = cursors.texts(np.full(len(cursors), data_type.byte_width))
    return pa.Array.from_buffers(data_type, len(texts), [None, texts.buffers()[2]])


def _decimal(writer: Mapping[str, Any], data_type: pa.Decimal128Type) -> _Read:
    scale, size = writer.get("scale", 0), writer.get("size")
    if writer["precision"] > _DIGITS or not 0 <= scale <= writer["precision"]:
        raise UnsupportedError
    written, unscaled = pa.decimal128(writer["precision"], scale), pa.decimal128(_DIGITS, scale)
    # The cast checks that a number has no more digits, but for the widest type.
    longest = 15 if writer["precision"] == _DIGITS else 16

    def read(cursors: Cursors) -> pa.Array:
        lengths = _lengths(cursors) if size is None else np.full(len(cursors), size)
        numbers = cursors.integers(lengths, longest)
        numbers = pa.Array.from_buffers(unscaled, len(numbers), numbers.buffers()).cast(written)
        return rescaled(numbers, data_type)

    return read


def _enum(symbols: Sequence[str], reader: Any) -> _Read:
    texts = [symbol if symbol in reader["symbols"] else reader.get("default") for symbol in symbols]
    names = pa.array(texts, pa.string())
    missing = np.array([text is None for text in texts])

    def read(cursors: Cursors) -> pa.Array:
        numbers = from_zigzag(cursors.numbers())
        if ((numbers < 0) | (numbers >= len(texts))).any() or missing[numbers].any():
            raise UnusualError
        return names.take(pa.array(numbers))

    return read


def _of_branches(
    cursors: Cursors, reads: Sequence[_Read | None], nulls: Sequence[bool], data_type: pa.DataType
) -> pa.Array:
    numbers = _branch_numbers(cursors, len(reads))
    branches: list[tuple[Integers, pa.Array]] = []
    for number, read in enumerate(reads):
        rows = np.flatnonzero(numbers == number)
        if not len(rows) or nulls[number]:
            continue
        if read is None:
            raise UnusualError
        if len(rows) == len(cursors):
            return read(cursors)
        part = cursors.part(rows)
        branches.append((rows, read(part)))
        cursors.moved(rows, part)
    return placed(branches, len(cursors), data_type)


def _branch_numbers(cursors: Cursors, count: int) -> Integers:
    numbers = from_zigzag(cursors.numbers())
    if ((numbers < 0) | (numbers >= count)).any():
        raise UnusualError
    return numbers


def _skip_branches(cursors: Cursors, branches: Sequence[_Skip]) -> None:
    numbers = _branch_numbers(cursors, len(branches))
    for number, skip in enumerate(branches):
        rows = np.flatnonzero(numbers == number)
        if len(rows):
            part = cursors.part(rows)
            skip(part)
            cursors.moved(rows, part)


def _list(read: _Read, data_type: pa.ListType) -> _Read:
    def lists(cursors: Cursors) -> pa.Array:
        items = _repeated(cursors, [read])
        return pa.ListArray.from_arrays(items.offsets, items.values(0, data_type.value_type), type=data_type)

    return lists


def _map(read: _Read, data_type: pa.MapType) -> _Read:
    text = _plain("string", data_type.key_type)

    def maps(cursors: Cursors) -> pa.Array:
        items = _repeated(cursors, [text, read])
        keys = items.values(0, data_type.key_type)
        if items.has_twice(keys):
            raise UnusualError
        return pa.MapArray.from_arrays(items.offsets, keys, items.values(1, data_type.item_type), type=data_type)

    return maps


def _repeated(cursors: Cursors, reads: Sequence[_Read]) -> Repeated:
    """Read the items of arrays, or the entries of maps: in each turn the next one of all that have one."""
    items = Repeated(len(cursors))
    for rows in _turns(cursors):
        part = cursors.part(rows)
        items.add(rows, [read(part) for read in reads])
        cursors.moved(rows, part)
    return items


def _turns(cursors: Cursors, skips: bool = False) -> Iterator[Integers]:
    """Yield the rows that have another item; they must be moved over it before the next turn.

    Args:
        skips: Pass over blocks that tell their size, as fastavro does for a field that nobody reads.
    """
    rows = np.arange(len(cursors))
    while len(rows):
        cursors.count_turn()
        part = cursors.part(rows)
        counts = _counts(part, skips)
        cursors.moved(rows, part)
        rows, counts = rows[counts != 0], counts[counts != 0]
        for turn in range(int(counts.max(initial=0))):
            cursors.count_turn()
            yield rows[counts > turn]


def _counts(cursors: Cursors, skips: bool) -> Integers:
    """Read the number of items of a block, with its bytes behind it if it is negative.

    Args:
        skips: Pass over blocks that tell their size; their number stays negative.
    """
    counts = from_zigzag(cursors.numbers())
    if len(rows := np.flatnonzero(counts < 0)):
        part = cursors.part(rows)
        if skips:
            part.pass_over(_lengths(part))
        else:
            part.numbers()
        cursors.moved(rows, part)
    if (counts < -_MOST_ITEMS).any() or (counts > _MOST_ITEMS).any():
        raise UnusualError
    return counts if skips else np.abs(counts)


def _skip_repeated(skips: Sequence[_Skip]) -> _Skip:
    def skip(cursors: Cursors) -> None:
        for rows in _turns(cursors, skips=True):
            part = cursors.part(rows)
            for step in skips:
                step(part)
            cursors.moved(rows, part)

    return skip


def _skip_number(cursors: Cursors) -> None:
    cursors.numbers()


def _skip_text(cursors: Cursors) -> None:
    cursors.pass_over(_lengths(cursors))


_SKIPS: Mapping[str, _Skip] = {
    "null": lambda cursors: None,
    **dict.fromkeys(("int", "long", "enum"), _skip_number),
    **dict.fromkeys(("bytes", "string"), _skip_text),
    **{kind: partial(Cursors.skip, width=width) for kind, width in (("boolean", 1), ("float", 4), ("double", 8))},
}

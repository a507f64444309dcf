"""Decodes the entries of manifests by functions, composed by the Avro schema that each file brings along.

A function reads the entry's fields one after the other, without a reader object or a record for each: a third of the
time of pyiceberg's reader, which can't leave out the statistics either; fastavro takes four times as long.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.utils.decimal import bytes_to_decimal

__all__ = ["UnknownSchemaError", "decode_function"]

Read = Callable[[BinaryDecoder, int], Any]
"""Reads a value, or skips it: its decoder, and the size of the block, which no length may exceed."""


def too_long() -> EOFError:
    """Return the error for a length, or a number of items, that the block can't have."""
    return EOFError("it has a value that is longer than its block")


def _size(decoder: BinaryDecoder, end: int) -> int:
    """Read a length; pyiceberg's compiled decoder would read on behind the end of its memory."""
    size = decoder.read_int()
    if not 0 <= size <= end:
        raise too_long()
    return size


def _unusual(count: int, decoder: BinaryDecoder, end: int) -> int:
    """Return the number of items of a block of an array or a map from one that is negative, as a length follows."""
    if count < 0:
        decoder.read_int()
    if abs(count) > end:
        raise too_long()
    return abs(count)


def _read_bytes(decoder: BinaryDecoder, end: int) -> bytes:
    return decoder.read(_size(decoder, end))


def _read_text(decoder: BinaryDecoder, end: int) -> str:
    # Like `_size`: each entry has two texts, and a call costs as much as reading one.
    size = decoder.read_int()
    if not 0 <= size <= end:
        raise too_long()
    return decoder.read(size).decode()


def read_fixed(size: int) -> Read:
    """Return what reads so many bytes."""
    return lambda decoder, end: decoder.read(size)


def read_numbers(width: int) -> Callable[[BinaryDecoder, int], tuple[int, ...]]:
    """Return what reads an array whose items are so many numbers."""

    def read(decoder: BinaryDecoder, end: int) -> tuple[int, ...]:
        numbers: tuple[int, ...] = ()
        while count := decoder.read_int():
            if not 0 < count <= end:
                count = _unusual(count, decoder, end)
            part = decoder.read_ints(width * count)
            numbers = (*numbers, *part) if numbers else tuple(part)
        return numbers

    return read


def decimal(read: Read, scale: int) -> Read:
    """Return what makes a decimal of the bytes that are read."""
    return lambda decoder, end: bytes_to_decimal(read(decoder, end), scale)


class Capitals(dict[str, str]):
    """Texts in capital letters: one for all entries."""

    def __missing__(self, text: str) -> str:
        self[text] = text.upper()
        return self[text]


def bounds_of(statistics: Collection[int] | None) -> Read:
    """Return what reads a map from fields to bytes, an array of records: those of the wanted fields; None = all."""

    def bounds(decoder: BinaryDecoder, end: int) -> Mapping[int, bytes]:
        read_int, read, skip = decoder.read_int, decoder.read, decoder.skip
        values = {}
        while count := decoder.read_int():
            if not 0 < count <= end:
                count = _unusual(count, decoder, end)
            for _ in range(count):
                key, size = read_int(), read_int()
                if not 0 <= size <= end:
                    raise too_long()
                if statistics is None or key in statistics:
                    values[key] = read(size)
                else:
                    skip(size)
        return values

    return bounds


def counts_of(statistics: Collection[int] | None) -> Read:
    """Return what reads a map from fields to numbers, an array of records, as `bounds_of` does."""
    read = read_numbers(2)

    def counts(decoder: BinaryDecoder, end: int) -> Mapping[int, int]:
        numbers = read(decoder, end)
        values = dict(zip(numbers[::2], numbers[1::2], strict=True))
        return values if statistics is None else {key: values[key] for key in statistics if key in values}

    return counts


def skip_bytes(size: int) -> Read:
    """Return what skips so many bytes."""
    return lambda decoder, end: decoder.skip(size)


def skip_all(skips: list[Read]) -> Read:
    """Return what skips one value after the other, as those of a record."""

    def skip(decoder: BinaryDecoder, end: int) -> None:
        for part in skips:
            part(decoder, end)

    return skip


def skip_branch(skips: list[Read]) -> Read:
    """Return what skips a value of a union."""
    if len(skips) == 2 and skips[0] is SKIPS["null"]:
        second = skips[1]
        return lambda decoder, end: decoder.read_int() and second(decoder, end)

    def skip(decoder: BinaryDecoder, end: int) -> None:
        branch = decoder.read_int()
        if 0 <= branch < len(skips):
            skips[branch](decoder, end)

    return skip


def skip_items(skip: Read) -> Read:
    """Return what skips an array or a map."""

    def skip_items(decoder: BinaryDecoder, end: int) -> None:
        while count := decoder.read_int():
            if not 0 < count <= end:
                count = _unusual(count, decoder, end)
            for _ in range(count):
                skip(decoder, end)

    return skip_items


def skip_bounds(decoder: BinaryDecoder, end: int) -> None:
    """Skip a map from fields to bytes, an array of records."""
    read_int, skip = decoder.read_int, decoder.skip
    while count := decoder.read_int():
        if not 0 < count <= end:
            count = _unusual(count, decoder, end)
        for _ in range(count):
            read_int()
            size = read_int()
            if not 0 <= size <= end:
                raise too_long()
            skip(size)


def _read_int(decoder: BinaryDecoder, end: int) -> int:
    return decoder.read_int()


_double = struct.Struct("<d").unpack
READS: dict[str, Read] = {
    "int": _read_int,
    "long": _read_int,
    "string": _read_text,
    "bytes": _read_bytes,
    "boolean": lambda decoder, end: decoder.read_boolean(),
    "float": lambda decoder, end: decoder.read_float(),
    # pyiceberg's compiled decoder reads a double as a float of 4 bytes.
    "double": lambda decoder, end: _double(decoder.read(8))[0],
    "null": lambda decoder, end: None,
}
# It checks the end before it reads a number, but not before it skips one.
SKIPS: dict[str, Read] = {
    **dict.fromkeys(("int", "long", "enum"), _read_int),
    **dict.fromkeys(("string", "bytes"), lambda decoder, end: decoder.skip(_size(decoder, end))),
    "null": READS["null"],
    "boolean": skip_bytes(1),
    "float": skip_bytes(4),
    "double": skip_bytes(8),
}


Decode = Callable[[BinaryDecoder, int, int, Any, int | None, int, int], list[Any]]
"""Decodes a block: its decoder, its size, its number of entries, their class, and what they inherit (snapshot id,
sequence number, partition spec)."""

_FIELDS = {
    0: "status",
    1: "snapshot_id",
    3: "sequence_number",
    4: "file_sequence_number",
    134: "content",
    100: "path",
    101: "format",
    102: "partition",
    103: "rows",
    104: "size",
    125: "lower",
    128: "upper",
    109: "values",
    110: "nulls",
    137: "nans",
    135: "equality_ids",
    132: "split_offsets",
    142: "first_row_id",
    143: "referenced_file",
    144: "blob_offset",
    145: "blob_size",
}
"""The attributes of entries by the field ids of Iceberg's specification."""

_DATA_FILE = 2
_REQUIRED = {"status", "path", "format", "partition", "rows", "size"}
_BOUNDS, _COUNTS = {"lower", "upper"}, {"values", "nulls", "nans"}
_LISTS = {"equality_ids", "split_offsets"}
_NOTHING: Mapping[int, Any] = {}
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_BOUNDS | _COUNTS, _NOTHING),
    **dict.fromkeys(_LISTS, ()),
    "content": 0,
}
_NUMBERS = ("int", "long")
# Deeper than any manifest: a type that contains itself has no end.
_DEPTH = 20


class UnknownSchemaError(Exception):
    """An Avro schema is not one of a manifest, or has a form that is not known here."""


@lru_cache(maxsize=256)
def decode_function(schema: str, names: tuple[str, ...], statistics: frozenset[int] | None) -> Decode:
    """Return the function that decodes manifests with a schema.

    Args:
        names: The attributes of an entry, in their order; `spec_id` is inherited.
        statistics: The fields whose bounds and counts are decoded; None = all.

    Raises:
        UnknownSchemaError: If the schema is not supported; pyiceberg's reader may read it.
    """
    try:
        fields = list(_Readers(statistics).fields(json.loads(schema)))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnknownSchemaError(str(error)) from error
    if missing := _REQUIRED - {name for name, _ in fields}:
        raise UnknownSchemaError(f"without {', '.join(sorted(missing))}")
    return _decode(fields, names)


def _decode(fields: list[tuple[str | None, Read]], names: tuple[str, ...]) -> Decode:
    reads = [read for _, read in fields]
    read_names = [name for name, _ in fields]
    absent = [name for name in names if name not in read_names]
    defaults = [*map(_DEFAULTS.get, absent)]
    places = {name: place for place, name in enumerate([*read_names, *absent]) if name is not None}
    pick = itemgetter(*(places[name] for name in names))
    status_at, snapshot_at, spec_at = places["status"], places["snapshot_id"], places["spec_id"]
    sequence_at, file_sequence_at = places["sequence_number"], places["file_sequence_number"]
    format_at, formats, new = places["format"], Capitals(), tuple.__new__

    def decode(
        decoder: BinaryDecoder, end: int, count: int, entry: Any, snapshot: int | None, sequence: int, spec_id: int
    ) -> list[Any]:
        if count > end:
            raise too_long()
        entries = []
        for _ in range(count):
            values = [read(decoder, end) for read in reads]
            values += defaults
            values[spec_at] = spec_id
            values[format_at] = formats[values[format_at]]
            if values[snapshot_at] is None:
                values[snapshot_at] = snapshot
            # A version 1 manifest has no sequence numbers, and those of removed or kept files are never inherited.
            if values[sequence_at] is None:
                values[sequence_at] = sequence if values[status_at] == 1 else 0
            if values[file_sequence_at] is None:
                values[file_sequence_at] = sequence if values[status_at] == 1 else 0
            entries.append(new(entry, pick(values)))
        return entries

    return decode


class _Readers:
    """Composes the functions that read the fields of an entry.

    Args:
        statistics: The fields whose bounds and counts are decoded; None = all.
    """

    def __init__(self, statistics: frozenset[int] | None) -> None:
        self._statistics = statistics
        self._types: dict[str, Any] = {}

    def fields(self, record: Any) -> Iterator[tuple[str | None, Read]]:
        """Yield for each field of an entry and its data file the attribute, None = none, and what reads or skips it."""
        if record["type"] != "record":
            raise UnknownSchemaError("not a record")
        self._define(record)
        for field in record["fields"]:
            name = _FIELDS.get(field["field-id"])
            if field["field-id"] == _DATA_FILE:
                yield from self.fields(field["type"])
            elif name is None or (self._statistics == frozenset() and name in _BOUNDS | _COUNTS):
                yield None, self._skip(field["type"])
            else:
                yield name, self._optional(field["type"], partial(self._attribute, name), _DEFAULTS.get(name))

    def _attribute(self, name: str, data_type: Any) -> Read:
        if name == "partition":
            return self._partition(data_type)
        if name in _BOUNDS or name in _COUNTS:
            return self._map(name, data_type)
        if name in _LISTS:
            if self._items(data_type) not in _NUMBERS:
                raise UnknownSchemaError(f"{name} is not a list of numbers")
            return read_numbers(1)
        return self._value(data_type)

    def _partition(self, record: Any) -> Read:
        if record["type"] != "record":
            raise UnknownSchemaError("the partition is not a record")
        self._define(record)
        reads = [self._optional(field["type"], self._value, None) for field in record["fields"]]
        return lambda decoder, end: tuple([read(decoder, end) for read in reads])

    def _optional(self, data_type: Any, value: Callable[[Any], Read], default: Any) -> Read:
        """Return what reads a value that may be null."""
        if not isinstance(data_type, list):
            return value(self._resolved(data_type))
        if len(data_type) != 2 or "null" not in data_type:
            raise UnknownSchemaError("a union of several types")
        null = data_type.index("null")
        read = value(self._resolved(data_type[1 - null]))
        if read is READS["long"]:
            return lambda decoder, end: default if decoder.read_int() == null else decoder.read_int()
        return lambda decoder, end: default if decoder.read_int() == null else read(decoder, end)

    def _value(self, data_type: Any) -> Read:
        """Return what reads a basic value."""
        data_type = self._resolved(data_type)
        attributes = data_type if isinstance(data_type, dict) else {"type": data_type}
        basic, logical = attributes["type"], attributes.get("logicalType")
        if basic == "string" and logical is not None:
            raise UnknownSchemaError(f"a string that is a {logical}")
        read = read_fixed(int(attributes["size"])) if basic == "fixed" else READS[basic]
        return decimal(read, int(attributes.get("scale", 0))) if logical == "decimal" else read

    def _map(self, name: str, data_type: Any) -> Read:
        """Return what reads a map with numbers as keys: an array of records with a key and a value."""
        key, value = (self._resolved(field["type"]) for field in self._items(data_type)["fields"])
        if key not in _NUMBERS:
            raise UnknownSchemaError(f"a map from {key}")
        if value == "bytes" and name in _BOUNDS:
            return bounds_of(self._statistics)
        if value in _NUMBERS and name in _COUNTS:
            return counts_of(self._statistics)
        raise UnknownSchemaError(f"a map to {value}")

    def _items(self, data_type: Any) -> Any:
        array = self._resolved(data_type)
        if array["type"] != "array":
            raise UnknownSchemaError("not an array")
        return self._resolved(array["items"])

    def _skip(self, data_type: Any, depth: int = 0) -> Read:
        """Return what skips a value of any type of Avro."""
        if depth > _DEPTH:
            raise UnknownSchemaError("a type inside itself")
        data_type = self._resolved(data_type)
        if isinstance(data_type, list):
            return skip_branch([self._skip(branch, depth + 1) for branch in data_type])
        basic = data_type["type"] if isinstance(data_type, dict) else data_type
        if basic in SKIPS:
            return SKIPS[basic]
        if basic == "fixed":
            return skip_bytes(int(data_type["size"]))
        if basic in ("record", "error"):
            return skip_all([self._skip(field["type"], depth + 1) for field in data_type["fields"]])
        if basic == "map":
            return skip_items(skip_all([SKIPS["string"], self._skip(data_type["values"], depth + 1)]))
        if basic == "array":
            return self._skip_array(data_type, depth)
        raise UnknownSchemaError(f"type {basic}")

    def _skip_array(self, array: Any, depth: int) -> Read:
        items = self._resolved(array["items"])
        fields = items["fields"] if isinstance(items, dict) and items.get("type") == "record" else []
        types = [self._resolved(field["type"]) for field in fields] or [items]
        if all(isinstance(data_type, str) and data_type in _NUMBERS for data_type in types):
            # Reading all numbers at once takes less time than skipping each.
            return read_numbers(len(types))
        if len(types) == 2 and types[0] in _NUMBERS and types[1] == "bytes":
            return skip_bounds
        return skip_items(self._skip(items, depth + 1))

    def _resolved(self, data_type: Any) -> Any:
        """Return the definition of a named type, and a basic type as its name; remember the names of definitions."""
        if isinstance(data_type, str):
            return self._types.get(data_type, data_type)
        if isinstance(data_type, dict):
            if isinstance(data_type["type"], dict | list):
                return self._resolved(data_type["type"])
            self._define(data_type)
            if set(data_type) == {"type"}:
                return self._resolved(data_type["type"])
        return data_type

    def _define(self, data_type: dict[str, Any]) -> None:
        if "name" in data_type:
            namespace = data_type.get("namespace")
            self._types[data_type["name"]] = data_type
            if namespace:
                self._types[f"{namespace}.{data_type['name']}"] = data_type

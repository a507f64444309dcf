"""Bounds what an Avro record takes in memory before it is decoded: by its schema and length, or else by a walk.

fastavro makes as many items as a count says, and follows a type into itself as deep as the bytes go. Most records can't
take much, whatever their bytes are; the lengths and counts of all others are checked one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from volley.errors import SourceError
from volley.formats.input_file import LARGEST_VALUE, megabytes

__all__ = ["DEEPEST", "LARGEST_VALUE", "MOST_PARTS", "Bounds"]

DEEPEST = 100
"""The limit of the levels of a type, and of a value of a type that contains itself."""

MOST_PARTS = 50_000
"""The limit of the fields of a schema, those of a type counted wherever it stands."""

# What an array takes for a value, as for Parquet, without the bytes of a text.
_VALUE = 16
_WIDTHS = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_LONGEST_NUMBER = 10


class _Size(NamedTuple):
    """Bounds of the values of a type.

    Args:
        width: The fewest bytes of an encoded value.
        fixed: The most that a value takes in memory, without the bytes of texts and what is in arrays and maps.
        ratio: The most that a value takes in memory for each of its bytes; infinity = no bound.
        parts: The number of parts of the type.
    """

    width: int
    fixed: int
    ratio: float
    parts: int = 1
    depth: int = 1


class Bounds:
    """What the records of a schema can take in memory.

    Args:
        schema: The schema that they were written with, as fastavro parsed it.
        added: What reading adds to the records of some names: the defaults of new fields, in bytes.

    Raises:
        ValueError: If a type has too many levels or parts.
    """

    def __init__(self, schema: Any, added: Mapping[str, int] = MappingProxyType({})) -> None:
        self.schema = schema
        self.added = added
        self.named: dict[str, Any] = {}
        self._sizes: dict[str | int, _Size] = {}
        self.growth = 1.0
        root = self.of(schema)
        self.width, self.fixed = root.width, root.fixed

    def most(self, length: int) -> float:
        """Return the most that a record of this length takes in memory; infinity = no bound."""
        return self.fixed + (self.growth * length if length else 0)

    def size(self, data: bytes, start: int) -> float:
        """Return the most that the record takes in memory that starts here, and ends with the data.

        Raises:
            SourceError: If one of its values takes more than `LARGEST_VALUE`; names the field.
            ValueError: If a length or count in it is damaged.
            EOFError: If it ends too early.
        """
        length = len(data) - start
        most = self.fixed + (self.growth * length if length else 0)
        return most if most <= LARGEST_VALUE else self.walk(data, start)[0]

    def walk(self, data: bytes, start: int) -> tuple[float, int]:
        """Return what a record takes in memory, and where it ends; raises like `size`."""
        walk = _Walk(data, start, self)
        return walk.all(self.schema), walk.at

    def of(self, schema: Any) -> _Size:
        """Return the bounds of a type."""
        key = schema if isinstance(schema, str) else id(schema)
        if key not in self._sizes:
            size = self._sizes[key] = self._of(schema)
            if size.depth > DEEPEST:
                raise ValueError(f"it has more than {DEEPEST} levels")
            if size.parts > MOST_PARTS:
                raise ValueError(f"it has more than {MOST_PARTS:,} fields, with those inside of others")
        return self._sizes[key]

    def _of(self, schema: Any) -> _Size:
        if isinstance(schema, list):
            return _union([*map(self.of, schema)])
        type_name = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(type_name, dict | list):
            return self.of(type_name)
        match type_name:
            case "array":
                return self._array(self.of(schema["items"]))
            case "map":
                return self._map(self.of(schema["values"]))
            case "record" | "error" | "enum" | "fixed":
                return self._named(type_name, schema)
        if type_name in _WIDTHS:
            width = _WIDTHS[type_name]
            return _Size(width, _VALUE, _VALUE / max(1, width))
        if type_name not in self._sizes:
            raise ValueError(f"unknown type {type_name!r}")
        return self._sizes[type_name]

    def _array(self, item: _Size) -> _Size:
        return self._grown(max(_VALUE, item.ratio) if item.width else inf, item)

    def _map(self, item: _Size) -> _Size:
        # A key has a byte or more.
        return self._grown(max(_VALUE, item.ratio) if item.width else _VALUE + max(item.fixed, item.ratio), item)

    def _grown(self, ratio: float, item: _Size) -> _Size:
        self.growth = max(self.growth, ratio)
        return _Size(1, _VALUE, ratio, item.parts + 1, item.depth + 1)

    def _named(self, type_name: str, schema: Mapping[str, Any]) -> _Size:
        name = schema["name"]
        self.named[name] = schema
        # Inside of itself: only the bytes of a value bound it.
        self._sizes[name] = _Size(0, _VALUE, inf)
        self._sizes[name] = size = {"enum": _enum, "fixed": _fixed}.get(type_name, self._record)(schema)
        return size

    def _record(self, schema: Mapping[str, Any]) -> _Size:
        fields = [*map(self.of, (field["type"] for field in schema["fields"]))]
        width, parts = sum(field.width for field in fields), sum(field.parts for field in fields)
        own = _VALUE + self.added.get(schema["name"], 0)
        nothing = own + sum(field.fixed for field in fields if not field.width)
        ratio = max((field.ratio for field in fields), default=0)
        if ratio == inf:
            self.growth = inf
        depth = max((field.depth for field in fields), default=0)
        fixed = own + sum(field.fixed for field in fields)
        return _Size(width, fixed, ratio + nothing / max(1, width), parts + 1, depth + 1)


def _union(branches: Sequence[_Size]) -> _Size:
    """Return the bounds of a union: a byte or more tells the branch; for a null there is room as for a value."""
    fixed = max(branch.fixed for branch in branches)
    return _Size(
        1 + min(branch.width for branch in branches),
        fixed,
        max(branch.ratio if branch.width else max(fixed, branch.ratio) for branch in branches),
        sum(branch.parts for branch in branches),
        max(branch.depth for branch in branches),
    )


def _enum(schema: Mapping[str, Any]) -> _Size:
    size = _VALUE + max((len(symbol) for symbol in schema["symbols"]), default=0)
    return _Size(1, size, size)


def _fixed(schema: Mapping[str, Any]) -> _Size:
    width = schema["size"]
    if not isinstance(width, int) or not 0 <= width <= LARGEST_VALUE:
        raise ValueError(f"the type {schema['name']!r} has {width} bytes; {megabytes(LARGEST_VALUE)} are the limit")
    return _Size(width, _VALUE + width, (_VALUE + width) / max(1, width))


class _Walk:
    """Passes over the values of a record, by their lengths and counts.

    Args:
        data: The bytes that it is in.
    """

    def __init__(self, data: bytes, start: int, bounds: Bounds) -> None:
        self._data = data
        self._bounds = bounds
        self._spent = 0
        self._field = ""
        self.at = start

    def all(self, schema: Any) -> float:
        """Pass over the value, and return what it takes in memory."""
        if isinstance(schema, list):
            # One of several records, or null.
            self._union(schema, 1)
            return self._spent
        return self._record(schema)

    def _record(self, schema: Mapping[str, Any]) -> float:
        total = _VALUE + self._bounds.added.get(schema["name"], 0)
        for field in schema["fields"]:
            self._field, self._spent = field["name"], 0
            self._value(field["type"], 1)
            total += self._spent
        return total

    def _value(self, schema: Any, depth: int) -> None:
        if depth > DEEPEST:
            raise self._refused(f"has more than {DEEPEST} levels")
        if isinstance(schema, list):
            self._union(schema, depth)
            return
        schema = self._bounds.named.get(schema, schema) if isinstance(schema, str) else schema
        type_name = schema["type"] if isinstance(schema, dict) else schema
        self._spend(_VALUE)
        match type_name:
            case "int" | "long":
                self._number()
            case "bytes" | "string":
                length = self._number()
                self._pass(length)
                self._spend(length)
            case "record" | "error":
                self._spend(self._bounds.added.get(schema["name"], 0))
                for field in schema["fields"]:
                    self._value(field["type"], depth + 1)
            case "array":
                self._items(schema["items"], (), depth)
            case "map":
                self._items(schema["values"], ("string",), depth)
            case "enum":
                self._number()
                self._spend(self._bounds.of(schema).fixed - _VALUE)
            case _:
                size = self._bounds.of(schema)
                self._pass(size.width)
                self._spend(size.fixed - _VALUE)

    def _union(self, branches: Sequence[Any], depth: int) -> None:
        number = self._number()
        if not 0 <= number < len(branches):
            raise ValueError(f"field {self._field!r} has the branch {number} of {len(branches)}")
        branch = self._bounds.of(branches[number])
        if branch.width or branch.ratio == inf:
            self._value(branches[number], depth)
        else:
            self._spend(self._bounds.of(branches).fixed)

    def _items(self, schema: Any, key: tuple[str, ...], depth: int) -> None:
        item = self._bounds.of(schema)
        width = item.width + len(key)
        while count := self._number():
            if count < 0:
                count = -count
                self._number()
            rest = len(self._data) - self.at
            if width and count > rest // width:
                raise EOFError(f"field {self._field!r} has {count:,} items in {rest:,} bytes")
            self._spend(count * (_VALUE if width else item.fixed), keep=not width)
            for _ in range(count if width or item.ratio == inf else 0):
                for part in (*key, schema):
                    self._value(part, depth + 1)

    def _spend(self, size: int, keep: bool = True) -> None:
        """Count what a value takes; without `keep` only see whether there is room for it."""
        if self._spent + size > LARGEST_VALUE:
            raise self._refused(f"takes more than {megabytes(LARGEST_VALUE)} in memory")
        self._spent += size if keep else 0

    def _refused(self, reason: str) -> SourceError:
        return SourceError(f"field {self._field!r} {reason}", hint="that is the limit of a value; mend what writes it")

    def _pass(self, length: int) -> None:
        rest = len(self._data) - self.at
        if not 0 <= length <= rest:
            raise EOFError(f"field {self._field!r} has {length:,} bytes, of which {rest:,} are there")
        self.at += length

    def _number(self) -> int:
        """Read a number: seven bits a byte, the lowest ones first; its sign is the lowest bit."""
        value = shift = 0
        for byte in self._data[self.at : self.at + _LONGEST_NUMBER]:
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise EOFError(f"a number of field {self._field!r} is cut, or has more than 64 bits")

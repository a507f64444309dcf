"""Generates functions that decode the entries of manifests from the Avro schema that each file brings along.

A function reads the entry's fields one after the other, without a reader object or a record for each: a fifth of the
time of pyiceberg's reader, which can't leave out the statistics either.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.utils.decimal import bytes_to_decimal

__all__ = ["Decode", "UnknownSchemaError", "decode_function"]

Decode = Callable[[BinaryDecoder, int, int, Any, int | None, int, int, Collection[int] | None], list[Any]]
"""Decodes a block: its decoder, its size, its number of entries, their class, what they inherit (snapshot id, sequence
number, partition spec), and the fields whose statistics are wanted (None = all)."""

_FIELDS = {
    **{0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number", 134: "content", 100: "path"},
    **{101: "format", 102: "partition", 103: "rows", 104: "size", 125: "lower", 128: "upper", 109: "values"},
    **{110: "nulls", 137: "nans", 135: "equality_ids", 132: "split_offsets", 143: "referenced_file"},
    **{144: "blob_offset", 145: "blob_size"},
}
"""The attributes of entries by the field ids of Iceberg's specification."""

_DATA_FILE = 2
_REQUIRED = {"status", "path", "format", "partition", "rows", "size"}
_STATISTICS = {"lower": "bounds", "upper": "bounds", "values": "counts", "nulls": "counts", "nans": "counts"}
_LISTS = {"equality_ids", "split_offsets"}
_NUMBERS = ("int", "long")
# Deeper than any manifest: a type that contains itself has no end.
_DEPTH = 20


class UnknownSchemaError(Exception):
    """An Avro schema is not one of a manifest, or has a form that is not known here."""


@lru_cache(maxsize=256)
def decode_function(schema: str, names: tuple[str, ...], statistics: bool) -> Decode:
    """Return the function that decodes manifests with a schema.

    Args:
        schema: The Avro schema in the file's header.
        names: The attributes of an entry, in their order; `spec_id` is inherited.
        statistics: True to decode the bounds and counts of columns, False to skip them.

    Raises:
        UnknownSchemaError: If the schema is not supported; pyiceberg's reader may read it.
    """
    try:
        source = _Source(statistics).function(json.loads(schema), names)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnknownSchemaError(str(error)) from error
    scope: dict[str, Any] = {
        **{"counts": _counts, "formats": _Formats(), "new": tuple.__new__, "short": _short},
        **{"decimal": bytes_to_decimal, "double": struct.Struct("<d").unpack, "nothing": {}},
    }
    # No text of the file is in the source, only numbers.
    exec(source, scope)
    function: Decode = scope["decode"]
    return function


class _Formats(dict[str, str]):
    """File formats in capital letters: one text for all entries."""

    def __missing__(self, name: str) -> str:
        self[name] = name.upper()
        return self[name]


def _short() -> None:
    raise EOFError("it has a value that is longer than its block")


def _counts(read: Sequence[int], wanted: Collection[int] | None) -> Mapping[int, int]:
    counts = dict(zip(read[::2], read[1::2], strict=True))
    return counts if wanted is None else {key: counts[key] for key in wanted if key in counts}


class _Source:
    """Writes the source of a function, line by line.

    Args:
        statistics: True to decode the bounds and counts of columns.
    """

    def __init__(self, statistics: bool) -> None:
        self._statistics = statistics
        self._lines: list[str] = []
        self._indent = 0
        self._types: dict[str, Any] = {}
        self._variables = 0

    def function(self, schema: Any, names: tuple[str, ...]) -> str:
        self._line("def decode(decoder, end, count, entry, snapshot, sequence, spec_id, wanted):")
        self._indent += 1
        for method in _METHODS:
            self._line(f"{method} = decoder.{method}")
        for name, default in {name: _default(name) for name in names if name != "spec_id"}.items():
            self._line(f"{name} = {default}")
        self._line("entries = []")
        self._line("if count > end: short()")
        self._line("for _ in range(count):")
        self._indent += 1
        missing = _REQUIRED - self._entry(schema, set())
        if missing:
            raise UnknownSchemaError(f"without {', '.join(sorted(missing))}")
        # A version 1 manifest has no sequence numbers, and those of removed or kept files are never inherited.
        self._line("if snapshot_id is None: snapshot_id = snapshot")
        self._line("if sequence_number is None: sequence_number = sequence if status == 1 else 0")
        self._line("if file_sequence_number is None: file_sequence_number = sequence if status == 1 else 0")
        self._line(f"entries.append(new(entry, ({', '.join(names)})))")
        self._indent -= 1
        self._line("return entries")
        return "\n".join(self._lines)

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _entry(self, record: Any, read: set[str]) -> set[str]:
        """Write the reading of an entry, or of the data file in it; return the attributes that it sets."""
        if record["type"] != "record":
            raise UnknownSchemaError("not a record")
        self._define(record)
        for field in record["fields"]:
            data_type, field_id = field["type"], field["field-id"]
            name = _FIELDS.get(field_id)
            if field_id == _DATA_FILE:
                self._entry(data_type, read)
            elif name is None or (name in _STATISTICS and not self._statistics):
                self._skip(data_type)
            else:
                self._read_field(name, data_type)
                read.add(name)
        return read

    def _read_field(self, name: str, data_type: Any) -> None:
        """Write the reading of an attribute."""
        with self._unless_null(name, data_type, _default(name)) as present:
            if name == "partition":
                self._partition(present)
            elif name in _STATISTICS:
                self._map(name, present)
            elif name in _LISTS:
                self._numbers(name, present)
            else:
                self._value(name, present)
                if name == "format":
                    self._line("format = formats[format]")

    def _partition(self, record: Any) -> None:
        if record["type"] != "record":
            raise UnknownSchemaError("the partition is not a record")
        self._define(record)
        values = []
        for field in record["fields"]:
            values.append(self._variable())
            with self._unless_null(values[-1], field["type"], "None") as present:
                self._value(values[-1], present)
        self._line(f"partition = ({''.join(f'{value}, ' for value in values)})")

    @contextmanager
    def _unless_null(self, target: str, data_type: Any, default: str) -> Iterator[Any]:
        """Write the branches of an optional value; yield its type."""
        if not isinstance(data_type, list):
            yield self._resolved(data_type)
            return
        if len(data_type) != 2 or "null" not in data_type:
            raise UnknownSchemaError("a union of several types")
        null = data_type.index("null")
        self._line(f"if read_int() == {null}: {target} = {default}")
        with self._block("else:"):
            yield self._resolved(data_type[1 - null])

    def _value(self, target: str, data_type: Any) -> None:
        """Write the reading of a basic value."""
        data_type = self._resolved(data_type)
        attributes = data_type if isinstance(data_type, dict) else {"type": data_type}
        basic, logical = attributes["type"], attributes.get("logicalType")
        if basic in ("string", "bytes"):
            self._size()
            read = "read(length).decode()" if basic == "string" else "read(length)"
        else:
            read = f"read({int(attributes['size'])})" if basic == "fixed" else _READS[basic]
        if basic == "string" and logical is not None:
            raise UnknownSchemaError(f"a string that is a {logical}")
        if logical == "decimal":
            read = f"decimal({read}, {int(attributes.get('scale', 0))})"
        self._line(f"{target} = {read}")

    def _size(self) -> None:
        """Write the reading of a length; pyiceberg's compiled decoder would read on behind the end of its memory."""
        self._line("length = read_int()")
        self._line("if not 0 <= length <= end: short()")

    def _map(self, name: str, data_type: Any) -> None:
        """Write the reading of a map with numbers as keys: an array of records with a key and a value."""
        key, value = (self._resolved(field["type"]) for field in self._items(data_type)["fields"])
        if key not in _NUMBERS:
            raise UnknownSchemaError(f"a map from {key}")
        if value == "bytes" and _STATISTICS[name] == "bounds":
            self._line(f"{name} = {{}}")
            with self._blocks(), self._block("for _ in range(n):"):
                self._line("key = read_int()")
                self._size()
                self._line(f"if wanted is None or key in wanted: {name}[key] = read(length)")
                self._line("else: skip(length)")
        elif value in _NUMBERS and _STATISTICS[name] == "counts":
            self._line(f"{name} = ()")
            with self._blocks():
                self._line(f"{name} = (*{name}, *read_ints(2 * n)) if {name} else read_ints(2 * n)")
            self._line(f"{name} = counts({name}, wanted)")
        else:
            raise UnknownSchemaError(f"a map to {value}")

    def _numbers(self, name: str, data_type: Any) -> None:
        if self._items(data_type) not in _NUMBERS:
            raise UnknownSchemaError(f"{name} is not a list of numbers")
        self._line(f"{name} = ()")
        with self._blocks():
            self._line(f"{name} = (*{name}, *read_ints(n))")

    def _items(self, data_type: Any) -> Any:
        array = self._resolved(data_type)
        if array["type"] != "array":
            raise UnknownSchemaError("not an array")
        return self._resolved(array["items"])

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(head)
        self._indent += 1
        yield
        self._indent -= 1

    @contextmanager
    def _blocks(self, n: str = "n") -> Iterator[None]:
        """Write a loop over an array's or a map's blocks of `n` items; a negative number precedes a length."""
        self._line(f"{n} = read_int()")
        with self._block(f"while {n}:"):
            self._line(f"if {n} < 0: {n} = -{n}; read_int()")
            self._line(f"if {n} > end: short()")
            yield
            self._line(f"{n} = read_int()")

    def _skip(self, data_type: Any, depth: int = 0) -> None:
        """Write the skipping of a value of any type of Avro."""
        if depth > _DEPTH:
            raise UnknownSchemaError("a type inside itself")
        data_type = self._resolved(data_type)
        if isinstance(data_type, list):
            self._skip_union(data_type, depth)
            return
        basic = data_type["type"] if isinstance(data_type, dict) else data_type
        if basic in ("string", "bytes"):
            self._size()
            self._line("skip(length)")
        elif basic in _SKIPS:
            self._line(_SKIPS[basic])
        elif basic == "fixed":
            self._line(f"skip({int(data_type['size'])})")
        elif basic in ("record", "error"):
            for field in data_type["fields"]:
                self._skip(field["type"], depth + 1)
        elif basic in ("array", "map"):
            self._skip_items(data_type, depth)
        else:
            raise UnknownSchemaError(f"type {basic}")

    def _skip_union(self, branches: list[Any], depth: int) -> None:
        branch = self._variable()
        self._line(f"{branch} = read_int()")
        for number, data_type in enumerate(branches):
            if data_type != "null":
                with self._block(f"if {branch} == {number}:"):
                    self._skip(data_type, depth + 1)

    def _skip_items(self, data_type: Any, depth: int) -> None:
        is_map = data_type["type"] == "map"
        items = self._resolved(data_type["values" if is_map else "items"])
        fields = items["fields"] if isinstance(items, dict) and items.get("type") == "record" else []
        types = [self._resolved(field["type"]) for field in fields] or [items]
        n = self._variable()
        with self._blocks(n):
            if not is_map and all(isinstance(each, str) and each in _NUMBERS for each in types):
                # Reading all numbers at once takes less time than skipping each.
                self._line(f"read_ints({len(types)} * {n})")
                return
            with self._block(f"for _ in range({n}):"):
                if is_map:
                    self._skip("string")
                self._skip(items, depth + 1)

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


def _default(name: str) -> str:
    """Return an attribute's value if the manifest has none."""
    if name in _STATISTICS:
        return "nothing"
    if name == "content":
        return "0"
    return "()" if name in _LISTS else "None"


# pyiceberg's compiled decoder reads a double as a float of 4 bytes.
_READS = {
    **{"int": "read_int()", "long": "read_int()", "boolean": "read_boolean()", "float": "read_float()"},
    **{"double": "double(read(8))[0]", "null": "None"},
}
# It checks the end before it reads a number, but not before it skips one.
_SKIPS = {
    **{"int": "read_int()", "long": "read_int()", "enum": "read_int()", "boolean": "skip(1)", "float": "skip(4)"},
    **{"double": "skip(8)", "null": "pass"},
}
_METHODS = ("read", "read_int", "read_ints", "read_boolean", "read_float", "skip")

"""Messages of changes in Avro, as converters of Kafka Connect write them: their schemas are in a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from volley.errors import SourceError, message_of
from volley.formats.avro import parsed_schema, read_records, resolution_of
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.events import Shape
from volley.formats.changes.unwrap import Groups, is_of_no_row
from volley.formats.changes.wire import Wire, as_told, column_type, logical_name
from volley.formats.framing import head_of
from volley.formats.joined_values import Joined
from volley.formats.messages import TooManyError, Values
from volley.formats.rows import Sorted, sort_good
from volley.formats.schema_registry import Registry

__all__ = ["Avro", "columns_of_avro"]

_KINDS = {
    **{"int": "int32", "long": "int64", "float": "float32", "double": "float64", "boolean": "boolean"},
    **{"string": "string", "enum": "string", "bytes": "bytes", "fixed": "bytes"},
}
_TYPES = {
    **{"int32": pa.int32(), "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64()},
    **{"boolean": pa.bool_(), "string": pa.string(), "bytes": pa.binary()},
}
# Avro's own logical types, where no name of Kafka Connect's says more.
_LOGICAL = {
    **{"decimal": "Decimal", "date": "Date", "time-millis": "Time", "time-micros": "MicroTime"},
    **{"timestamp-millis": "Timestamp", "timestamp-micros": "MicroTimestamp", "timestamp-nanos": "NanoTimestamp"},
    **{"local-timestamp-millis": "Timestamp", "local-timestamp-micros": "MicroTimestamp"},
    **{"local-timestamp-nanos": "NanoTimestamp"},
}
_ERRORS = (SourceError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)


@dataclass(frozen=True)
class Avro:
    """Messages in Avro that begin with the id of their schema.

    Their values are read as they are written, without Avro's logical types: what they mean is told by the names of
    Kafka Connect's types, as in JSON.

    Args:
        columns: The columns of rows.
        shape: How a message has its row.
        registry: The registry that has the schemas.
        options: What their schemas do not tell of columns.
    """

    columns: pa.Schema
    shape: Shape
    registry: Registry
    options: ChangeOptions
    format: str = "text"

    def groups(self, values: Values) -> tuple[Groups, Mapping[int, str]]:
        groups: Groups = {}
        faults: dict[int, str] = {}
        for number, value in enumerate(values):
            if value is None:
                continue
            try:
                groups.setdefault(head_of(value), []).append((number, value))
            except SourceError as error:
                faults[number] = error.message
        if self.options.flattened:
            groups = {schema: units for schema, units in groups.items() if not self._is_of_no_row(schema)}
        return groups, faults

    def _is_of_no_row(self, schema: bytes) -> bool:
        try:
            return _is_of_no_row(self.registry.avro(schema))
        except SourceError:
            return False

    def columns_of(self, schema: bytes) -> pa.Schema:
        return _columns(self.registry.avro(schema), self.shape.path or ())

    def key_fields(self, key: bytes | None) -> tuple[str, ...]:
        return tuple(_wires(self.registry.avro(head_of(key)), ())) if key else ()

    def wires(self, schema: bytes) -> Mapping[str, Wire]:
        told = self.options.wire
        wires = _wires(self.registry.avro(schema), self.shape.path or ())
        return {name: as_told(wire, told[name]) if name in told else wire for name, wire in wires.items()}

    def read(self, schema: bytes, wires: Mapping[str, Wire], payloads: Sequence[bytes], place: str) -> Sorted:
        text = _untyped(self.registry.avro(schema))
        row = pa.struct([(name, _type(wires[name], name)) for name in self.columns.names if name in wires])
        fields = pa.struct(list(self.shape.message(row)))
        columns = pa.schema([*fields])
        values = Joined.of(payloads)
        arrays = resolution_of(text, text).columns(values, values.rows, len(schema), columns)
        if arrays is not None:
            return Sorted([pa.RecordBatch.from_arrays(arrays, schema=columns)], range(len(payloads)), {})

        def convert(start: int, end: int) -> Sorted:
            records = read_records(payloads[start:end], len(schema), text)
            return Sorted([pa.RecordBatch.from_struct_array(pa.array(records, fields))], range(start, end), {})

        def reason(_: int, error: Exception) -> str:
            return message_of(error)

        try:
            return convert(0, len(payloads))
        except TooManyError:
            raise
        except _ERRORS:
            return sort_good({}, range(len(payloads)), convert, reason, _ERRORS)


def columns_of_avro(text: str, path: Sequence[str]) -> pa.Schema:
    """Return the columns of the rows of messages.

    Args:
        text: The schema of messages, as JSON.
        path: The fields that have a row; empty = messages are rows.

    Raises:
        SourceError: If it is no schema of changes.
    """
    columns = _columns(text, tuple(path))
    if not len(columns):
        raise SourceError(
            "the schema of the messages is no envelope of Debezium: it has neither after nor before",
            hint="rows that were flattened need flattened: true",
        )
    return columns


def _columns(text: str, path: tuple[str, ...]) -> pa.Schema:
    # The type of MySQL's and MariaDB's times is a duration.
    is_duration = any(f"io.debezium.connector.{name}" in text for name in ("mysql", "mariadb"))
    wires = _wires(text, path)
    own = [name for name in wires if path or not name.startswith("__")]
    return pa.schema([(name, column_type(wires[name], is_duration)) for name in own])


@lru_cache(maxsize=1_000)
def _is_of_no_row(text: str) -> bool:
    tree = json.loads(text)
    return isinstance(tree, dict) and is_of_no_row(str(tree.get("connect.name")))


@lru_cache(maxsize=1_000)
def _wires(text: str, path: tuple[str, ...]) -> Mapping[str, Wire]:
    """Return how the columns of rows are written, by the schema of their messages."""
    try:
        message = _Wires().of(parsed_schema(_untyped(text, "volley.")), "")
    except SourceError:
        raise
    except Exception as error:
        # fastavro raises any type of exception on a broken schema.
        raise SourceError(f"the schema of the message is not Avro ({type(error).__name__}: {error})") from error
    if not path:
        return message.fields
    return next((message.fields[name].fields for name in path if name in message.fields), {})


@lru_cache(maxsize=1_000)
def _untyped(text: str, prefix: str = "") -> str:
    """Return an Avro schema without logical types; with a prefix, they are kept under another name."""
    return json.dumps(_renamed(json.loads(text), prefix))


def _renamed(schema: Any, prefix: str) -> Any:
    if isinstance(schema, list):
        return [_renamed(part, prefix) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _renamed(part, prefix) for name, part in schema.items() if name != "logicalType"}
    if prefix and "logicalType" in schema:
        parts[f"{prefix}logicalType"] = schema["logicalType"]
    return parts


class _Wires:
    """Tells how values of Avro types are written; remembers named types, since a later field may refer to one."""

    def __init__(self) -> None:
        self._named: dict[str, Wire | None] = {}

    def of(self, schema: Any, place: str) -> Wire:
        if isinstance(schema, list):
            members = [member for member in schema if member != "null"]
            if len(members) != 1:
                raise SourceError(f"field {place!r} is a union of several types, which no change of a row has")
            return self.of(members[0], place)
        if isinstance(schema, str):
            return self._of_name(schema, place)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, place)
        wire = self._wire(kind, schema, place)
        if "name" in schema:
            self._named[schema["name"]] = wire
        return wire

    def _of_name(self, name: str, place: str) -> Wire:
        if name in _KINDS:
            return Wire(_KINDS[name])
        wire = self._named.get(name)
        if wire is None:
            raise SourceError(f"field {place!r}: type {name!r} contains itself, which a column can't")
        return wire

    def _wire(self, kind: str, schema: Mapping[str, Any], place: str) -> Wire:
        own = logical_name(schema.get("connect.name") or "")
        logical = own or _LOGICAL.get(schema.get("volley.logicalType") or "", "")
        parameters = {"scale": str(schema.get("scale", 0)), **(schema.get("connect.parameters") or {})}
        if "precision" in schema:
            parameters.setdefault("connect.decimal.precision", str(schema["precision"]))
        if kind == "record":
            fields = {part["name"]: self.of(part["type"], part["name"]) for part in schema["fields"]}
            return Wire("struct", logical, parameters, fields)
        if kind == "array":
            return Wire("array", logical, parameters, {"": self.of(schema["items"], place)})
        if kind == "map":
            return Wire("map", logical, parameters, {"": self.of(schema["values"], place)})
        return Wire(_KINDS[kind], logical, parameters) if kind in _KINDS else self._of_name(kind, place)


def _type(wire: Wire, column: str) -> pa.DataType:
    """Return the type of values as they are written."""
    match wire.kind:
        case "struct":
            return pa.struct([(name, _type(part, column)) for name, part in wire.fields.items()])
        case "array":
            return pa.list_(_type(wire.item, column))
        case "map":
            return pa.map_(pa.string(), _type(wire.item, column))
    return _TYPES[wire.kind]

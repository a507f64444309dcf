"""Maps Avro types to Arrow types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from volley.errors import ConfigError
from volley.formats.avro_defaults import logical

__all__ = ["AvroTypes"]

_PLAIN = {
    "null": "null",
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
}
_DIGITS = 38


class AvroTypes:
    """Maps Avro types to Arrow types; remembers named types by full name, since a later field may refer to one."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}

    def record(self, schema: Mapping[str, Any]) -> list[pa.Field]:
        return [pa.field(field["name"], self._type(field["type"], field["name"])) for field in schema["fields"]]

    def _type(self, schema: Any, place: str) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, place)
        if isinstance(schema, str):
            schema = {"type": schema}
        type_name = schema["type"]
        if isinstance(type_name, dict | list):
            return self._type(type_name, place)
        data_type = _logical(schema, place) or self._plain(type_name, schema, place)
        if "name" in schema:
            self._named[schema["name"]] = data_type
        return data_type

    def _plain(self, type_name: str, schema: Mapping[str, Any], place: str) -> pa.DataType:
        match type_name:
            case "record":
                return pa.struct(self.record(schema))
            case "array":
                return pa.list_(self._type(schema["items"], place))
            case "map":
                return pa.map_(pa.string(), self._type(schema["values"], place))
            case "fixed":
                return pa.binary(schema["size"])
        if type_name in _PLAIN:
            return getattr(pa, _PLAIN[type_name])()
        data_type = self._named.get(type_name)
        if data_type is None:
            raise ConfigError(
                f"field {place!r}: type {type_name!r} contains itself", hint="columns can't; leave it out"
            )
        return data_type

    def branches(self, members: list[Any], place: str) -> list[pa.Field]:
        """Return the fields of a union of several types: the number of the type that a value has, and one for each."""
        numbered = [(f"field{number}", member) for number, member in enumerate(members) if member != "null"]
        fields = [pa.field(name, self._type(member, place)) for name, member in numbered]
        return [pa.field("tag", pa.int32()), *fields]

    def _union(self, members: list[Any], place: str) -> pa.DataType:
        branches = [branch for branch in members if branch != "null"]
        if not branches:
            raise ConfigError(
                f"field {place!r} is always null, which a column can't be",
                hint="leave it out of the schema to read into",
            )
        return self._type(branches[0], place) if len(branches) == 1 else pa.struct(self.branches(members, place))


def _logical(schema: Mapping[str, Any], place: str) -> pa.DataType | None:
    """Return the Arrow type of a logical type; None if there is none, or an unknown one: then use the plain type."""
    match logical(schema):
        case "date":
            return pa.date32()
        case "time-millis" | "time-micros":
            return pa.time64("us")
        case "timestamp-millis" | "timestamp-micros" | "timestamp-nanos":
            return pa.timestamp("us", "UTC")
        case "local-timestamp-millis" | "local-timestamp-micros" | "local-timestamp-nanos":
            return pa.timestamp("us")
        case "timestamp-volley":
            return pa.timestamp("ns", "UTC")
        case "local-timestamp-volley":
            return pa.timestamp("ns")
        case "decimal" if schema["precision"] > _DIGITS:
            raise ConfigError(
                f"field {place!r} is a decimal of {schema['precision']} digits; a column has at most {_DIGITS}",
                hint="leave the logical type out of the schema to read into: the column has its bytes then",
            )
        case "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return None

"""How values of a column are written: its logical type, what JSON's parser is asked for, and the type it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from volley.errors import SourceError
from volley.formats.change_options import ChangeOptions

__all__ = [
    *("Wire", "as_told", "column_type", "declared_wires", "fields_of_schema", "is_bytes", "json_type"),
    *("logical_name", "wires_of_schema"),
]

_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32"), pa.int32()),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_MOMENTS = ("Timestamp", "MicroTimestamp", "NanoTimestamp", "IsoTimestamp")
_TIMES = ("Time", "MicroTime", "NanoTime", "IsoTime")
_TEXTS = (
    *("text", "characters", "base64", "base64url", "hex", "Bits", "Decimal"),
    *("IsoTimestamp", "IsoDate", "IsoTime", "ZonedTimestamp"),
)
_NUMBERS = ("Date", "Timestamp", "MicroTimestamp", "NanoTimestamp", "Time", "MicroTime", "NanoTime", "unsigned")
# What is said of an array as a whole: it is one of JSON, or a text.
_WHOLE = ("plain", "text")
_DIGITS = 38
_OF_LOGICAL = {
    **dict.fromkeys(_MOMENTS, pa.timestamp("us")),
    **dict.fromkeys(_TIMES, pa.time64("us")),
    **dict.fromkeys(("Date", "IsoDate"), pa.date32()),
    **dict.fromkeys(("Geometry", "Geography", "Point"), pa.binary()),
    **dict.fromkeys(("base64", "base64url", "hex"), pa.binary()),
    **{"ZonedTimestamp": pa.timestamp("us", "UTC"), "VariableScaleDecimal": pa.string(), "Uuid": pa.uuid()},
    **{"unsigned": pa.decimal128(20, 0)},
}
_VARIABLE = pa.struct([("scale", pa.int32()), ("value", pa.string())])


@dataclass(frozen=True)
class Wire:
    """How a column is written.

    Args:
        kind: The type of Kafka Connect, such as ``"int64"``; empty = unknown, as messages have no schema.
        logical: The last part of the name of its logical type, or one of `WIRES`; empty = there is none.
        parameters: Those of the logical type, such as the scale.
        fields: Those of a struct, by name; the item of an array, or the value of a map, is the field ``""``.
        has_default: True: the column may be null, and has another default, which a converter may write for a null.
    """

    kind: str = ""
    logical: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    fields: Mapping[str, Wire] = field(default_factory=dict, hash=False)
    has_default: bool = False

    @property
    def item(self) -> Wire:
        """How the items of an array, or the values of a map, are written."""
        return self.fields.get("", PLAIN)


PLAIN = Wire(logical="plain")
_TEXT = Wire(logical="text")
# As Canal writes bytes: each as the character of its number.
_CHARACTERS = Wire(logical="characters")


def wires_of_schema(schema: Mapping[str, Any]) -> dict[str, Wire]:
    """Return how the fields of a struct are written, by the schema of Kafka Connect that messages carry."""
    return {part["field"]: _of_connect(part) for part in schema.get("fields", ())}


def _of_connect(schema: Mapping[str, Any]) -> Wire:
    kind, name = schema["type"], schema.get("name") or ""
    fields = wires_of_schema(schema)
    if kind == "array":
        fields = {"": _of_connect(schema["items"])}
    if kind == "map" and "values" in schema:
        fields = {"": _of_connect(schema["values"])}
    has_default = bool(schema.get("optional")) and schema.get("default") is not None
    return Wire(kind, logical_name(name), schema.get("parameters") or {}, fields, has_default)


def logical_name(name: str) -> str:
    """Return the last part of the name of a logical type of Debezium or Kafka Connect; empty for another name.

    Example:
        >>> logical_name("io.debezium.time.MicroTimestamp")
        'MicroTimestamp'
    """
    return name.rpartition(".")[2] if name.startswith(("io.debezium.", "org.apache.kafka.connect.data.")) else ""


def fields_of_schema(schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the schema of a field of a struct; None if it has none of this name."""
    return next((part for part in schema.get("fields", ()) if part.get("field") == name), None)


def declared_wires(columns: pa.Schema, options: ChangeOptions, is_debezium: bool, texts: bool) -> dict[str, Wire]:
    """Return how columns are written where messages have no schema.

    Args:
        is_debezium: True: in Debezium's ways, of which some have to be told; False: as JSON has them.
        texts: True: all values are JSON strings.

    Raises:
        SourceError: If values of a column could be read in two ways.
    """
    return {
        column.name: as_told(_of_type(column.type), options.wire[column.name])
        if column.name in options.wire
        else _of_text(column.type)
        if texts
        else _of_declared(column.name, column.type, is_debezium)
        for column in columns
    }


def as_told(wire: Wire, logical: str) -> Wire:
    """Return how a column is written by the word of `ChangeOptions.wire`, which is about the items of an array."""
    if wire.kind == "array" and logical not in _WHOLE:
        return replace(wire, fields={"": as_told(wire.item, logical)})
    return replace(wire, logical=logical)


def is_bytes(data_type: pa.DataType) -> bool:
    """Return True if values of a type are bytes."""
    return bool(pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type))


def _of_text(data_type: pa.DataType) -> Wire:
    return _CHARACTERS if is_bytes(data_type) else _TEXT


def _of_type(data_type: pa.DataType) -> Wire:
    return Wire("array", fields={"": _of_type(data_type.value_type)}) if pa.types.is_list(data_type) else Wire()


def _of_declared(name: str, data_type: pa.DataType, is_debezium: bool) -> Wire:
    t = pa.types
    if t.is_list(data_type):
        return Wire("array", fields={"": _of_declared(name, data_type.value_type, is_debezium)})
    if t.is_struct(data_type):
        return Wire("struct", fields={part.name: _of_declared(name, part.type, is_debezium) for part in data_type})
    if is_bytes(data_type):
        return Wire(logical="base64")
    if not is_debezium:
        return PLAIN
    if t.is_date(data_type):
        return Wire(logical="Date")
    if t.is_decimal(data_type):
        raise _ambiguous(name, '"Decimal" (base64), "text" (decimal.handling.mode=string), or "plain" (numbers)')
    if t.is_time(data_type):
        raise _ambiguous(name, ", ".join(map(repr, _TIMES)))
    if t.is_timestamp(data_type) and data_type.tz is None:
        raise _ambiguous(name, ", ".join(map(repr, _MOMENTS)))
    return Wire(logical="ZonedTimestamp") if t.is_timestamp(data_type) else PLAIN


def _ambiguous(column: str, ways: str) -> SourceError:
    return SourceError(
        f"column {column!r} may be written in several ways, and messages have no schema that tells which",
        hint=f"options={{'wire': {{{column!r}: …}}}}, one of {ways}; or let the converter write schemas",
    )


def json_type(wire: Wire, declared: pa.DataType) -> pa.DataType | None:
    """Return the type to read from JSON; None for one that its parser does not know."""
    if wire.logical in _TEXTS:
        return pa.string()
    if wire.logical in _NUMBERS:
        return pa.int64()
    if wire.logical == "VariableScaleDecimal":
        return _VARIABLE
    if not wire.kind:
        return _plain_type(declared)
    if wire.kind == "array":
        item = declared.value_type if pa.types.is_list(declared) else pa.string()
        inner = json_type(wire.item, item)
        return None if inner is None else pa.list_(inner)
    if wire.kind == "map":
        inner = json_type(wire.item, declared.item_type if pa.types.is_map(declared) else pa.string())
        return None if inner is None else pa.map_(pa.string(), inner)
    if wire.kind == "struct":
        return _json_struct(wire, declared)
    if wire.kind == "bytes":
        return pa.string()
    number = _KINDS.get(wire.kind)
    return pa.int64() if number == pa.int32() else number


def _json_struct(wire: Wire, declared: pa.DataType) -> pa.DataType | None:
    targets = {part.name: part.type for part in declared} if pa.types.is_struct(declared) else {}
    types = {name: json_type(inner, targets.get(name, pa.string())) for name, inner in wire.fields.items()}
    return None if None in types.values() or not types else pa.struct(list(types.items()))


def _plain_type(declared: pa.DataType) -> pa.DataType | None:
    t = pa.types
    if t.is_temporal(declared) or declared == pa.uuid():
        return pa.string()
    return declared


def column_type(wire: Wire, is_duration: bool) -> pa.DataType:
    """Return the type of a column for values whose schema tells how they are written.

    Args:
        is_duration: True: times are durations, as MySQL's and MariaDB's; they become microseconds.
    """
    if wire.logical == "Decimal":
        return _decimal_type(wire)
    if wire.logical in _TIMES and is_duration:
        return pa.int64()
    if data_type := _OF_LOGICAL.get(wire.logical):
        return data_type
    match wire.kind:
        case "array":
            return pa.list_(column_type(wire.item, is_duration))
        case "map":
            return pa.map_(pa.string(), column_type(wire.item, is_duration))
        case "struct":
            return pa.struct([(name, column_type(part, is_duration)) for name, part in wire.fields.items()])
    return _KINDS[wire.kind]


def _decimal_type(wire: Wire) -> pa.DataType:
    """Return the type of decimals; text if no decimal of 38 digits has them."""
    scale, digits = (int(wire.parameters.get(name, 0)) for name in ("scale", "connect.decimal.precision"))
    if not 0 <= scale <= _DIGITS or digits > _DIGITS:
        return pa.string()
    return pa.decimal128(digits or _DIGITS, scale)

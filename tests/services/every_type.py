"""Rows with a value of every type Iceberg has, nulls at every level, and one form in which readers' values compare."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

_INSTANT, _MOMENT = pa.timestamp("us", "UTC"), pa.timestamp("us")
_LEAF = pa.struct({"a": pa.int32(), "b": pa.string()})
_INNER = pa.struct({"day": pa.date32(), "prices": pa.map_(pa.string(), pa.decimal128(5, 2))})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "flag": pa.bool_(),
        "small": pa.int32(),
        "real": pa.float32(),
        "double": pa.float64(),
        "money": pa.decimal128(38, 9),
        "cents": pa.decimal128(9, 2),
        "units": pa.decimal128(18, 3),
        "day": pa.date32(),
        "clock": pa.time64("us"),
        "moment": _MOMENT,
        "instant": _INSTANT,
        "text": pa.string(),
        "uuid": pa.binary(16),
        "fixed": pa.binary(4),
        "raw": pa.binary(),
        "numbers": pa.list_(pa.int64()),
        "deep": pa.list_(pa.list_(_LEAF)),
        "map": pa.map_(pa.string(), pa.list_(pa.int64())),
        "struct": pa.struct({"x": pa.float64(), "when": _INSTANT, "inner": _INNER}),
    }
)
NULLS: dict[str, Any] = dict.fromkeys(SCHEMA.names)
FULL = {
    "id": 1,
    "flag": True,
    "small": -(2**31),
    "real": 1.5,
    "double": float("-inf"),
    "money": Decimal("-12345678901234567890123456789.123456789"),
    "cents": Decimal("-9999999.99"),
    "units": Decimal("999999999999999.001"),
    "day": dt.date(1583, 10, 15),
    "clock": dt.time(23, 59, 59, 999999),
    "moment": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "instant": dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC),
    "text": "naïve ☃ 𝄞\n\"'",
    "uuid": UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
    "fixed": b"\x00\xff\x00\x01",
    "raw": b"\x00raw\xff",
    "numbers": [2**63 - 1, None, -(2**63)],
    "deep": [[{"a": 1, "b": "one"}, None, {"a": None, "b": None}], None, []],
    "map": [("full", [1, None]), ("empty", []), ("null", None)],
    "struct": {
        "x": 0.1,
        "when": dt.datetime(2262, 4, 11, tzinfo=dt.UTC),
        "inner": {"day": dt.date(1969, 12, 31), "prices": [("tea", Decimal("2.50")), ("none", None)]},
    },
}
ROWS = [
    FULL,
    NULLS | {"id": 2},
    NULLS | {"id": 3, "text": "", "raw": b"", "numbers": [], "deep": [], "map": []},
    NULLS | {"id": 4, "struct": {"x": None, "when": None, "inner": None}},
    NULLS | {"id": 5, "struct": {"x": None, "when": None, "inner": {"day": None, "prices": None}}},
    FULL | {"id": 6, "day": dt.date(9999, 12, 31), "double": -0.0, "flag": False, "small": 2**31 - 1},
]


def with_uuid(schema: Schema) -> Schema:
    """The schema with the type UUID for the column of that name, which Arrow lacks."""
    made = [
        field.model_copy(update={"field_type": UUIDType()}) if field.name == "uuid" else field
        for field in schema.fields
    ]
    return Schema(*made)


def plain(value: Any) -> Any:
    """A value in the one form that is compared: readers have types of their own for maps, bytes, UUIDs and zones."""
    match value:
        case bytearray():
            return bytes(value)
        case UUID():
            return value.bytes
        case dt.datetime():
            return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        case [(_, _), *_] | [{"key": _, "value": _}, *_]:
            pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in value]
            return {plain(key): plain(item) for key, item in pairs}
        case list():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()} or []
    return value


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in that form, by their ids."""
    made = [plain(row) for row in rows]
    for row in made:
        if isinstance(row.get("uuid"), str):
            row["uuid"] = UUID(row["uuid"]).bytes
    return sorted(made, key=lambda row: (row.get("id", 0), row.get("payload", "")))

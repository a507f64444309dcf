"""Avro files, and messages of Avro by a schema registry."""

from __future__ import annotations

import datetime
import io
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro

from tests.avro import record
from tests.fuzz.messages import Messages
from volley.formats.avro import AvroValues
from volley.formats.messages import Decoder

__all__ = ["AvroMessages", "avro_bytes"]

_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_TREE = record(("value", "long"), ("more", {"type": "array", "items": "Tree"}), name="Tree")
_SCHEMA = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("price", "double"),
    ("cost", _MONEY),
    ("tags", {"type": "array", "items": "string"}),
    ("sizes", {"type": "map", "values": ["null", "int"]}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("code", {"type": "fixed", "name": "Code", "size": 4}),
    ("inner", ["null", record(("x", "float"), ("nothing", {"type": "array", "items": "null"}), name="Inner")]),
)
_WITH_TREE = {**_SCHEMA, "fields": [*_SCHEMA["fields"], {"name": "tree", "type": _TREE}]}
_ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": f"name {number}" if number % 5 else None,
        "at": datetime.datetime(2026, 1, 1, number, tzinfo=datetime.UTC),
        "price": number / 4,
        "cost": Decimal(number),
        "tags": ["a", "b"][: number % 3],
        "sizes": {"x": number, "y": None},
        "kind": "AB"[number % 2],
        "code": b"code",
        "inner": {"x": 0.5, "nothing": [None] * number} if number % 2 else None,
        "tree": {"value": 1, "more": [{"value": 2, "more": []}]},
    }
    for number in range(20)
]


def avro_bytes(codec: str) -> bytes:
    """Return an Avro file with a codec."""
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(json.loads(json.dumps(_SCHEMA))), _ROWS, codec=codec, sync_interval=200)
    return sink.getvalue()


@dataclass(frozen=True)
class AvroMessages(Messages):
    """Messages of Avro."""

    format: str = "avro"

    def schema(self) -> bytes:
        return json.dumps(_WITH_TREE).encode()

    def values(self) -> list[bytes]:
        parsed = fastavro.parse_schema(json.loads(self.schema()))
        values = []
        for row in _ROWS:
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, row)
            values.append(b"\0\0\0\0\1" + sink.getvalue())
        return values

    def kept(self) -> bytes:
        return json.dumps(_SCHEMA).encode()

    def decoder(self, registry: Any) -> Decoder:
        return AvroValues(json.dumps(_SCHEMA), registry)

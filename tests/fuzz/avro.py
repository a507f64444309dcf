"""Avro files, and messages of Avro by a schema registry."""

from __future__ import annotations

import datetime
import io
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from tests.avro import record
from tests.fuzz.target import Target
from volley.contracts.rows import BadRow
from volley.formats.avro import AvroValues
from volley.formats.messages import MessageRows

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
class _Registry:
    """A registry of one schema, which is a file."""

    file: Path

    def schema(self, number: int) -> str:
        return self.file.read_bytes().decode(errors="replace")


@dataclass(frozen=True)
class _Messages:
    """Messages of a topic."""

    values: list[bytes]

    def part(self, start: int, end: int) -> _Messages:
        return _Messages(self.values[start:end])

    def position(self, row: int) -> str:
        return f"message {row}"


@dataclass(frozen=True)
class AvroMessages(Target):
    """Messages with the id of their schema in front.

    Args:
        name: The target's name.
        pattern: The files to mutate: those of messages, or that of the schema.
    """

    name: str
    pattern: str

    def make(self, folder: Path) -> list[Path]:
        (folder / "schema.json").write_text(json.dumps(_WITH_TREE))
        parsed = fastavro.parse_schema(json.loads(json.dumps(_WITH_TREE)))
        for number, row in enumerate(_ROWS):
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, row)
            (folder / f"{number:02}.message").write_bytes(b"\0\0\0\0\1" + sink.getvalue())
        return sorted(folder.glob(self.pattern))

    def read(self, folder: Path) -> Any:
        decoder = AvroValues(json.dumps(_SCHEMA), _Registry(folder / "schema.json"))  # type: ignore[arg-type]
        chunk: Any = _Messages([file.read_bytes() for file in sorted(folder.glob("*.message"))])
        rows = MessageRows(decoder, decoder.schema, lambda fields, part: [])
        # Each message is a row or a bad one.
        each = [1 if isinstance(item, BadRow) else item.batch.num_rows for item in rows.read_tolerant([chunk])]
        if sum(each) != len(chunk.values):
            raise AssertionError(f"{sum(each)} rows of {len(chunk.values)} messages")
        return pa.Table.from_batches(rows.read([chunk]), decoder.schema)

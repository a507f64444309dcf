"""Messages in each format of a schema registry to Arrow, in one thread: nothing is consumed, nothing is written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa

from benchmarks.benchmark import Run, benchmark
from tests.protobuf import compiled, encoded, message_class
from volley.formats.avro import AvroValues
from volley.formats.decoders import decoder_of
from volley.formats.framed_values import FramedValues
from volley.formats.json_schema_values import JsonSchemaValues
from volley.formats.messages import Decoder
from volley.formats.protobuf import ProtobufValues
from volley.formats.registered import Registered

_COLUMNS = (
    "id long, user string, price double, at timestamp, status string, quantity int, tags array<string>, "
    "address struct<street string, city string>, note string"
)
_STATUS = ("NEW", "PAID", "SHIPPED")
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": _STATUS}},
        {"name": "quantity", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "street", "type": "string"}, {"name": "city", "type": "string"}],
            },
        },
        {"name": "note", "type": ["null", "string"]},
    ],
}
_PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; string user = 2; double price = 3; google.protobuf.Timestamp at = 4; Status status = 5;
  int32 quantity = 6; repeated string tags = 7; Address address = 8; optional string note = 9;
}
enum Status { NEW = 0; PAID = 1; SHIPPED = 2; }
message Address { string street = 1; string city = 2; }
"""
_TEXT = {"type": "string"}
_PROPERTIES = {
    **{"id": {"type": "integer"}, "user": _TEXT, "price": {"type": "number"}, "quantity": {"type": "integer"}},
    **{
        "at": {"type": "string", "format": "date-time"},
        "status": {"enum": _STATUS},
        "note": {"type": ["string", "null"]},
    },
    **{"tags": {"type": "array", "items": _TEXT}},
    "address": {"type": "object", "properties": {"street": _TEXT, "city": _TEXT}},
}
_FRAME = bytes([0, 0, 0, 0, 1])
_DISTINCT = 50_000
_AT_ONCE = 20_000


@dataclass(frozen=True)
class _Registry:
    """A registry of one schema."""

    kind: str
    text: str

    def schema(self, number: int) -> str:
        return self.text

    def registered(self, head: bytes, kind: str) -> Registered:
        return Registered(self.kind, self.text)


def _orders() -> Iterator[dict[str, Any]]:
    first = datetime(2026, 11, 21, tzinfo=UTC)
    for number in range(_DISTINCT):
        yield {
            **{"id": number * 1_000_003, "user": f"user-{number % 5_000}", "price": number * 0.37},
            **{"at": first + timedelta(milliseconds=number), "status": _STATUS[number % 3], "quantity": number % 7},
            **{"tags": ["a", "bb"][: number % 3], "note": None if number % 2 else f"note {number}"},
            "address": {"street": f"Street {number % 100}", "city": "Paris"},
        }


def _json(order: Mapping[str, Any]) -> bytes:
    return json.dumps({**order, "at": order["at"].isoformat()}, separators=(",", ":")).encode()


def _avro(order: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(_AVRO), order)
    return stream.getvalue()


def _protobuf(kind: Any, order: Mapping[str, Any]) -> bytes:
    return bytes(kind(**order).SerializeToString())


def _formats() -> dict[str, tuple[Decoder, Any, bytes]]:
    """Return for each format what decodes it, what writes a value, and what stands in front of it."""
    files = compiled(_PROTOBUF)
    schema = Registered("JSON", json.dumps({"type": "object", "properties": _PROPERTIES}))
    by_avro: Any = _Registry("AVRO", json.dumps(_AVRO))
    by_protobuf: Any = _Registry("PROTOBUF", encoded(files))
    return {
        "JSON": (decoder_of("json", _COLUMNS, "drop", "unknown", {}), _json, b""),
        "JSON by registry": (FramedValues(JsonSchemaValues(schema, "drop")), _json, _FRAME),
        "Protobuf by registry": (
            ProtobufValues(files, "Order", by_protobuf),
            partial(_protobuf, message_class(files)),
            _FRAME + b"\0",
        ),
        "Avro by registry": (AvroValues(json.dumps(_AVRO), by_avro), _avro, _FRAME),
    }


@benchmark(
    rows=1_000_000,
    repeat=5,
    peers={"volley": "one thread"},
    case="format",
    figures=("rows_per_second", "rows_per_cpu_second"),
)
def messages(run: Run) -> None:
    """Messages of nine fields, a nested one and a list among them, to Arrow: rows per CPU-second in each format."""
    orders = [*_orders()]
    for name, (decoder, write, frame) in _formats().items():
        values = [frame + write(order) for order in orders]
        # Imports and compiles.
        decoder.decode(values[:1])

        def decode(decoder: Decoder = decoder, values: list[bytes] = values) -> Iterator[pa.RecordBatch]:
            for begin in range(0, run.rows, _AT_ONCE):
                start = begin % _DISTINCT
                part = values[start : start + _AT_ONCE] + values[: max(0, start + _AT_ONCE - _DISTINCT)]
                yield decoder.decode(part[: run.rows - begin])

        run.measure(lambda decode=decode: _count(run, decode()), case=name)  # type: ignore[misc]


def _count(run: Run, batches: Iterator[pa.RecordBatch]) -> None:
    rows = sum(batch.num_rows for batch in batches)
    assert rows == run.rows, f"{rows} rows, not {run.rows}"

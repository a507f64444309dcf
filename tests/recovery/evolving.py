"""The job whose topic gets messages of a later schema while it runs; their registry has the schema first."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.avro import record
from tests.drivers import await_end
from tests.protobuf import compiled, encoded, message_class
from tests.sinks import config_of
from tests.waiting import wait_while_it_runs
from volley import Environment, IcebergSink, Job, KafkaSource

_PROPERTIES = {"id": {"type": "integer"}, "name": {"type": "string"}}
_PRICE = {"type": "object", "properties": {"units": {"type": "integer"}}}
_FIELDS = ("id", "long"), ("name", "string")
_PROTO = 'syntax = "proto3"; message Price { int64 units = 1; } message Order { int64 id = 3; string name = 4; '
FORMATS: dict[str, tuple[str, list[Any]]] = {
    "avro": ("AVRO", [record(*_FIELDS), record(*_FIELDS, ("price", record(("units", "long"), name="Price")))]),
    "json": (
        "JSON",
        [
            {"type": "object", "title": "Order", "properties": properties}
            for properties in (_PROPERTIES, {**_PROPERTIES, "price": _PRICE})
        ],
    ),
    "protobuf": ("PROTOBUF", [f"{_PROTO} }}", f"{_PROTO} optional Price price = 7; }}"]),
}
"""By the format of values, the kind and the two schemas, of which the second one has a field more."""


@dataclass(frozen=True)
class Topic:
    """A topic of messages of both schemas, of a format out of `FORMATS`."""

    brokers: str
    registry: str
    name: str
    format: Any

    @property
    def source(self) -> KafkaSource:
        message = "Order" if self.format == "protobuf" else None
        return KafkaSource(self.brokers, self.name, value_format=self.format, registry=self.registry, message=message)

    def send(self, version: int, ids: range) -> None:
        """Register a schema, unless it is, and send messages that were written by it."""
        kind, schemas = FORMATS[self.format]
        schema = schemas[version]
        # As Confluent's serializer registers it.
        text = encoded(compiled(schema)) if isinstance(schema, str) else json.dumps(schema)
        client = SchemaRegistryClient({"url": self.registry})
        client.set_compatibility(f"{self.name}-value", "NONE")
        head = b"\0" + client.register_schema(f"{self.name}-value", Schema(text, kind)).to_bytes(4, "big")
        producer = Producer({"bootstrap.servers": self.brokers, "log_level": 0})
        for number in ids:
            producer.produce(self.name, head + self._encoded(schema, row(version, number)), partition=0)
        assert producer.flush(30) == 0

    def _encoded(self, schema: Any, values: dict[str, Any]) -> bytes:
        if self.format == "json":
            return json.dumps(values).encode()
        if self.format == "protobuf":
            return b"\2\2" + bytes(message_class(compiled(schema), "Order")(**values).SerializeToString())
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), values)
        return stream.getvalue()


def row(version: int, number: int) -> dict[str, Any]:
    """Return the row of a number."""
    return {"id": number, "name": f"row {number}", **({"price": {"units": 3 * number}} if version else {})}


def expected(*rounds: tuple[int, range]) -> list[dict[str, Any]]:
    """Return the table's rows in the order of their ids, of which each range is of one schema."""
    rows = [row(version, number) for version, ids in rounds for number in ids]
    return sorted(({"price": None, **values} for values in rows), key=lambda values: int(values["id"]))


def sink(folder: Path) -> IcebergSink:
    return IcebergSink(config_of(folder).with_flush_interval("200ms"))


def run(folder: Path, topic: Topic, last: int, later: range | None = None, master: str = "local[2]") -> Job:
    """Run an endless job until the table has the last row.

    Args:
        last: Its id.
        later: The ids of rows of the later schema, which are sent then: the job goes on until they are there.
    """
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    with environment.from_source(topic.source).to_sink(sink(folder)).start("evolving") as job:
        _wait(job, folder, last)
        if later is not None:
            topic.send(1, later)
            _wait(job, folder, later[-1])
    await_end(job)
    return job


def _wait(job: Job, folder: Path, last: int) -> None:
    def is_there() -> bool:
        return job.progress.epochs > 0 and last in sink(folder).to_arrow()["id"].to_pylist()

    wait_while_it_runs(job, is_there, f"row {last}")

"""What Confluent's serializers write by a real registry, and in headers, is read from a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from tests.protobuf import compiled, encoded
from tests.servers.apicurio import Apicurio
from tests.servers.kafka import Kafka
from tests.services.test_kafka import Run
from volley import KafkaSource, SourceError

MONEY = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "units", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "Money"},
        {"name": "by", "type": ["null", "long", "string"]},
    ],
}
PROTO = """
syntax = "proto3"; package wire;
import "google/protobuf/timestamp.proto"; import "wire/money.proto";
message Other { int32 a = 1; }
message Order { int64 id = 1; Money price = 2; google.protobuf.Timestamp at = 3; message Line { int32 n = 1; } }
"""
PROTO_MONEY = 'syntax = "proto3"; package wire; message Money { int64 units = 1; }'


def framed(serializer: Any, topic: str, value: Any) -> dict[str, Any]:
    """Return a message as a producer of Confluent's sends it."""
    headers: list[tuple[str, str | bytes | None]] = []
    context = SerializationContext(topic, MessageField.VALUE, headers)
    return {"value": serializer(value, context), "headers": headers}


def test_avro_with_references(kafka: Kafka, apicurio: Apicurio, tmp_path: Path) -> None:
    topic, client = kafka.topic(), apicurio.client()
    client.register_schema(f"{topic}-money", Schema(json.dumps(MONEY), "AVRO"))
    references = [SchemaReference("shop.Money", f"{topic}-money", 1)]
    serializer = AvroSerializer(client, Schema(json.dumps(ORDER), "AVRO", references))
    rows = [{"id": 1, "price": {"units": 5}, "by": "me"}, {"id": 2, "price": {"units": 6}, "by": 7}]
    kafka.produce(topic, [framed(serializer, topic, row) for row in rows])
    source = KafkaSource(kafka.bootstrap, topic, value_format="avro", registry=apicurio.uri)
    assert Run(source, tmp_path).epoch() == [
        {"id": 1, "price": {"units": 5}, "by": {"tag": 2, "field1": None, "field2": "me"}},
        {"id": 2, "price": {"units": 6}, "by": {"tag": 1, "field1": 7, "field2": None}},
    ]


def test_json_with_references(kafka: Kafka, apicurio: Apicurio, tmp_path: Path) -> None:
    topic, client = kafka.topic(), apicurio.client()
    money = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "title": "Money"}
    money["properties"] = {"units": {"type": "integer"}}  # type: ignore[assignment]
    client.register_schema(f"{topic}-money", Schema(json.dumps(money), "JSON"))
    order = {**money, "title": "Order", "properties": {"id": {"type": "integer"}, "price": {"$ref": "money.json"}}}
    schema = Schema(json.dumps(order), "JSON", [SchemaReference("money.json", f"{topic}-money", 1)])
    serializer = JSONSerializer(schema, client)
    kafka.produce(topic, [framed(serializer, topic, {"id": 2**53 + 1, "price": {"units": 5.0}})])
    source = KafkaSource(kafka.bootstrap, topic, registry=apicurio.uri)
    run = Run(source, tmp_path)
    assert run.reader.schema == pa.schema({"id": pa.int64(), "price": pa.struct({"units": pa.int64()})})
    assert run.epoch() == [{"id": 2**53 + 1, "price": {"units": 5}}]


def protobuf_class(name: str) -> Any:
    """Return a class whose file imports another one, as generated code has it."""
    pool = Default()
    for path, text in (("wire/money.proto", PROTO_MONEY), ("wire/order.proto", PROTO)):
        try:
            pool.FindFileByName(path)
        except KeyError:
            pool.AddSerializedFile(_file(path, text))
    return GetMessageClass(pool.FindMessageTypeByName(name))


def _file(path: str, text: str) -> bytes:
    # The compiler wants what is imported in the same text.
    alone = text.replace('import "wire/money.proto";', "message Money { int64 units = 1; }")
    file = FileDescriptorProto()
    file.CopyFrom(FileDescriptorSet.FromString(compiled(alone)).file[-1])
    file.name = path
    if alone != text:
        del file.message_type[0]
        file.dependency.append("wire/money.proto")
    return bytes(file.SerializeToString())


def test_protobuf_with_references(kafka: Kafka, apicurio: Apicurio, tmp_path: Path) -> None:
    topic, client = kafka.topic(), apicurio.client()
    order, line = protobuf_class("wire.Order"), protobuf_class("wire.Order.Line")
    settings = {"reference.subject.name.strategy": lambda context, name, *_: f"{topic}-{name}".replace("/", "-")}
    serializer = ProtobufSerializer(order, client, settings)
    message = order(id=5, price={"units": 6}, at={"seconds": 1})
    lines = ProtobufSerializer(line, client, settings)
    kafka.produce(topic, [framed(serializer, topic, message), {"value": None}, framed(lines, topic, line(n=1))])
    source = KafkaSource(kafka.bootstrap, topic, value_format="protobuf", registry=apicurio.uri, message="Order")
    run = Run(source, tmp_path)
    with pytest.raises(SourceError, match=rf"{topic}/0/2: schema \d+: it is a message wire.Order.Line, and wire.Order"):
        run.epoch()
    of_lines = KafkaSource(
        kafka.bootstrap, topic, value_format="protobuf", registry=apicurio.uri, message="Order.Line", include=["offset"]
    )
    reader = Run(of_lines, tmp_path / "lines").reader
    assert reader.schema == pa.schema({"n": pa.int32(), "kafka_offset": pa.int64()})


def test_a_proto_file_that_was_registered_as_text(kafka: Kafka, apicurio: Apicurio, tmp_path: Path) -> None:
    topic, client = kafka.topic(), apicurio.client()
    client.register_schema(f"{topic}-money", Schema(PROTO_MONEY, "PROTOBUF"))
    schema = Schema(PROTO, "PROTOBUF", [SchemaReference("wire/money.proto", f"{topic}-money", 1)])
    number = client.register_schema(f"{topic}-value", schema)
    kafka.produce(topic, [{"value": b"\0" + number.to_bytes(4, "big") + bytes.fromhex("0202" + "080512020806")}])
    source = KafkaSource(kafka.bootstrap, topic, value_format="protobuf", registry=apicurio.uri, message="wire.Order")
    assert Run(source, tmp_path).epoch() == [{"id": 5, "price": {"units": 6}, "at": None}]


def test_a_proto_file_without_references_that_was_registered_as_text(
    kafka: Kafka, apicurio: Apicurio, tmp_path: Path
) -> None:
    topic = kafka.topic()
    fields = "int64 id = 1; google.protobuf.Timestamp at = 2;"
    text = f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Event {{ {fields} }}'
    number = apicurio.client().register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    kafka.produce(topic, [{"value": b"\0" + number.to_bytes(4, "big") + bytes.fromhex("00" + "0807")}])
    source = KafkaSource(kafka.bootstrap, topic, value_format="protobuf", registry=apicurio.uri)
    assert Run(source, tmp_path).epoch() == [{"id": 7, "at": None}]


@dataclass
class Registry:
    """Answers for the mock of Confluent's client, which knows GUIDs.

    Args:
        client: The mock.
        guids: The schemas by GUID.
    """

    client: Any
    schemas: dict[str, Any] = field(default_factory=dict)
    url: str = ""


@pytest.fixture
def registry() -> Iterator[Registry]:
    known = Registry(SchemaRegistryClient.new_client({"url": "mock://headers"}))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = known.schemas.get(self.path.partition("?")[0])
            self.send_response(200 if answer else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer or {"error_code": 40403, "message": "not found"}).encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    known.url = f"http://127.0.0.1:{server.server_port}"
    yield known
    server.shutdown()
    server.server_close()


def known(registry: Registry, subject: str, kind: str, text: str | None = None) -> None:
    """Let the registry answer for the mock's latest schema of a subject."""
    version = registry.client.get_latest_version(subject)
    body = {"schema": text or version.schema.schema_str, "schemaType": kind, "guid": version.guid}
    registry.schemas[f"/schemas/guids/{version.guid}"] = body
    registry.schemas[f"/subjects/{subject}/versions/latest"] = {**body, "subject": subject, "version": 1, "id": 1}


HEADERS = {"schema.id.serializer": header_schema_id_serializer}


def test_a_schema_that_a_header_names(kafka: Kafka, registry: Registry, tmp_path: Path) -> None:
    """The value is bare then: of one byte, and of one that looks like a frame."""
    topic = kafka.topic()
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    serializer = AvroSerializer(registry.client, json.dumps(schema), conf=HEADERS)
    messages = [framed(serializer, topic, {"id": number}) for number in (5, 0)]
    assert [message["value"] for message in messages] == [b"\x0a", b"\x00"]
    known(registry, f"{topic}-value", "AVRO")
    kafka.produce(topic, [*messages, {"value": None}])
    source = KafkaSource(kafka.bootstrap, topic, value_format="avro", registry=registry.url, include=["headers"])
    rows = Run(source, tmp_path).epoch()
    assert [row["id"] for row in rows] == [5, 0, None]
    assert rows[0]["kafka_headers"][0]["key"] == "__value_schema_id"


def test_a_message_of_protobuf_whose_place_is_in_the_header(kafka: Kafka, registry: Registry, tmp_path: Path) -> None:
    topic, order = kafka.topic(), protobuf_class("wire.Order.Line")
    serializer = ProtobufSerializer(order, registry.client, HEADERS)
    message = framed(serializer, topic, order(n=1))
    assert message["value"] == b"\x08\x01"
    text = PROTO.replace('import "wire/money.proto";', "").replace("Money price = 2;", "")
    known(registry, f"{topic}-value", "PROTOBUF", encoded(compiled(text)))
    kafka.produce(topic, [message])
    source = KafkaSource(
        kafka.bootstrap, topic, value_format="protobuf", registry=registry.url, message="wire.Order.Line"
    )
    assert Run(source, tmp_path).epoch() == [{"n": 1}]

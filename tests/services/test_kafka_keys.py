"""Keys of Kafka's messages as columns, in each format; one that can't be read makes its message a bad row."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.avro import record
from tests.protobuf import compiled, message_class
from tests.servers.kafka import Kafka
from tests.services.test_kafka import Run
from tests.services.test_registry import Registry, known, registry
from volley import KafkaSource, SchemaChangedError, SourceError
from volley.contracts.rows import BadRow

__all__ = ["registry"]

NUMBERS = {"short": (">h", -2), "int": (">i", 2**31 - 1), "long": (">q", -(2**63)), "float": (">f", 0.5)}
NUMBERS |= {"double": (">d", 1e300)}


def keyed(kafka: Kafka, format: Any, **more: Any) -> tuple[str, KafkaSource]:
    topic = kafka.topic()
    return topic, KafkaSource(kafka.bootstrap, topic, value_format="string", key_format=format, **more)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str, kafka: Kafka, tmp_path: Path) -> None:
    code, number = NUMBERS[name]
    topic, source = keyed(kafka, name)
    kafka.produce(topic, [{"key": struct.pack(code, number), "value": "a"}, {"key": None, "value": "b"}])
    assert Run(source, tmp_path).epoch() == [{"value": "a", "kafka_key": number}, {"value": "b", "kafka_key": None}]


def test_text(kafka: Kafka, tmp_path: Path) -> None:
    topic, source = keyed(kafka, "string", include=["offset"])
    kafka.produce(topic, [{"key": "ü", "value": "a"}])
    assert Run(source, tmp_path).epoch() == [{"value": "a", "kafka_offset": 0, "kafka_key": "ü"}]


def test_records_without_a_registry(kafka: Kafka, tmp_path: Path) -> None:
    proto = 'syntax = "proto3"; message Key { int64 id = 1; }'
    topic, source = keyed(kafka, "protobuf", key_schema=compiled(proto))
    key = message_class(compiled(proto))(id=5).SerializeToString()
    kafka.produce(topic, [{"key": key, "value": "a"}, {"key": None, "value": "b"}])
    assert Run(source, tmp_path / "protobuf").epoch() == [
        {"value": "a", "kafka_key_id": 5},
        {"value": "b", "kafka_key_id": None},
    ]
    topic, source = keyed(kafka, "avro", key_schema=record(("id", "long"), ("at", ["null", "string"])))
    kafka.produce(topic, [{"key": b"\x0a\x00", "value": "a"}])
    assert Run(source, tmp_path / "avro").epoch() == [{"value": "a", "kafka_key_id": 5, "kafka_key_at": None}]
    topic, source = keyed(kafka, "avro", key_schema='"long"')
    kafka.produce(topic, [{"key": b"\x0a", "value": "a"}])
    assert Run(source, tmp_path / "long").epoch() == [{"value": "a", "kafka_key": 5}]


def test_bad_keys_among_good_ones(kafka: Kafka, tmp_path: Path) -> None:
    """Positions, values and keys of the others stay together, also where values are bad."""
    topic = kafka.topic(partitions=2)
    source = KafkaSource(
        kafka.bootstrap,
        topic,
        schema="n long",
        key_format="json",
        key_schema="id long",
        include=["partition", "offset"],
    )
    messages = [
        {
            "key": b"{" if number % 5 == 0 else json.dumps({"id": number}).encode(),
            "value": b"[" if number % 7 == 0 else json.dumps({"n": -number}).encode(),
            "partition": number % 2,
        }
        for number in range(2_000)
    ]
    kafka.produce(topic, messages)
    run = Run(source, tmp_path)
    end = run.planner.next(run.at, None)
    rows, bad = list[dict[str, Any]](), dict[str, str]()
    for split in run.reader.splits(run.at, end):
        for item in run.reader.read_tolerant(split):
            if isinstance(item, BadRow):
                bad[item.position] = item.error
                continue
            rows += item.batch.to_pylist()
            last = item.batch.num_rows - 1
            row = item.batch.slice(last).to_pylist()[0]
            assert item.position(last) == f"{topic}/{row['kafka_partition']}/{row['kafka_offset']}"
    good = [number for number in range(2_000) if number % 5 and number % 7]
    expected = [
        {"n": -number, "kafka_partition": number % 2, "kafka_offset": number // 2, "kafka_key_id": number}
        for number in good
    ]
    assert sorted(rows, key=lambda row: row["kafka_key_id"]) == expected
    assert {*bad} == {f"{topic}/{n % 2}/{n // 2}" for n in range(2_000) if not (n % 5 and n % 7)}
    assert bad[f"{topic}/1/2"].startswith("its key: ")
    with pytest.raises(SourceError, match=f"{topic}/0/0: its key: "):
        Run(source, tmp_path / "strict").epoch()


def test_a_key_of_a_registry_gets_fields_while_the_job_runs(kafka: Kafka, registry: Registry, tmp_path: Path) -> None:
    topic = kafka.topic()

    def latest(part: str, number: int, *fields: tuple[Any, ...]) -> None:
        body = {"schema": json.dumps(record(*fields)), "subject": f"{topic}-{part}", "version": number, "id": number}
        registry.schemas[f"/schemas/ids/{number}"] = body
        registry.schemas[f"/subjects/{topic}-{part}/versions/latest"] = body

    latest("value", 1, ("n", "long"))
    latest("key", 2, ("id", "long"))
    source = KafkaSource(kafka.bootstrap, topic, value_format="avro", key_format="avro", registry=registry.url)
    kafka.produce(topic, [{"key": b"\0\0\0\0\2\2", "value": b"\0\0\0\0\1\2"}])
    run = Run(source, tmp_path)
    assert run.epoch() == [{"n": 1, "kafka_key_id": 1}]
    latest("key", 3, ("id", "long"), ("region", "string", "?"))
    kafka.produce(topic, [{"key": b"\0\0\0\0\3\4\4eu", "value": b"\0\0\0\0\1\2"}])
    at = run.at
    with pytest.raises(SchemaChangedError, match="schema 3 has fields or types that were not there"):
        run.epoch()
    run = Run(source, tmp_path)
    run.at = at
    assert run.epoch() == [{"n": 1, "kafka_key_id": 2, "kafka_key_region": "eu"}]


def test_a_key_whose_schema_a_header_names(kafka: Kafka, registry: Registry, tmp_path: Path) -> None:
    topic = kafka.topic()
    headers: list[tuple[str, str | bytes | None]] = []
    serializer = AvroSerializer(registry.client, '"long"', conf={"schema.id.serializer": header_schema_id_serializer})
    key = serializer(5, SerializationContext(topic, MessageField.KEY, headers))
    assert [name for name, _ in headers] == ["__key_schema_id"]
    known(registry, f"{topic}-key", "AVRO")
    kafka.produce(topic, [{"key": key, "value": "a", "headers": headers}])
    source = KafkaSource(
        kafka.bootstrap, topic, value_format="string", key_format="avro", registry=registry.url, include=["headers"]
    )
    run = Run(source, tmp_path)
    assert run.reader.schema.field("kafka_key").type == pa.int64()
    (row,) = run.epoch()
    assert (row["value"], row["kafka_key"], row["kafka_headers"][0]["key"]) == ("a", 5, "__key_schema_id")

"""Columns that nobody declared, of a real topic: the same ones, with the same rows, whatever epochs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.properties.test_inferred import Stream, read
from tests.recovery.runs import load
from tests.servers.kafka import Kafka
from volley import Contract, Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, KafkaSource

pytestmark = pytest.mark.usefixtures("spark")


def send(kafka: Kafka, topic: str, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), partition=0)
    assert producer.flush(30) == 0


def run(folder: Path, source: KafkaSource) -> None:
    config = IcebergSinkConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(str(folder / "lake")))
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    environment.from_source(source).to_sink(IcebergSink(config)).execute("inferred")


@pytest.mark.parametrize("sizes", [[1000], [7, 3, 11]])
def test_a_table_is_the_same_whatever_epochs_read(kafka: Kafka, tmp_path: Path, sizes: list[int]) -> None:
    stream, topic = Stream(7), kafka.topic()
    objects = [{"line": line, **each} for line, each in enumerate(stream.objects)]
    half = len(objects) // 2
    for part, size in zip((objects[:half], objects[half:]), (sizes * 2)[:2], strict=True):
        send(kafka, topic, part)
        # A run is a restart.
        run(tmp_path, KafkaSource(kafka.bootstrap, topic, schema="infer", bounded=True, max_rows_per_epoch=size))
    texts = [json.dumps(each).encode() for each in objects]
    columns, rows = read(texts, [], "infer")
    table = load(tmp_path).scan().to_arrow().sort_by("line")
    assert {field.name: field.type for field in table.schema if field.name != "rescued"} == {
        field.name: field.type for field in columns.schema
    }
    names = rows[0].keys()
    assert [{name: row[name] for name in names} for row in table.to_pylist()] == rows


def test_hints_and_a_contract(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    send(kafka, topic, [{"id": 1, "amount": 1.25, "kafka_offset": 7}, {"id": "x", "debug": [1], "amount": "1e400"}])
    contract = Contract(columns={"debug": "drop"})
    schema = "amount decimal(10,2)"
    source = KafkaSource(kafka.bootstrap, topic, schema=schema, on_unknown=contract, include=["offset"], bounded=True)
    run(tmp_path, source)
    first, second = load(tmp_path).scan().to_arrow().sort_by("kafka_offset").to_pylist()
    assert (str(first["amount"]), first["id"], first["rescued"]) == ("1.25", 1, '{"kafka_offset": 7}')
    assert (second["amount"], second["id"], second["kafka_offset"]) == (None, None, 1)
    assert json.loads(second["rescued"]) == {"id": "x", "amount": "1e400"}

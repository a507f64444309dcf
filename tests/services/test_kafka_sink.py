"""KafkaSink against a real broker: what it sends, and what it says when it can't."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.contracts.test_sinks import EPOCH, write
from tests.servers.kafka import Kafka
from tests.servers.process import free_ports
from volley import (
    ConfigError,
    Environment,
    KafkaSink,
    KafkaSource,
    MemorySource,
    Metrics,
    SchemaMismatchError,
    SinkContext,
    StorageError,
)
from volley.connectors.kafka import client

pytestmark = pytest.mark.waits

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "bytes": pa.binary()})
JSON = pa.schema({"id": pa.int64(), "text": pa.string()})
LARGE = "x" * 2_000_000


def send(sink: KafkaSink, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    committer = sink.open(SinkContext("job", schema, Metrics()))
    committer.commit(EPOCH, write(committer, EPOCH, [pa.RecordBatch.from_pylist(rows, schema)]))


def test_rows_become_messages_with_keys_and_tombstones(kafka: Kafka) -> None:
    topic = kafka.topic()
    send(KafkaSink(kafka.bootstrap, topic, key="id"), [{"id": 1, "text": "ü"}, {"id": None, "text": None}], JSON)
    rows: list[dict[str, Any]] = [{"id": 2, "text": "key", "bytes": b"\xff"}, {"id": 3, "text": None, "bytes": None}]
    send(KafkaSink(kafka.bootstrap, topic, "raw", key="text", value="bytes"), rows, SCHEMA)
    send(KafkaSink(kafka.bootstrap, topic, "string", key="bytes", value="text"), rows, SCHEMA)
    assert [(message.key(), message.value()) for message in kafka.messages(topic)] == [
        (b"1", '{"id": 1, "text": "ü"}'.encode()),
        (None, b'{"id": null, "text": null}'),
        (b"key", b"\xff"),
        (None, None),
        (b"\xff", b"key"),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({}, SchemaMismatchError, "column 'bytes' .binary. can't be a field of JSON"),
        ({"key": "idd", "value_format": "raw", "value": "bytes"}, ConfigError, "key column 'idd' is not in the stream"),
        ({"value_format": "string", "value": "bytes"}, SchemaMismatchError, "column 'bytes' .* can't be the value"),
    ],
)
def test_what_can_not_be_sent_is_refused_before_anything_is(
    kafka: Kafka, settings: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        KafkaSink(kafka.bootstrap, kafka.topic(), **settings).open(SinkContext("job", SCHEMA, Metrics()))


def test_a_topic_or_a_broker_that_is_not_there_is_an_error(kafka: Kafka) -> None:
    with pytest.raises(ConfigError, match="has no topic 'nowhere'"):
        KafkaSink(kafka.bootstrap, "nowhere").open(SinkContext("job", JSON, Metrics()))
    nobody = KafkaSink(f"127.0.0.1:{free_ports(1)[0]}", "t", timeout=timedelta(seconds=0.5))
    with pytest.raises(StorageError, match=r"gave no answer within 0\.5 s"):
        nobody.open(SinkContext("job", JSON, Metrics()))


@pytest.mark.parametrize("resumed", [False, True])
def test_a_wrong_address_is_told_soon(monkeypatch: pytest.MonkeyPatch, resumed: bool) -> None:
    """But for a job that has written before: its broker may be restarting."""
    monkeypatch.setattr(client, "_REFUSED_SECONDS", 0.2)
    nobody = KafkaSink(f"127.0.0.1:{free_ports(1)[0]}", "t", timeout=timedelta(seconds=4))
    with pytest.raises(StorageError, match=r"gave no answer within .*: .*Connection refused") as error:
        nobody.open(SinkContext("job", JSON, Metrics(), resumed=resumed))
    assert ("within 4 s" in str(error.value)) == resumed


def test_a_message_that_is_not_delivered_fails_its_task(kafka: Kafka) -> None:
    topic = kafka.topic(max_message_bytes="1000")
    plain = KafkaSink(kafka.bootstrap, topic, properties={"compression.type": "none"})
    with pytest.raises(StorageError, match=f"topic '{topic}': a message was not delivered: .*too large"):
        send(plain, [{"id": 1, "text": "y" * 2_000}], JSON)
    # What librdkafka itself refuses, and a topic that goes away between check and write.
    with pytest.raises(StorageError, match=r"not delivered: .*too large"):
        send(KafkaSink(kafka.bootstrap, topic), [{"id": 1, "text": LARGE}], JSON)
    committer = KafkaSink(kafka.bootstrap, topic, timeout=timedelta(seconds=5)).open(
        SinkContext("job", JSON, Metrics())
    )
    kafka.delete_topic(topic)
    with pytest.raises(StorageError, match=r"not delivered|gave no answer"):
        write(committer, EPOCH, [pa.RecordBatch.from_pylist([{"id": 1, "text": "a"}], JSON)])


def test_from_topic_to_topic(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = kafka.topic(), kafka.topic(partitions=2)
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path))
    rows: list[dict[str, Any]] = [{"id": i, "text": f"row {i}"} for i in range(100)]
    environment.from_source(MemorySource(rows)).to_sink(KafkaSink(kafka.bootstrap, first, key="id")).execute("out")
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": kafka.user}
    secure: dict[str, Any] = {"properties": {**login, "sasl.password": kafka.password}}
    source = KafkaSource(
        kafka.sasl_bootstrap, first, schema=JSON, include=["key", "headers", "timestamp"], bounded=True, **secure
    )
    stream = environment.from_source(source).drop("kafka_headers", "kafka_timestamp")
    sink = KafkaSink(kafka.sasl_bootstrap, second, "raw", key="text", value="kafka_key", **secure)
    pipeline = stream.to_sink(sink)
    pipeline.explain()
    plan = capsys.readouterr().out
    assert "KafkaSource(" in plan
    assert kafka.password not in plan + repr(pipeline)
    assert pipeline.execute("on").progress.rows == 100
    found = sorted((message.key(), message.value()) for message in kafka.messages(second))
    assert found == sorted((row["text"].encode(), json.dumps(row["id"]).encode()) for row in rows)
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not [text for text in kept if kafka.password.encode() in text]

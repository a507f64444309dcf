"""Avro and Protobuf of a schema registry, Kafka → Iceberg, beside Spark's `from_avro` and `from_protobuf`."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import fastavro
from confluent_kafka.schema_registry import Schema

from benchmarks.benchmark import RATES, Benchmark, Limit, Run, benchmark
from benchmarks.kafka_to_iceberg import BATCHED
from benchmarks.lake import Lake
from benchmarks.peers import runtime
from benchmarks.rows import NATIVE, RUNTIME
from benchmarks.run import Result
from tests.protobuf import compiled, message_class
from tests.servers.apicurio import Apicurio
from tests.servers.kafka import Kafka
from tests.servers.shared import own_server
from volley import KafkaSource, Progress

_PARTITIONS = 4
_DISTINCT = 500_000
_WARM_UP = 20_000
_FIRST = datetime(2026, 11, 21, 10, tzinfo=UTC)
_TYPES = {"id": "long", "user": "long", "kind": "string", "country": "string", "session": "string", "amount": "double"}
_INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
_AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": name, "type": kind} for name, kind in {**_TYPES, "at": _INSTANT}.items()],
}
_PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Event {
  int64 id = 1; int64 user = 2; string kind = 3; string country = 4; string session = 5; double amount = 6;
  google.protobuf.Timestamp at = 7;
}
"""


def _topics(asked: Benchmark, folder: Path) -> Iterator[Mapping[str, Any]]:
    """One broker and a registry, whose CPU does not count, with a topic of each format that is asked for.

    Each has the rows of a run and of its warm-up; after half a million the same ones come again.
    """
    with own_server(Kafka(folder)) as kafka, own_server(Apicurio(folder)) as registry:
        topics = {}
        for name in asked.options["format"]:
            schema, frame, write = _formats()[name]
            topic = topics[name] = kafka.topic(_PARTITIONS)
            number = registry.client().register_schema(f"{topic}-value", schema)
            head = b"\0" + int(number).to_bytes(4, "big") + frame
            messages = [
                {"value": head + write(event), "partition": place % _PARTITIONS}
                for place, event in enumerate(_events(min(_DISTINCT, asked.rows + asked.options["before"])))
            ]
            for begin in range(0, rows := asked.rows + asked.options["before"], _DISTINCT):
                kafka.produce(topic, messages[: rows - begin], **BATCHED)
        yield {"brokers": kafka.bootstrap, "registry": registry.uri, "topics": topics}


def _events(rows: int) -> Iterator[dict[str, Any]]:
    for n in range(rows):
        event = {"id": n, "user": n * 7919 % 1_000_000, "kind": "click", "country": "de", "session": f"s{n:09}"}
        yield {**event, "amount": n % 10_000 / 100, "at": _FIRST + timedelta(microseconds=n)}


def _formats() -> dict[str, tuple[Schema, bytes, Callable[[dict[str, Any]], bytes]]]:
    """For each format its schema, what stands behind the schema's id, and what writes an event."""
    parsed, kind = fastavro.parse_schema(_AVRO), message_class(compiled(_PROTOBUF))

    def avro(event: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, event)
        return stream.getvalue()

    def protobuf(event: dict[str, Any]) -> bytes:
        return bytes(kind(**event).SerializeToString())

    return {
        "avro": (Schema(json.dumps(_AVRO), "AVRO"), b"", avro),
        "protobuf": (Schema(_PROTOBUF, "PROTOBUF"), b"\0", protobuf),
    }


@benchmark(
    rows=8_000_000,
    repeat=5,
    peers={"volley": NATIVE, "runtime": RUNTIME},
    options={"before": 1_000_000, "rows_per_epoch": 1_000_000},
    cases={"format": ("avro", "protobuf")},
    figures=(*RATES, "epochs", "files", "mb"),
    prepare=_topics,
    bounds=[Limit("rows_per_cpu_second", "rows per CPU-second", 3, of=NATIVE, beside=RUNTIME)],
)
def registry_to_iceberg(run: Run) -> None:
    """Avro and Protobuf of a registry → Iceberg: rows per CPU-second, beside Spark's from_avro and from_protobuf."""
    before, per_epoch = run.options["before"], run.options["rows_per_epoch"]
    topic, each = run.options["topics"][run.case], (run.rows + before) // _PARTITIONS
    last = dict.fromkeys(range(_PARTITIONS), max(0, each - _WARM_UP))
    if run.peer == "runtime":
        options = {**run.options, "topic": topic, "last": last, "rows_per_epoch": per_epoch}
        run.results.extend(_spark(run, options))
        return
    _job(run, topic, "warm_up", starting_offsets={topic: last})
    run.measure_job(partial(_job, run, topic, "benchmark", max_rows_per_epoch=per_epoch), before, per_epoch)


def _spark(run: Run, options: Mapping[str, Any]) -> list[Result]:
    if run.case == "avro":
        return runtime.apart(run, runtime.avro, **options, schema=json.dumps(_AVRO))
    files = base64.b64encode(compiled(_PROTOBUF)).decode()
    return runtime.apart_with_protobuf(run, runtime.protobuf, **options, files=files, message="Event")


def _job(run: Run, topic: str, name: str, **settings: Any) -> Progress:
    registry, brokers = run.options["registry"], run.options["brokers"]
    kind: Literal["avro", "protobuf"] = "protobuf" if run.case == "protobuf" else "avro"
    source = KafkaSource(brokers, topic, value_format=kind, registry=registry, bounded=True, **settings)
    lake = Lake(run.folder)
    return lake.fill(name, lake.environment().from_source(source))

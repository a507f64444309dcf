"""Kafka JSON → Iceberg, and the source alone, beside the limit: the same calls of client and pyarrow, nothing else."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.report import Report
from tests.services.servers.kafka import Kafka
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, KafkaSource, Progress
from volley._types import arrow_schema

PEERS = ("limit", "source", "volley", "epochs")
SUMMARY = "Kafka JSON → Iceberg: rows/s and rows per CPU-second, beside the limit of client and pyarrow"
PARTITIONS = 4
SCHEMA = "id long, user long, kind string, country string, session string, amount double, at timestamp"
ARROW = arrow_schema(SCHEMA)
_TEXT_BYTES = 14 << 20


def fill(kafka: Kafka, rows: int) -> str:
    """A topic with events of about 142 bytes, lz4."""
    topic = kafka.topic(PARTITIONS)
    events = (
        {"id": n, "user": n * 7919 % 1_000_000, "kind": "click", "country": "de", "session": f"s{n:09}"}
        | {"amount": n % 10_000 / 100, "at": f"2026-11-21T10:00:00.{n % 1_000_000:06}Z"}
        for n in range(rows)
    )
    messages = ({"value": json.dumps(event), "partition": n % PARTITIONS} for n, event in enumerate(events))
    kafka.produce(topic, messages, **{"compression.type": "lz4", "linger.ms": 20, "batch.size": 262_144})
    return topic


def limit(brokers: str, topic: str, rows: int) -> Result:
    """One thread: values joined, read as JSON, written as Parquet."""
    from confluent_kafka import Consumer, TopicPartition

    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))
    settings = {"bootstrap.servers": brokers, "group.id": "limit", "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1}
    consumer = Consumer(settings)

    def table(texts: list[bytes]) -> pa.Table:
        options = pj.ParseOptions(explicit_schema=ARROW, unexpected_field_behavior="ignore")
        read = pj.ReadOptions(use_threads=False, block_size=4 << 20)
        return pj.read_json(pa.BufferReader(b"\n".join(texts)), read, options)

    def run() -> dict[str, Any]:
        with pq.ParquetWriter(work / "out.parquet", ARROW) as writer:
            for partition in range(PARTITIONS):
                consumer.assign([TopicPartition(topic, partition, 0)])
                left, texts, size = rows // PARTITIONS, list[bytes](), 0
                while left:
                    values = [message.value() for message in consumer.consume(min(1_000, left), 1)]
                    left -= len(values)
                    texts.append(b"\n".join(values))
                    size += len(texts[-1])
                    if size > _TEXT_BYTES or not left:
                        writer.write_table(table(texts))
                        texts, size = [], 0
        return {}

    try:
        return measured("client and pyarrow, one thread", rows, run)
    finally:
        consumer.close()
        shutil.rmtree(work)


def source(brokers: str, topic: str, rows: int) -> Result:
    """Volley's source alone in one process: consumed and decoded, written nowhere."""
    work = tempfile.mkdtemp(prefix="volley-bench-")
    opened = KafkaSource(brokers, topic, schema=SCHEMA).open(work)
    start = opened.initial_offset()
    splits = opened.splits(start, opened.latest_offset(start, None, None))

    def run() -> dict[str, Any]:
        assert sum(batch.num_rows for split in splits for batch in opened.read(split)) == rows
        return {"splits": len(splits)}

    try:
        return measured("Volley's source alone, one process", rows, run)
    finally:
        shutil.rmtree(work)


def volley(brokers: str, topic: str, rows: int, epochs: int) -> Result:
    """One job over the whole topic, in a session that has run a small one before; the start of the query is counted."""
    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))

    def run(name: str, **settings: Any) -> Progress:
        config = IcebergSinkConfig(namespace=["b"], table=name, storage=IcebergStorage.Local(str(work / "lake")))
        read = KafkaSource(brokers, topic, schema=SCHEMA, bounded=True, **settings)
        stream = Environment(checkpoint_dir=str(work / "checkpoints")).from_source(read)
        return stream.to_sink(IcebergSink(config)).execute(name).progress

    def all_rows() -> dict[str, Any]:
        seen = run("benchmark", max_rows_per_epoch=-(-rows // epochs))
        assert seen.rows == rows
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    try:
        last = {topic: {partition: max(0, rows // PARTITIONS - 20_000) for partition in range(PARTITIONS)}}
        run("warm-up", starting_offsets=last)
        return measured(f"Volley, Arrow-native, {epochs} epochs", rows, all_rows)
    finally:
        shutil.rmtree(work)


def run(arguments: list[str]) -> None:
    """Alternating runs against one broker, whose own work is not counted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kafka_to_iceberg", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="alternating runs of each peer")
    asked = parser.parse_args(arguments)
    kafka = Kafka(Path(tempfile.mkdtemp(prefix="volley-bench-kafka-")))
    try:
        kafka.start()
        given = [kafka.bootstrap, fill(kafka, asked.rows), str(asked.rows)]
        module = "benchmarks.kafka_to_iceberg"
        results = [in_own_process(module, peer, *given) for _ in range(asked.repeat) for peer in PEERS]
    finally:
        kafka.stop()
    _report(results)


def _report(results: list[Result]) -> None:
    report = Report("kafka_to_iceberg", "what", "rows/s", "min–max", "CPU-s per million rows", "worker peak MB")
    for name in dict.fromkeys(result.name for result in results):
        same = [result for result in results if result.name == name]
        speeds = [result.rows_per_second for result in same]
        for result in same[1:]:
            report.note(result)
        report.add(
            same[0],
            name,
            f"{statistics.median(speeds):,.0f}",
            f"{min(speeds):,.0f}–{max(speeds):,.0f}",
            f"{statistics.median(1e6 / result.rows_per_cpu_second for result in same):.2f}",
            f"{max(result.worker_mb for result in same):,.0f}",
        )
    report.print()


def main() -> None:
    """One run of one peer; prints its Result."""
    parser = argparse.ArgumentParser(description=SUMMARY)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("brokers")
    parser.add_argument("topic")
    parser.add_argument("rows", type=int)
    asked = parser.parse_args()
    given = (asked.brokers, asked.topic, asked.rows)
    match asked.peer:
        case "limit":
            print_result(limit(*given))
        case "source":
            print_result(source(*given))
        case peer:
            print_result(volley(*given, epochs=1 if peer == "volley" else 4))


if __name__ == "__main__":
    main()

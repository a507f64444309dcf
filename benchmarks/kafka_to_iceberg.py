"""Kafka JSON → Iceberg, beside Spark's Kafka source with Iceberg's Spark runtime, and client and pyarrow alone."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.comparison import LIMIT, NATIVE, aims, case_of, compared, show
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing, runtime
from tests.services.servers.kafka import Kafka
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, KafkaSource, Progress
from volley._types import arrow_schema

PEERS = ("limit", "source", "volley", "runtime")
SUMMARY = "Kafka JSON → Iceberg: rows/s and rows per CPU-second, beside Iceberg's Spark runtime, client and pyarrow"
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
        return measured("client and pyarrow, one thread", rows, run, LIMIT)
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


def volley(brokers: str, topic: str, rows: int, rows_per_epoch: int) -> Result:
    """One job over the whole topic, in a session that has run a small one before; the start of the query is counted."""
    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))

    def run(name: str, **settings: Any) -> Progress:
        config = IcebergSinkConfig(namespace=["b"], table=name, storage=IcebergStorage.Local(str(work / "lake")))
        read = KafkaSource(brokers, topic, schema=SCHEMA, bounded=True, **settings)
        stream = Environment(checkpoint_dir=str(work / "checkpoints")).from_source(read)
        return stream.to_sink(IcebergSink(config)).execute(name).progress

    def all_rows() -> dict[str, Any]:
        seen = run("benchmark", max_rows_per_epoch=rows_per_epoch)
        assert seen.rows == rows
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    try:
        run("warm_up", starting_offsets={topic: _last(rows)})
        return measured(NATIVE, rows, all_rows, case_of(rows_per_epoch))
    finally:
        shutil.rmtree(work)


def _last(rows: int) -> dict[int, int]:
    """Where the rows of a warm-up begin."""
    return {partition: max(0, rows // PARTITIONS - 20_000) for partition in range(PARTITIONS)}


def one_run(peer: str, brokers: str, topic: str, rows: int, rows_per_epoch: int) -> Result:
    """One run of one peer, in a process of its own."""
    if peer != "runtime":
        given = brokers, topic, str(rows), str(rows_per_epoch)
        return in_own_process("benchmarks.kafka_to_iceberg", peer, *given)
    return runtime(
        "kafka",
        brokers=brokers,
        topic=topic,
        schema=SCHEMA,
        rows=rows,
        rows_per_epoch=rows_per_epoch,
        last=_last(rows),
        case=case_of(rows_per_epoch),
    )


def run(arguments: list[str]) -> None:
    """Alternating runs against one broker, whose own work is not counted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kafka_to_iceberg", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rows-per-epoch", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--repeat", type=int, default=5, help="alternating runs of each peer")
    asked = parser.parse_args(arguments)
    skipped = missing(kafka=True) if "runtime" in asked.peers else None
    turns = [
        (peer, epoch)
        for peer in asked.peers
        # Limit and source know no epochs.
        for epoch in (asked.rows_per_epoch if peer in ("volley", "runtime") else asked.rows_per_epoch[:1])
        if not (peer == "runtime" and skipped)
    ]
    folder = Path(tempfile.mkdtemp(prefix="volley-bench-kafka-"))
    kafka = Kafka(folder)
    try:
        kafka.start()
        topic = fill(kafka, asked.rows)
        results = [
            one_run(peer, kafka.bootstrap, topic, asked.rows, epoch)
            for _ in range(asked.repeat)
            for peer, epoch in turns
        ]
    finally:
        kafka.stop()
        shutil.rmtree(folder)
    report = show("kafka_to_iceberg", results, skipped)
    for figure in aims(compared(results)):
        report.figure(figure)
    report.print()


def main() -> None:
    """One run of one peer; prints its Result."""
    peer, brokers, topic, rows, rows_per_epoch = sys.argv[1:]
    match peer:
        case "limit":
            result = limit(brokers, topic, int(rows))
        case "source":
            result = source(brokers, topic, int(rows))
        case _:
            result = volley(brokers, topic, int(rows), int(rows_per_epoch))
    print_result(result)


if __name__ == "__main__":
    main()

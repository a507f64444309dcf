"""Kafka JSON → Iceberg, beside Spark's Kafka source with Iceberg's Spark runtime, and client and pyarrow alone."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.comparison import LIMIT, NATIVE, InEpochs, aims, compared, show
from benchmarks.measure import Result, after, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing, runtime
from tests.servers.kafka import Kafka
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, KafkaSource, Progress, SourceContext
from volley.types.arrow import arrow_schema

PEERS = ("limit", "source", "volley", "runtime")
SUMMARY = "Kafka JSON → Iceberg: rows/s and rows per CPU-second, beside Iceberg's Spark runtime, client and pyarrow"
PARTITIONS = 4
SCHEMA = "id long, user long, kind string, country string, session string, amount double, at timestamp"
ARROW = arrow_schema(SCHEMA)
_DISTINCT = 1_000_000
_TEXT_BYTES = 14 << 20


@dataclass(frozen=True)
class Work(InEpochs):
    """What a run does.

    Args:
        brokers: Where to connect to.
        topic: It has rows for what is measured and what comes before.
        rows: Rows that are measured.
        before: Rows that the same query handles before it is measured, whole epochs.
        rows_per_epoch: Rows of an epoch.
    """

    brokers: str
    topic: str
    rows: int
    before: int
    rows_per_epoch: int

    @property
    def last(self) -> dict[int, int]:
        """Where the rows of a warm-up begin."""
        each = (self.rows + self.before) // PARTITIONS
        return {partition: max(0, each - 20_000) for partition in range(PARTITIONS)}


def fill(kafka: Kafka, rows: int) -> str:
    """A topic with events of about 142 bytes, lz4; after a million the same ones come again."""
    topic = kafka.topic(PARTITIONS)
    events = (
        {"id": n, "user": n * 7919 % 1_000_000, "kind": "click", "country": "de", "session": f"s{n:09}"}
        | {"amount": n % 10_000 / 100, "at": f"2026-11-21T10:00:00.{n % 1_000_000:06}Z"}
        for n in range(min(rows, _DISTINCT))
    )
    texts = [json.dumps(event) for event in events]
    properties = {"compression.type": "lz4", "linger.ms": 20, "batch.size": 262_144}
    for begin in range(0, rows, _DISTINCT):
        messages = (
            {"value": text, "partition": number % PARTITIONS} for number, text in enumerate(texts[: rows - begin])
        )
        kafka.produce(topic, messages, **properties, **{"queue.buffering.max.messages": _DISTINCT})
    return topic


def limit(work: Work) -> Result:
    """A process for each core: values joined, read as JSON, written as Parquet."""
    folder, cores = tempfile.mkdtemp(prefix="volley-bench-"), os.cpu_count() or 1
    shares = [[partition for partition in range(PARTITIONS) if partition % cores == core] for core in range(cores)]

    def run() -> dict[str, Any]:
        assert sum(pool.map(_consumed, [work] * cores, shares, [folder] * cores)) == work.rows
        return {}

    # Forked, as Spark's workers are: what they import is there already.
    with ProcessPoolExecutor(cores, multiprocessing.get_context("fork")) as pool:
        try:
            return measured("client and pyarrow, a process a core", work.rows, run, LIMIT)
        finally:
            shutil.rmtree(folder)


def _consumed(work: Work, partitions: list[int], folder: str) -> int:
    """Write what these partitions begin with to a file; returns its rows."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": work.brokers, "group.id": "limit"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1})
    rows = 0
    with closing(consumer), pq.ParquetWriter(f"{folder}/{partitions[0]}.parquet", ARROW) as writer:
        for partition in partitions:
            consumer.assign([TopicPartition(work.topic, partition, 0)])
            left, texts, size = work.rows // PARTITIONS, list[bytes](), 0
            while left:
                values = [message.value() or b"" for message in consumer.consume(min(300, left), 1)]
                left -= len(values)
                texts.append(b"\n".join(values))
                size += len(texts[-1])
                if size > _TEXT_BYTES or not left:
                    writer.write_table(read := _table(texts))
                    texts, size, rows = [], 0, rows + read.num_rows
    return rows


def _table(texts: list[bytes]) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=ARROW, unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=4 << 20)
    return pj.read_json(pa.BufferReader(b"\n".join(texts)), read, options)


def source(work: Work) -> Result:
    """Volley's source alone in one process: consumed and decoded, written nowhere."""
    state = tempfile.mkdtemp(prefix="volley-bench-")
    opened = KafkaSource(work.brokers, work.topic, schema=SCHEMA).open(SourceContext(state))
    start = opened.initial_offset()
    splits = opened.splits(start, opened.latest_offset(start, work.rows, None))

    def run() -> dict[str, Any]:
        assert sum(batch.num_rows for split in splits for batch in opened.read(split)) == work.rows
        return {"splits": len(splits)}

    try:
        return measured("Volley's source alone, one process", work.rows, run)
    finally:
        shutil.rmtree(state)


def volley(work: Work) -> Result:
    """One job over the whole topic, in a session that has run a small one before."""
    folder = Path(tempfile.mkdtemp(prefix="volley-bench-"))
    checkpoints = folder / "checkpoints"

    def run(name: str, **settings: Any) -> Progress:
        config = IcebergSinkConfig(namespace=["b"], table=name, storage=IcebergStorage.Local(str(folder / "lake")))
        read = KafkaSource(work.brokers, work.topic, schema=SCHEMA, bounded=True, **settings)
        stream = Environment(checkpoint_dir=str(checkpoints)).from_source(read)
        return stream.to_sink(IcebergSink(config)).execute(name).progress

    def all_rows() -> dict[str, Any]:
        seen = run("benchmark", max_rows_per_epoch=work.rows_per_epoch)
        assert seen.rows == work.rows + work.before
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    try:
        run("warm_up", starting_offsets={work.topic: work.last})
        return measured(NATIVE, work.rows, all_rows, work.case, after(checkpoints, work.epochs_before))
    finally:
        shutil.rmtree(folder)


def one_run(peer: str, work: Work) -> Result:
    """One run of one peer, in a process of its own."""
    if peer != "runtime":
        return in_own_process("benchmarks.kafka_to_iceberg", peer, json.dumps(asdict(work)))
    return runtime(
        "kafka", schema=SCHEMA, last=work.last, case=work.case, epochs_before=work.epochs_before, **asdict(work)
    )


def run(arguments: list[str]) -> None:
    """Alternating runs against one broker, whose own work is not counted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kafka_to_iceberg", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=40_000_000, help="measured; a disk of 40 bytes a row")
    parser.add_argument("--before", type=int, default=4_000_000, help="rows of the same query before, to warm it up")
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
        topic = fill(kafka, asked.rows + asked.before)
        results = [
            one_run(peer, Work(kafka.bootstrap, topic, asked.rows, asked.before, epoch))
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
    runs = {"limit": limit, "source": source, "volley": volley}
    print_result(runs[sys.argv[1]](Work(**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()

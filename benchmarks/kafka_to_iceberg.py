"""Kafka JSON → Iceberg, beside Spark's Kafka source with Iceberg's Spark runtime, and client and pyarrow alone."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.lake import Lake
from benchmarks.measure import after
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import LIMIT, NATIVE, RUNTIME, aims, case_of
from benchmarks.run import Run
from tests.servers.kafka import Kafka
from volley import Environment, IcebergSink, KafkaSource, Progress, SourceContext

_PARTITIONS = 4
_SCHEMA = "id long, user long, kind string, country string, session string, amount double, at timestamp"
_ARROW = pa.schema(
    {
        **{"id": pa.int64(), "user": pa.int64(), "kind": pa.string(), "country": pa.string(), "session": pa.string()},
        **{"amount": pa.float64(), "at": pa.timestamp("us", "UTC")},
    }
)
_DISTINCT = 1_000_000
_TEXT_BYTES = 14 << 20


def _topic(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """One broker, whose CPU does not count, with a topic that has the rows of a run and of its warm-up."""
    kafka = Kafka(folder)
    try:
        kafka.start()
        topic = _fill(kafka, (asked.rows or 0) + asked.options["before"])
        yield {"brokers": kafka.bootstrap, "topic": topic}
    finally:
        kafka.stop()


def _fill(kafka: Kafka, rows: int) -> str:
    """A topic with events of about 142 bytes, lz4; after a million the same ones come again."""
    topic = kafka.topic(_PARTITIONS)
    events = (
        {"id": n, "user": n * 7919 % 1_000_000, "kind": "click", "country": "de", "session": f"s{n:09}"}
        | {"amount": n % 10_000 / 100, "at": f"2026-11-21T10:00:00.{n % 1_000_000:06}Z"}
        for n in range(min(rows, _DISTINCT))
    )
    texts = [json.dumps(event) for event in events]
    properties = {"compression.type": "lz4", "linger.ms": 20, "batch.size": 262_144}
    for begin in range(0, rows, _DISTINCT):
        messages = (
            {"value": text, "partition": number % _PARTITIONS} for number, text in enumerate(texts[: rows - begin])
        )
        kafka.produce(topic, messages, **properties, **{"queue.buffering.max.messages": _DISTINCT})
    return topic


@benchmark(
    rows=40_000_000,
    repeat=5,
    peers={
        "limit": "client and pyarrow, a process a core",
        "source": "Volley's source alone, one process",
        "volley": NATIVE,
        "runtime": RUNTIME,
    },
    options={"before": 4_000_000, "rows_per_epoch": (1_000_000, 4_000_000)},
    cases="rows_per_epoch",
    figures=(*RATES, "epochs", "files", "mb"),
    prepare=_topic,
    bounds=aims,
)
def kafka_to_iceberg(run: Run) -> None:
    """Kafka JSON → Iceberg: rows/s and rows per CPU-second, beside Iceberg's Spark runtime, client and pyarrow."""
    per_epoch = int(run.case)
    first, shown = per_epoch == run.options["rows_per_epoch"][0], replace(run, case=case_of(per_epoch))
    match run.peer:
        # The limit and the source have no epochs: one case is enough.
        case "limit" if first:
            _limit(run)
        case "source" if first:
            _source(run)
        case "volley":
            _volley(shown, per_epoch)
        case "runtime":
            given = {"schema": _SCHEMA, "last": _last(run), "epochs_before": run.options["before"] // per_epoch}
            settings = {**run.options, **given, "rows_per_epoch": per_epoch}
            run.results.extend(runtime(shown, runtime_job.kafka, **settings))


def _last(run: Run) -> dict[int, int]:
    """Where the rows of a warm-up begin."""
    each = (run.rows + run.options["before"]) // _PARTITIONS
    return {partition: max(0, each - 20_000) for partition in range(_PARTITIONS)}


def _limit(run: Run) -> None:
    """A process for each core: values joined, read as JSON, written as Parquet."""
    cores = os.cpu_count() or 1
    shares = [[partition for partition in range(_PARTITIONS) if partition % cores == core] for core in range(cores)]

    def work() -> None:
        assert sum(pool.map(_consumed, [run] * cores, shares)) == run.rows

    # Forked, as Spark's workers are, with everything imported.
    with ProcessPoolExecutor(cores, multiprocessing.get_context("fork")) as pool:
        run.measure(work, case=LIMIT)


def _consumed(run: Run, partitions: list[int]) -> int:
    """Write the rows at the start of these partitions to a file; returns their number."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": run.options["brokers"], "group.id": "limit"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1})
    rows = 0
    with closing(consumer), pq.ParquetWriter(run.folder / f"{partitions[0]}.parquet", _ARROW) as writer:
        for partition in partitions:
            consumer.assign([TopicPartition(run.options["topic"], partition, 0)])
            left, texts, size = run.rows // _PARTITIONS, list[bytes](), 0
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
    options = pj.ParseOptions(explicit_schema=_ARROW, unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=4 << 20)
    return pj.read_json(pa.BufferReader(b"\n".join(texts)), read, options)


def _source(run: Run) -> None:
    """Volley's source alone in one process: consumed and decoded, written nowhere."""
    source = KafkaSource(run.options["brokers"], run.options["topic"], schema=_SCHEMA)
    opened = source.open(SourceContext(str(run.folder)))
    start = opened.initial_offset()
    splits = opened.splits(start, opened.latest_offset(start, run.rows, None))

    def work() -> None:
        assert sum(batch.num_rows for split in splits for batch in opened.read(split)) == run.rows

    run.measure(work, case="")


def _volley(run: Run, per_epoch: int) -> None:
    """Run one job over the whole topic, in a session that a small one has warmed up."""
    checkpoints, (topic, before) = run.folder / "checkpoints", (run.options["topic"], run.options["before"])

    def job(name: str, **settings: Any) -> Progress:
        read = KafkaSource(run.options["brokers"], topic, schema=_SCHEMA, bounded=True, **settings)
        stream = Environment(checkpoint_dir=str(checkpoints)).from_source(read)
        return stream.to_sink(IcebergSink(replace(Lake(run.folder).config, table=name))).execute(name).progress

    def work() -> dict[str, Any]:
        seen = job("benchmark", max_rows_per_epoch=per_epoch)
        assert seen.rows == run.rows + before
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    job("warm_up", starting_offsets={topic: _last(run)})
    run.measure(work, start=after(checkpoints, before // per_epoch))

"""Kafka JSON → Iceberg, beside Spark's Kafka source with Iceberg's Spark runtime, and client and pyarrow alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, Run, benchmark
from benchmarks.lake import Lake
from benchmarks.peers import runtime
from benchmarks.peers.plain import limit
from benchmarks.rows import AIMS, NATIVE, RUNTIME, case_of
from tests.servers.kafka import Kafka
from tests.servers.shared import own_server
from volley import KafkaSource, Progress, SourceContext
from volley.types.arrow import arrow_schema
from volley.types.schemas import check_schema

_PARTITIONS = 4
_SCHEMA = "id long, user long, kind string, country string, session string, amount double, at timestamp"
_ARROW = arrow_schema(check_schema(_SCHEMA))
_DISTINCT = 1_000_000
_TEXT_BYTES = 14 << 20
# How a producer of many messages compresses them.
BATCHED = {"compression.type": "lz4", "linger.ms": 20, "batch.size": 262_144}


def _topic(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """One broker, whose CPU does not count, with a topic that has the rows of a run and of its warm-up.

    They are events of about 142 bytes; after a million the same ones come again.
    """
    rows = asked.rows + asked.options["before"]
    events = (
        {"id": n, "user": n * 7919 % 1_000_000, "kind": "click", "country": "de", "session": f"s{n:09}"}
        | {"amount": n % 10_000 / 100, "at": f"2026-11-21T10:00:00.{n % 1_000_000:06}Z"}
        for n in range(min(rows, _DISTINCT))
    )
    messages = [{"value": json.dumps(event), "partition": number % _PARTITIONS} for number, event in enumerate(events)]
    with own_server(Kafka(folder)) as kafka:
        topic = kafka.topic(_PARTITIONS)
        for begin in range(0, rows, _DISTINCT):
            kafka.produce(topic, messages[: rows - begin], **BATCHED)
        yield {"brokers": kafka.bootstrap, "topic": topic}


@benchmark(
    rows=40_000_000,
    repeat=5,
    peers={
        "limit": "client and pyarrow, a process a core",
        "source": "Volley's source alone, one process",
        "volley": NATIVE,
        "runtime": RUNTIME,
    },
    options={"before": 4_000_000},
    cases={"rows_per_epoch": (1_000_000, 4_000_000)},
    case="",
    figures=(*RATES, "epochs", "files", "mb"),
    prepare=_topic,
    bounds=AIMS,
)
def kafka_to_iceberg(run: Run) -> None:
    """Kafka JSON → Iceberg: rows/s and rows per CPU-second, beside Iceberg's Spark runtime, client and pyarrow."""
    per_epoch = int(run.case)
    first, shown = per_epoch == run.options["rows_per_epoch"][0], replace(run, case=case_of(per_epoch))
    match run.peer:
        # The limit and the source have no epochs: one case is enough.
        case "limit" if first:
            cores = os.cpu_count() or 1
            limit(run, _consumed, [range(core, _PARTITIONS, cores) for core in range(cores)])
        case "source" if first:
            _source(replace(run, case=""))
        case "volley":
            _job(run, "warm_up", starting_offsets={run.options["topic"]: _last(run)})
            job = partial(_job, run, "benchmark", max_rows_per_epoch=per_epoch)
            shown.measure_job(job, run.options["before"], per_epoch)
        case "runtime":
            given = {"schema": _SCHEMA, "last": _last(run), "rows_per_epoch": per_epoch}
            run.results.extend(runtime.apart(shown, runtime.kafka, **{**run.options, **given}))


def _last(run: Run) -> dict[int, int]:
    """Where the rows of a warm-up begin."""
    each = (run.rows + run.options["before"]) // _PARTITIONS
    return {partition: max(0, each - 20_000) for partition in range(_PARTITIONS)}


def _consumed(run: Run, partitions: range) -> int:
    """Read the values at the start of these partitions as JSON, write them to a file; return their number."""
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

    run.measure_scan(lambda: (batch for split in splits for batch in opened.read(split)))


def _job(run: Run, name: str, **settings: Any) -> Progress:
    options = run.options
    source = KafkaSource(options["brokers"], options["topic"], schema=_SCHEMA, bounded=True, **settings)
    lake = Lake(run.folder)
    return lake.fill(name, lake.environment().from_source(source))

"""What the tuning presets do: one steady stream into a table under each of them, their times and sizes scaled down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from benchmarks.benchmark import benchmark
from benchmarks.lake import Lake
from benchmarks.run import Run
from volley import Environment, IcebergSink, Metrics, Reader, Source, SourceContext
from volley.iceberg.config import Tuning
from volley.source import Offset

_ROWS_PER_SECOND = 100_000
_SECONDS = 20.0
# The first epoch begins at once, the second at the next tick of Spark's clock; whole intervals follow.
_SKIPPED = 2
_BATCH = 100_000
_SCHEMA = pa.schema({"id": pa.int64(), "arrived": pa.timestamp("us"), "payload": pa.binary(24)})


@dataclass(frozen=True)
class Steady(Source):
    """Rows that arrive one by one at a steady rate, from `began` on, and say when they did.

    Args:
        began: When the first row arrives, in seconds since 1970.
        rows_per_second: How many.
    """

    began: float
    rows_per_second: int

    bounded = False

    @property
    def identity(self) -> str:
        return f"steady:{self.rows_per_second}"

    def open(self, context: SourceContext) -> Reader:
        return _SteadyReader(self.began, self.rows_per_second)


@dataclass(frozen=True)
class _SteadyReader(Reader):
    began: float
    rows_per_second: int

    schema = _SCHEMA

    def initial_offset(self) -> Offset:
        return {"rows": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        return {"rows": max(int(start["rows"]), int((time.time() - self.began) * self.rows_per_second))}

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, int]]:
        half = (int(start["rows"]) + int(end["rows"])) // 2
        return [(int(start["rows"]), half), (half, int(end["rows"]))]

    def read(self, split: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(split[0])
        for first in range(*split, _BATCH):
            ids = np.arange(first, min(first + _BATCH, split[1]))
            arrived = ((self.began + ids / self.rows_per_second) * 1e6).astype(np.int64)
            payload = pa.py_buffer(random.bytes(24 * len(ids)))
            columns = [pa.array(ids), pa.array(arrived).cast(pa.timestamp("us"))]
            columns.append(pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), len(ids), [None, payload]))
            yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


@benchmark(
    peers=("low_latency", "balanced", "high_throughput"),
    # Multiplies the presets' intervals and file sizes.
    options={"scale": 0.1},
    figures=(
        *("interval", "latency", "longest", "files", "mb", "largest", "batch", "rows", "commits"),
        *("cpu_us_a_row", "worker_mb", "jvm_mb", "driver_mb"),
    ),
    plots=("latency", "mb", "cpu_us_a_row"),
)
def presets(run: Run) -> None:
    """Low_latency, balanced and high_throughput on a steady stream: interval, latency, files, batches, memory."""
    lake, scale = Lake(run.folder), run.options["scale"]
    config = lake.config.with_tuning(cast(Tuning, run.peer))
    assert config.flush_interval is not None
    interval = config.flush_interval * scale
    scaled = replace(config, flush_interval=interval, target_file_size_mb=config.target_file_size_mb * scale)

    def job(table: str, seconds: float, epochs: int) -> Metrics:
        sink = IcebergSink(replace(scaled, table=table))
        environment = Environment("local[2]", checkpoint_dir=f"{lake.folder}/checkpoints")
        running = environment.from_source(Steady(time.time(), _ROWS_PER_SECOND)).to_sink(sink).start(table)
        running.wait(seconds)
        while running.progress.epochs < epochs:
            assert not running.wait(0.1), running.exception
        running.stop()
        return running.metrics

    def work() -> dict[str, Any]:
        metrics = job("t", _SECONDS, _SKIPPED + 2)
        return {"batch": metrics.avg_batch_size(), "rows": metrics.records_written, **_seen(lake.table())}

    # The session and the workers are there before the first row arrives.
    job("warm", 0.0, 1)
    figures = run.measure(work)
    figures["cpu_us_a_row"] = 1e6 / figures["rows_per_cpu_second"]


def _seen(table: Table) -> dict[str, float]:
    """Intervals and latencies in seconds (the longest from a file's first row), files and their sizes."""
    commits = [(each, _files(table, each)) for each in table.snapshots()]
    intervals = [
        (new.timestamp_ms - old.timestamp_ms) / 1000 for (old, _), (new, _) in pairwise(commits[_SKIPPED - 1 :])
    ]
    waits = [
        (snapshot.timestamp_ms / 1000 - low, snapshot.timestamp_ms / 1000 - high, rows)
        for snapshot, files in commits[_SKIPPED:]
        for low, high, rows, _ in files
    ]
    files = [each for _, found in commits[_SKIPPED:] for each in found]
    return {
        "commits": len(commits),
        "interval": sum(intervals) / len(intervals),
        # Rows arrive evenly, so that the mean of a file is the middle of its first and its last.
        "latency": sum((first + last) / 2 * rows for first, last, rows in waits) / sum(rows for *_, rows in waits),
        "longest": max(first for first, *_ in waits),
        "files": len(files) / len(intervals),
        "mb": sum(size for *_, size in files) / len(files) / 2**20,
        "largest": max(size for *_, size in files) / 2**20,
    }


def _files(table: Table, snapshot: Snapshot) -> list[tuple[float, float, int, int]]:
    """When the first and the last row of each file that a snapshot added arrived; its rows and its bytes."""
    arrived = table.schema().find_field("arrived").field_id

    def at(bounds: dict[int, bytes]) -> float:
        return int.from_bytes(bounds[arrived], "little") / 1e6

    return [
        (at(file.lower_bounds), at(file.upper_bounds), file.record_count, file.file_size_in_bytes)
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for file in (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))
    ]

"""What the tuning presets do: one steady stream into a table under each of them, their times and sizes scaled down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.benchmark import Run, benchmark
from benchmarks.lake import Lake, added_files
from volley import IcebergSink, Metrics, Reader, Source, SourceContext
from volley.contracts.source import Offset
from volley.iceberg.settings import Tuning

_SECONDS = 20.0
# The first epoch begins at once, the second at the next tick of Spark's clock; whole intervals follow.
_SKIPPED = 2
_RATE = _BATCH = 100_000
_SCHEMA = pa.schema({"id": pa.int64(), "arrived": pa.timestamp("us"), "payload": pa.binary(24)})


@dataclass(frozen=True)
class Steady(Source):
    """Rows that arrive one by one at a steady rate, from a second since 1970 on, and say when they did."""

    began: float

    bounded = False
    identity = "steady"

    def open(self, context: SourceContext) -> Reader:
        return _SteadyReader(self.began)


@dataclass(frozen=True)
class _SteadyReader(Reader):
    began: float

    schema = _SCHEMA

    def initial_offset(self) -> Offset:
        return {"rows": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        return {"rows": max(int(start["rows"]), int((time.time() - self.began) * _RATE))}

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, int]]:
        half = (int(start["rows"]) + int(end["rows"])) // 2
        return [(int(start["rows"]), half), (half, int(end["rows"]))]

    def read(self, split: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(split[0])
        for first in range(*split, _BATCH):
            ids = np.arange(first, min(first + _BATCH, split[1]))
            arrived = ((self.began + ids / _RATE) * 1e6).astype("datetime64[us]")
            random_bytes = [None, pa.py_buffer(random.bytes(24 * len(ids)))]
            payload = pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), len(ids), random_bytes)
            yield pa.record_batch([ids, arrived, payload], schema=_SCHEMA)


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
        rows = lake.environment("local[2]").from_source(Steady(time.time()))
        running = rows.to_sink(IcebergSink(replace(scaled, table=table))).start(table)
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
    run.measure(work)


def _seen(table: Table) -> dict[str, float]:
    """Intervals and latencies in seconds (the longest from a file's first row), files and their sizes in MB."""
    commits = [(snapshot.timestamp_ms / 1_000, added_files(table, snapshot)) for snapshot in table.snapshots()]
    intervals = np.diff([at for at, _ in commits[_SKIPPED - 1 :]])
    files = [(at, file) for at, files in commits[_SKIPPED:] for file in files]
    arrived = table.schema().find_field("arrived").field_id

    def waited(at: float, bounds: dict[int, bytes]) -> float:
        return at - int.from_bytes(bounds[arrived], "little") / 1e6

    first = np.array([waited(at, file.lower_bounds) for at, file in files])
    last = np.array([waited(at, file.upper_bounds) for at, file in files])
    sizes = np.array([file.file_size_in_bytes for _, file in files]) / 2**20
    # Rows arrive evenly, so that the mean of a file is the middle of its first and its last.
    latency = np.average((first + last) / 2, weights=[file.record_count for _, file in files])
    figures = {"interval": intervals.mean(), "latency": latency, "longest": first.max(), "mb": sizes.mean()}
    figures |= {"largest": sizes.max(), "files": len(files) / len(intervals)}
    return {"commits": len(commits), **{name: float(value) for name, value in figures.items()}}

"""What the tuning presets do: one steady stream into a table under each of them, their times and sizes scaled down."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.report import Report
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, SplitSource
from volley.iceberg.config import TUNINGS
from volley.source import Offset

SUMMARY = "low_latency, balanced and high_throughput on a steady stream: interval, latency, files, batches, memory"

_ROWS_PER_SECOND = 100_000
_BATCH = 50_000
_SCHEMA = pa.schema({"id": pa.int64(), "arrived": pa.timestamp("us"), "payload": pa.binary(24)})


@dataclass(frozen=True)
class Steady(SplitSource):
    """Rows that arrive one by one at a steady rate, from `began` on, and say when they did.

    Args:
        began: When the first row arrives, in seconds since 1970.
        rows_per_second: How many.
    """

    began: float
    rows_per_second: int

    bounded = False
    schema = _SCHEMA

    @property
    def identity(self) -> str:
        return f"steady:{self.rows_per_second}"

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


def run(arguments: list[str]) -> None:
    """Each preset for some of its intervals, in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks presets", description=SUMMARY)
    parser.add_argument("--scale", type=float, default=0.1, help="of the presets' intervals and file sizes")
    asked = parser.parse_args(arguments)
    columns = "commit every s", "arrival to visible s, mean", "longest", "files a commit", "MB a file", "rows a batch"
    report = Report("presets", "preset", *columns, "worker peak MB", "CPU-s a million rows")
    for preset in TUNINGS:
        seen = in_own_process("benchmarks.presets", preset, str(asked.scale))
        figures = [f"{seen.extra[name]:,.1f}" for name in ("interval", "latency", "longest", "files", "mb")]
        cpu = f"{seen.cpu_seconds / seen.rows * 1e6:.2f}"
        report.add(seen, preset, *figures, f"{seen.extra['batch']:,.0f}", f"{seen.worker_mb:,.0f}", cpu)
    report.print()


def steady(preset: str, scale: float) -> Result:
    """A job under one preset, for at least two of its intervals after the first."""
    with tempfile.TemporaryDirectory(prefix="volley-bench-") as folder:
        config = IcebergSinkConfig(namespace="b", table="t", storage=IcebergStorage.Local(f"{folder}/lake"))
        config = config.with_tuning(preset)
        assert config.flush_interval is not None
        interval = config.flush_interval * scale
        scaled = replace(config, flush_interval=interval, target_file_size_mb=config.target_file_size_mb * scale)
        # The session and the workers are there before the first row arrives.
        _start(replace(scaled, table="warm"), folder, 0.0)

        def work() -> dict[str, Any]:
            job_metrics = _start(scaled, folder, max(20.0, 2.3 * interval.total_seconds()))
            return {"batch": job_metrics.avg_batch_size(), **_seen(_load(Path(folder)))}

        result = measured(preset, 0, work)
        return replace(result, rows=result.extra["rows"])

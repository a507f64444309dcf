"""What each compression costs the sink, what it saves on disk, and what a scan takes after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.benchmark import benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import measured
from benchmarks.report import Report
from benchmarks.write import batches
from volley.iceberg.config import Compression

SUMMARY = "none, snappy, gzip, lz4, zstd, brotli: rows/s, rows per CPU-second, bytes a row, a scan afterwards"

_CODECS = ("none", "snappy", "gzip", "lz4", "zstd", "brotli")
_FILES = 16


@dataclass(frozen=True)
class Cost:
    """The medians.

    Args:
        codec: The compression.
        rows_per_second: Written.
        rows_per_cpu_second: Written.
        bytes_per_row: On disk.
        read_rows_per_second: By pyiceberg afterwards.
    """

    codec: str
    rows_per_second: float
    rows_per_cpu_second: float
    bytes_per_row: float
    read_rows_per_second: float


def run(arguments: list[str]) -> None:
    """Each codec in turn, in this process: the sink alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compressions", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=1_000_000, help="a multiple of 16")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args(arguments)
    folder = events_folder(asked.rows, asked.rows // _FILES)
    rows, schema = list(batches(folder)), pq.read_schema(folder / "0000.parquet")
    found = [_cost(codec, rows, schema) for _ in range(asked.repeat) for codec in _CODECS]
    report = Report("compressions", "codec", "rows/s", "rows per CPU-s", "bytes a row", "rows/s read")
    for codec in _CODECS:
        cost = _median([each for each in found if each.codec == codec])
        report.add(cost, codec, *_cells(cost))
    report.print()


def _cost(codec: str, rows: list[pa.RecordBatch], schema: pa.Schema) -> Cost:
    with Lake.temporary() as lake:

        def work() -> dict[str, Any]:
            write_epoch(lake.config.with_compression(cast(Compression, codec)), 0, rows, schema)
            return {}

        written, table = measured(codec, sum(batch.num_rows for batch in rows), work), lake.table()
        began = time.perf_counter()
        assert table.scan().to_arrow().num_rows == written.rows
        seconds = time.perf_counter() - began
        size = sum(each.file.file_size_in_bytes for each in table.scan().plan_files())
    speed, economy = written.rows_per_second, written.rows_per_cpu_second
    return Cost(codec, speed, economy, size / written.rows, written.rows / seconds)


def _median(costs: list[Cost]) -> Cost:
    names = ("rows_per_second", "rows_per_cpu_second", "bytes_per_row", "read_rows_per_second")
    return Cost(costs[0].codec, *(statistics.median(getattr(cost, name) for cost in costs) for name in names))


def _cells(cost: Cost) -> list[str]:
    speeds = f"{cost.rows_per_second:,.0f}", f"{cost.rows_per_cpu_second:,.0f}"
    return [*speeds, f"{cost.bytes_per_row:.1f}", f"{cost.read_rows_per_second:,.0f}"]

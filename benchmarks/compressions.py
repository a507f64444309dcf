"""What each compression costs the sink, what it saves on disk, and what a scan takes after it."""

from __future__ import annotations

import time
from typing import cast

from benchmarks.benchmark import benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.run import Run
from volley.iceberg.config import Compression


@benchmark(
    rows=1_000_000,
    repeat=5,
    peers=("none", "snappy", "gzip", "lz4", "zstd", "brotli"),
    figures=("rows_per_second", "rows_per_cpu_second", "bytes_per_row", "read_rows_per_second"),
    plots=("rows_per_cpu_second", "bytes_per_row"),
)
def compressions(run: Run) -> None:
    """None, snappy, gzip, lz4, zstd, brotli: rows/s, rows per CPU-second, bytes a row, a scan afterwards."""
    folder = events_folder(run.rows, run.rows // FILES)
    rows = list(batches(folder))
    lakes = warm_up, lake = Lake(run.folder / "warm_up"), Lake(run.folder)
    first, config = (each.config.with_compression(cast(Compression, run.peer)) for each in lakes)
    write_epoch(first, 0, rows[:1])
    warm_up.table().scan().to_arrow()
    figures = run.measure(lambda: write_epoch(config, 0, rows))
    scan = lake.table().scan()
    figures["bytes_per_row"] = sum(each.file.file_size_in_bytes for each in scan.plan_files()) / run.rows
    began = time.perf_counter()
    assert scan.to_arrow().num_rows == run.rows
    figures["read_rows_per_second"] = run.rows / (time.perf_counter() - began)

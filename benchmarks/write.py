"""Volley's sink writes an epoch: beside a whole job and the peers, in each compression, with files closed at a size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.benchmark import RATES, Limit, Run, benchmark, within
from benchmarks.events import FILES, batches, events_folder
from benchmarks.files_to_iceberg import PEERS, copy
from benchmarks.lake import Lake, write_epoch
from benchmarks.rows import NATIVE, case_of

_MB = 1 << 20
_SINK = "Volley's sink alone, one process"


def write(run: Run) -> None:
    """One epoch of so many rows: the sink alone, a whole job, pyiceberg, Iceberg's Spark runtime, pyarrow."""
    named = replace(run, case=case_of(run.rows))
    if run.peer == "sink":
        _sink(named, lambda: batches(_folder(run)))
    else:
        copy(named, run.rows // FILES, run.rows)


for _size, _rows in {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}.items():
    benchmark(
        f"write_{_size}",
        rows=_rows,
        repeat=5,
        peers={"sink": _SINK, **PEERS},
        figures=(*RATES, "epochs", "files", "mb"),
        bounds=within(*(Limit("rows_per_second", "rows/s", 50_000, of=peer) for peer in (_SINK, NATIVE))),
    )(write)


@benchmark(
    rows=1_000_000,
    repeat=5,
    peers=("none", "snappy", "gzip", "lz4", "zstd", "brotli"),
    figures=("rows_per_second", "rows_per_cpu_second", "bytes_per_row", "read_rows_per_second"),
    plots=("rows_per_cpu_second", "bytes_per_row"),
)
def compressions(run: Run) -> None:
    """None, snappy, gzip, lz4, zstd, brotli: rows/s, rows per CPU-second, bytes a row, a scan afterwards."""
    rows = list(batches(_folder(run)))
    figures = _sink(run, lambda: rows, compression=run.peer)
    Lake(run.folder / "warm_up").table().scan().to_arrow()
    scan, began = Lake(run.folder).table().scan(), time.perf_counter()
    assert scan.to_arrow().num_rows == run.rows
    figures["read_rows_per_second"] = run.rows / (time.perf_counter() - began)
    figures["bytes_per_row"] = sum(_sizes(run)) / run.rows


@benchmark(
    rows=4_000_000,
    peers=("1 MB", "4 MB", "16 MB", "64 MB", "10,000 rows", "100,000 rows", "1,000,000 rows"),
    figures=("rows_per_second", "rows_per_cpu_second", "files", "off_percent"),
    bounds=within(Limit("off_percent", "% off its target", most=10)),
)
def rolling(run: Run) -> None:
    """Files rolled by size or by rows: rows/s, files, how far the largest is from its target."""
    number, unit = run.peer.replace(",", "").split()
    limit = {"target_file_size_mb": float(number)} if unit == "MB" else {"max_records": int(number)}
    rows = list(batches(_folder(run)))
    figures = _sink(run, lambda: rows, **{"target_file_size_mb": float(_MB), **limit})
    sizes = [size / _MB for size in _sizes(run)]
    # The smallest is the last one, which has the rows that are left.
    full = sorted(sizes)[1:] if unit == "MB" else []
    figures["files"] = len(sizes)
    figures["off_percent"] = max((abs(size / float(number) - 1) * 100 for size in full), default=None)


def _folder(run: Run) -> Path:
    return events_folder(run.rows, run.rows // FILES)


def _sink(run: Run, rows: Callable[[], Iterable[pa.RecordBatch]], **settings: Any) -> dict[str, Any]:
    """Measure writer and committer without Spark, after an epoch of one batch into another table."""
    write_epoch(replace(Lake(run.folder / "warm_up").config, **settings), 0, [next(iter(rows()))])
    return run.measure(lambda: write_epoch(replace(Lake(run.folder).config, **settings), 0, rows()))


def _sizes(run: Run) -> list[int]:
    """Bytes of each file of the run's table."""
    return [task.file.file_size_in_bytes for task in Lake(run.folder).table().scan().plan_files()]

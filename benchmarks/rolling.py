"""What closing files at a target size costs one task, and how near to their target they come."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.events import events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import measured
from benchmarks.report import Figure, Report
from benchmarks.write import batches
from volley import IcebergSinkConfig

SUMMARY = "files rolled by size or by rows: rows/s, files, how far the largest is from its target"

_FILES = 16
_MB = 1 << 20
_TOLERANCE_PERCENT = 10


@dataclass(frozen=True)
class Rolled:
    """One way to roll.

    Args:
        target: The size or the rows of a file.
        rows_per_second: Written.
        rows_per_cpu_second: Written.
        files: Data files.
        off_percent: How far a full file is from its target size, at most; None if rows were the target.
    """

    target: str
    rows_per_second: float
    rows_per_cpu_second: float
    files: int
    off_percent: float | None


def run(arguments: list[str]) -> None:
    """Each target once, in this process: the sink alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks rolling", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=4_000_000, help="a multiple of 16")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--max-records", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    asked = parser.parse_args(arguments)
    folder = events_folder(asked.rows, asked.rows // _FILES)
    rows, schema = list(batches(folder)), pq.read_schema(folder / "0000.parquet")
    report = Report("rolling", "a file has", "rows/s", "rows per CPU-s", "files", "off by, at most")
    found = [_rolled(rows, schema, megabytes=size) for size in asked.megabytes]
    found += [_rolled(rows, schema, max_records=most) for most in asked.max_records]
    for each in found:
        off = "–" if each.off_percent is None else f"{each.off_percent:.1f} %"
        speeds = f"{each.rows_per_second:,.0f}", f"{each.rows_per_cpu_second:,.0f}"
        report.add(each, each.target, *speeds, f"{each.files:,}", off)
        if each.off_percent is not None:
            report.figure(Figure.below(f"off target, {each.target}", each.off_percent, _TOLERANCE_PERCENT, "%"))
    report.print()


def _rolled(
    rows: list[pa.RecordBatch], schema: pa.Schema, megabytes: float = 1 << 20, max_records: int | None = None
) -> Rolled:
    with Lake.temporary() as lake:
        config = replace(lake.config, target_file_size_mb=megabytes, max_records=max_records)
        written = measured("", sum(batch.num_rows for batch in rows), lambda: _write(config, rows, schema))
        sizes = [each.file.file_size_in_bytes / _MB for each in lake.table().scan().plan_files()]
    # The last one, the smallest, is as large as the rows that are left.
    full = [] if max_records else sorted(sizes)[1:]
    off = max((abs(size / megabytes - 1) * 100 for size in full), default=None)
    target = f"{max_records:,} rows" if max_records else f"{megabytes:g} MB"
    return Rolled(target, written.rows_per_second, written.rows_per_cpu_second, len(sizes), off)


def _write(config: IcebergSinkConfig, rows: list[pa.RecordBatch], schema: pa.Schema) -> dict[str, Any]:
    write_epoch(config, 0, rows, schema)
    return {}

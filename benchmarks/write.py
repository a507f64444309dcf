"""Writing so many rows in one epoch: Volley's sink in this process, a whole job, and the peers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.comparison import case_of, compared, show
from benchmarks.events import events_folder
from benchmarks.files_to_iceberg import Sizes, one_run
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing
from benchmarks.report import Figure

SUMMARY = "one epoch of so many rows: the sink alone, a whole job, pyiceberg, Iceberg's Spark runtime, pyarrow"

_FILES = 16
_BATCH = 10_000
_SEED_ROWS_PER_SECOND = 50_000
_SINK = "Volley's sink alone, one process"


def batches(folder: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a folder's files, as a source hands them over."""
    for path in sorted(folder.glob("*.parquet")):
        yield from pq.ParquetFile(path).iter_batches(_BATCH, use_threads=False)


def sink(rows: int) -> Result:
    """Writer and committer without Spark: what the sink itself can do."""
    folder = events_folder(rows, rows // _FILES)
    schema = pq.read_schema(folder / "0000.parquet")
    with Lake.temporary() as lake:

        def work() -> dict[str, Any]:
            write_epoch(lake.config, 0, batches(folder), schema)
            return {}

        write_epoch(Lake(lake.folder / "warm_up").config, 0, [next(batches(folder))], schema)
        return measured(_SINK, rows, work, case_of(rows))


def run(arguments: list[str]) -> None:
    """Alternating runs, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks write_…", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=1_000_000, help="a multiple of 16")
    parser.add_argument("--repeat", type=int, default=5, help="alternating runs of each peer")
    parser.add_argument("--title", default="write", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    skipped, rows = missing(), asked.rows
    peers = [peer for peer in ("limit", "append", "sink", "volley", "runtime") if not (peer == "runtime" and skipped)]
    results = [_one_run(peer, rows) for _ in range(asked.repeat) for peer in peers]
    report = show(asked.title, results, skipped)
    for row in compared(results):
        if row.runs[0].name.startswith("Volley"):
            report.figure(Figure.at_least(f"written, {row.what}", row.speed, _SEED_ROWS_PER_SECOND, "rows/s"))
    report.print()


def _one_run(peer: str, rows: int) -> Result:
    if peer == "sink":
        return in_own_process("benchmarks.write", str(rows))
    return one_run(peer, Sizes(rows, rows // _FILES, rows))


if __name__ == "__main__":
    print_result(sink(int(sys.argv[1])))

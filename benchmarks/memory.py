"""Whether cost a row and memory stay what they are while a job grows from a million rows to fifty."""

from __future__ import annotations

import argparse
import statistics

from benchmarks.comparison import Row, compared
from benchmarks.files_to_iceberg import Sizes, one_run
from benchmarks.peers.runtime import missing
from benchmarks.report import Report

SUMMARY = "files → Iceberg from 1 M to 50 M rows: CPU a row, peak memory of workers, JVM and driver"

_ROWS_PER_FILE = 500_000


def run(arguments: list[str]) -> None:
    """Each size with each peer, in alternating runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory", description=SUMMARY)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000, 20_000_000, 50_000_000])
    parser.add_argument("--rows-per-file", type=int, default=_ROWS_PER_FILE)
    parser.add_argument("--rows-per-epoch", type=int, default=1_000_000)
    parser.add_argument("--before", type=int, default=4_000_000, help="rows of the same query before, to warm it up")
    parser.add_argument("--repeat", type=int, default=1)
    asked = parser.parse_args(arguments)
    peers = ["volley", *([] if missing() else ["runtime"])]
    sizes = asked.rows_per_file, asked.rows_per_epoch, asked.before
    turns = [(peer, rows) for rows in asked.rows for peer in peers] * asked.repeat
    results = [one_run(peer, Sizes(rows, *sizes)) for peer, rows in turns]
    report = Report("memory", "what", "rows", "CPU µs a row", "worker MB", "JVM MB", "driver MB")
    for row in compared(results):
        report.row(*_cells(row))
    for result in results:
        report.note(result)
    report.print()


def _cells(row: Row) -> list[str]:
    cost = statistics.median(1e6 / run.rows_per_cpu_second for run in row.runs)
    return [row.what, f"{row.runs[0].rows:,}", f"{cost:.2f}", *row.memory]

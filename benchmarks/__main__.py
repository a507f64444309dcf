"""``python -m benchmarks [NAME] [--rows N] [--repeat N]``: run one benchmark, or list them."""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result

NAMES = ("files_to_iceberg",)


def show(name: str, results: list[Result]) -> None:
    """A table of medians with their spread, then one line of JSON for each run."""
    grid = Table("what", "runs", "rows/s", "min–max", "rows per CPU-s", "CPU-s", "worker peak MB", title=name)
    for what in dict.fromkeys(result.name + _epochs(result) for result in results):
        same = [result for result in results if result.name + _epochs(result) == what]
        speeds = [result.rows_per_second for result in same]
        grid.add_row(
            what,
            str(len(same)),
            f"{statistics.median(speeds):,.0f}",
            f"{min(speeds):,.0f}–{max(speeds):,.0f}",
            f"{statistics.median(result.rows_per_cpu_second for result in same):,.0f}",
            f"{statistics.median(result.cpu_seconds for result in same):.1f}",
            f"{max(result.worker_mb for result in same):,.0f}",
        )
    Console().print(grid)
    for result in results:
        print(json.dumps(asdict(result)))


def _epochs(result: Result) -> str:
    return f", {result.extra['epochs']} epochs" if "epochs" in result.extra else ""


def main() -> None:
    """Run what is asked for."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description="Run one benchmark.")
    arguments.add_argument("name", nargs="?", choices=NAMES, help="leave out to list them")
    arguments.add_argument("--rows", type=int, default=8_000_000)
    arguments.add_argument("--repeat", type=int, default=3, help="alternating runs of each peer")
    asked = arguments.parse_args()
    if asked.name is None:
        for name in NAMES:
            print(f"{name}: {importlib.import_module(f'benchmarks.{name}').SUMMARY}")
        return
    show(asked.name, importlib.import_module(f"benchmarks.{asked.name}").runs(asked.rows, asked.repeat))


if __name__ == "__main__":
    main()

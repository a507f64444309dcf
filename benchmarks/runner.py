"""Runs a benchmark: the peers in turn, each run in a process of its own; keeps what they find."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.benchmark import Benchmark, Run
from benchmarks.page import table
from benchmarks.rows import in_rows
from benchmarks.run import Result

KEPT = Path(".volley") / "bench"


def run(benchmark: Benchmark, kept: Path = KEPT) -> list[Result]:
    """Run all peers in all cases, `repeat` times in turn; keep what they find for the page, and show it."""
    results: list[Result] = []
    # What the runs share is there for as long as they run.
    prepared = contextmanager(benchmark.prepare)
    with tempfile.TemporaryDirectory(prefix="volley-bench-") as folder, prepared(benchmark, Path(folder)) as shared:
        options, rows = {**benchmark.options, **shared}, benchmark.rows
        cases = options[benchmark.cases] if benchmark.cases else [""]
        turns = [Run(*peer, rows, case, options) for peer in benchmark.peers.items() for case in cases]
        for number in range(benchmark.repeat):
            for turn in turns:
                what = " ".join(str(part) for part in (benchmark.name, turn.peer, turn.case) if part != "")
                print(f"{what}: run {number + 1} of {benchmark.repeat}", file=sys.stderr)
                results += turn.apart(benchmark.function)
    keep(benchmark, results, kept)
    show(benchmark, results)
    return results


def show(benchmark: Benchmark, results: list[Result]) -> None:
    """Print the table, and whether each bound is kept."""
    rows = in_rows(results, benchmark.case)
    heads, lines = table(benchmark, rows)
    shown = Table(*heads, title=benchmark.name)
    for line in lines:
        shown.add_row(*line)
    # Outside of a terminal the table takes the width it needs.
    Console(width=None if sys.stdout.isatty() else 200).print(shown)
    for bound in benchmark.bounds_of(rows):
        print(bound)


def keep(benchmark: Benchmark, results: list[Result], kept: Path = KEPT) -> None:
    """Write what the page is made of: the machine, then each result, a line of JSON each."""
    kept.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(line) for line in (this_machine(), *map(asdict, results))]
    (kept / f"{benchmark.name}.jsonl").write_text("\n".join([*lines, ""]))


def this_machine() -> dict[str, str]:
    """What a result was measured on: the day, cores, memory and versions; neither names nor paths."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyiceberg", "pyarrow")},
    }

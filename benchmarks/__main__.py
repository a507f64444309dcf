"""``python -m benchmarks [NAME | all | report] [options]``: run one or all, list them, make the page.

Each run has a process of its own, the peers take turns, and what they find is kept for the page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.benchmark import BENCHMARKS, Benchmark, Run
from benchmarks.page import table, write_page
from benchmarks.rows import in_rows
from benchmarks.run import Result

KEPT = Path(".volley") / "bench"
# The modules with benchmarks, in the order of the page.
_MODULES = (
    *("files_to_iceberg", "kafka_to_iceberg", "registry_to_iceberg", "write", "read", "epochs", "start_up", "frames"),
    *("expressions", "maintenance", "commits", "deletes", "upsert", "large_upsert", "row_ids", "sequence", "history"),
    *("table_source", "presets", "view_refresh", "tpch_views", "windows"),
    *("nexmark", "joins", "scale", "webhook", "capture", "binlog", "bad_rows", "messages"),
)
for _module in _MODULES:
    import_module(f"benchmarks.{_module}")


def main(arguments: list[str]) -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run a benchmark, or list all.")
    parser.add_argument("name", nargs="?", help="a benchmark; all; report: the page and its plots, of what was kept")
    parser.add_argument("--rows", type=int, help="rows of each run, for benchmarks that have such a number")
    parser.add_argument("--repeat", type=int, help="runs of each peer, in turn with the others")
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="these peers alone")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the benchmark")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent, help="the folder for the page and its plots")
    asked = parser.parse_args(arguments)
    if asked.name == "report":
        print(f"wrote {write_page(KEPT, asked.to).name}")
    elif asked.name == "all":
        for benchmark in BENCHMARKS.values():
            run(benchmark.asked(asked.rows, asked.repeat, None, []))
    elif asked.name in BENCHMARKS:
        run(BENCHMARKS[asked.name].asked(asked.rows, asked.repeat, asked.peers, asked.set))
    elif asked.name:
        sys.exit(f"no benchmark {asked.name!r}: python -m benchmarks lists them")
    else:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name}: {benchmark.question}{_changeable(benchmark.options)}")


def _changeable(settings: Mapping[str, object]) -> str:
    shown = (
        f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in settings.items()
    )
    return f" ({' '.join(shown)})" if settings else ""


def run(benchmark: Benchmark, kept: Path = KEPT) -> list[Result]:
    """Run all peers in all cases, `repeat` times in turn; keep what they find for the page, and show it."""
    results: list[Result] = []
    # Makes what all runs share, and removes it after the last one.
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
    """Return the day, and the cores, memory, system and versions of this machine; neither names nor paths."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyiceberg", "pyarrow")},
    }


if __name__ == "__main__":
    main(sys.argv[1:])

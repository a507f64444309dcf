"""``python -m benchmarks [NAME | all | report] [options]``: run one or all, list them, make the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from benchmarks.benchmark import BENCHMARKS
from benchmarks.page import write_page
from benchmarks.runner import KEPT, run

# The modules with benchmarks, in the order of the page.
_MODULES = (
    *("files_to_iceberg", "kafka_to_iceberg", "write", "read", "epochs", "start_up"),
    *("expressions", "maintenance", "commits", "upsert", "table_source", "presets"),
    *("view_refresh", "windows", "joins", "scale", "webhook", "capture"),
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


if __name__ == "__main__":
    main(sys.argv[1:])

"""How long until something happens: imports, and a new process's first epoch in the table."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.events import events_folder
from benchmarks.measure import in_own_process
from benchmarks.peers.runtime import missing, runtime
from benchmarks.report import Report

SUMMARY = "seconds to import Volley, and from a process's start to its first snapshot, beside the runtime"

_INPUT = (1_000, 1_000)
_IMPORTS = ("pass", "import volley", "import volley.iceberg", "import pyspark.sql, pyiceberg.catalog.sql, pyarrow")


@dataclass(frozen=True)
class Start:
    """The median of some starts, with the least and the most, in seconds."""

    what: str
    seconds: float
    least: float
    most: float


def run(arguments: list[str]) -> None:
    """Each start in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks start_up", description=SUMMARY)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args(arguments)
    starts = {f"python -c {line!r}": [_import(line) for _ in range(asked.repeat)] for line in _IMPORTS}
    events_folder(*_INPUT)
    peers = ["volley", *([] if missing() else ["runtime"])]
    for name, seconds in [_first_epoch(peer) for _ in range(asked.repeat) for peer in peers]:
        starts.setdefault(f"{name}: to the first snapshot", []).append(seconds)
    report = Report("start_up", "what", "seconds", "min–max")
    for what, times in starts.items():
        start = Start(what, statistics.median(times), min(times), max(times))
        report.add(start, what, f"{start.seconds:.2f}", f"{start.least:.2f}–{start.most:.2f}")
    report.print()


def _import(line: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", line], check=True)
    return time.perf_counter() - began


def _first_epoch(peer: str) -> tuple[str, float]:
    began, folder = time.time(), events_folder(*_INPUT)
    if peer == "volley":
        result = in_own_process("benchmarks.first_epoch", str(folder), str(_INPUT[0]))
    else:
        result = runtime("first_epoch", folder=folder, rows=_INPUT[0])
    return result.name, result.extra["at"] - began

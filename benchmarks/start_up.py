"""How long until something happens: imports, and a new process's first epoch in the table."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.events import events_folder
from benchmarks.lake import Lake
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing, runtime
from benchmarks.report import Report
from volley import Environment, FileSource, IcebergSink

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
        result = in_own_process("benchmarks.start_up", str(folder))
    else:
        result = runtime("first_epoch", folder=folder, rows=_INPUT[0])
    return result.name, result.extra["at"] - began


def first_epoch(folder: str) -> Result:
    """A job of one epoch, in a session that it has to start."""
    with Lake.temporary() as lake:

        def work() -> dict[str, Any]:
            environment = Environment(checkpoint_dir=str(lake.folder / "checkpoints"))
            stream = environment.from_source(FileSource(folder, format="parquet"))
            assert stream.to_sink(IcebergSink(lake.config)).execute("first").progress.rows == _INPUT[0]
            return {"at": time.time()}

        return measured("Volley", _INPUT[0], work)


if __name__ == "__main__":
    print_result(first_epoch(sys.argv[1]))

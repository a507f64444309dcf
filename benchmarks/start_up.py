"""How long a start takes: imports, and a new process's first epoch in the table."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.benchmark import benchmark
from benchmarks.events import events_folder
from benchmarks.first_epoch import first_epoch
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME, Bound, Row
from benchmarks.run import Run

_IMPORTS = ("pass", "import volley", "import volley.iceberg", "import pyspark.sql, pyiceberg.catalog.sql, pyarrow")
_FIRST = "to the first snapshot"
_VOLLEY, _RUNTIME = f"Volley: {_FIRST}", f"{RUNTIME}: {_FIRST}"
_MOST_OF_RUNTIME = 0.6


def _bounds(row: Row) -> list[Bound]:
    return row.beside(_RUNTIME, "seconds", "seconds", most=_MOST_OF_RUNTIME) if row.peer == _VOLLEY else []


@benchmark(
    rows=1_000,
    repeat=5,
    peers={
        **{line: f"python -c {line!r}" for line in _IMPORTS},
        **{"volley": _VOLLEY, "runtime": _RUNTIME},
    },
    figures=("seconds",),
    plots=("seconds",),
    bounds=_bounds,
)
def start_up(run: Run) -> None:
    """Seconds to import Volley, and from a process's start to its first snapshot, beside the runtime."""
    if run.peer in _IMPORTS:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", run.peer], check=True)
        run.record(seconds=time.perf_counter() - began)
        return
    folder, began = events_folder(run.rows, run.rows), time.time()
    if run.peer == "volley":
        (found,) = run.apart(first_epoch, options={"folder": folder})
    else:
        (found,) = runtime(run, runtime_job.first_epoch, folder=folder)
    run.record(seconds=found.figures["at"] - began)

"""How long a start takes in a new process: imports, the first epoch in a table, the first ten rows of a stream."""

from __future__ import annotations

import subprocess
import sys
import time

import duckdb

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.events import events_folder
from benchmarks.first_epoch import first_epoch
from benchmarks.peers import runtime
from benchmarks.rows import RUNTIME

_IMPORTS = ("pass", "import volley", "import volley.iceberg", "import pyspark.sql, pyiceberg.catalog.sql, pyarrow")
_VOLLEY, _RUNTIME = (f"{peer}: to the first snapshot" for peer in ("Volley", RUNTIME))

_LOOKS = {
    "volley": """
from volley import Environment, FileSource, col
began, cpu = time.perf_counter(), time.process_time()
stream = Environment().from_source(FileSource(sys.argv[1], format=sys.argv[2]))
rows = stream.filter(col("id") > 0).head(10).num_rows
""",
    "polars": """
import polars
began, cpu = time.perf_counter(), time.process_time()
scan = polars.scan_parquet if sys.argv[2] == "parquet" else polars.scan_ndjson
rows = scan(sys.argv[1] + "/*." + sys.argv[2]).filter(polars.col("id") > 0).head(10).collect().height
""",
}


@benchmark(
    rows=1_000,
    repeat=5,
    peers={**{line: f"python -c {line!r}" for line in _IMPORTS}, "volley": _VOLLEY, "runtime": _RUNTIME},
    figures=("seconds",),
    bounds=[Limit("seconds", "seconds", most=0.6, of=_VOLLEY, beside=_RUNTIME)],
)
def start_up(run: Run) -> None:
    """Seconds to import Volley, and from a process's start to its first snapshot, beside the runtime."""
    folder, began = events_folder(run.rows, run.rows), time.time()
    match run.peer:
        case "volley":
            (found,) = run.apart(first_epoch, options={"folder": folder})
        case "runtime":
            (found,) = runtime.apart(run, runtime.first_epoch, folder=folder)
        case line:
            subprocess.run([sys.executable, "-c", line], check=True)
            run.record(seconds=time.time() - began)
            return
    run.record(seconds=found.figures["at"] - began)


@benchmark(
    rows=1_000_000,
    repeat=5,
    peers={"volley": "Volley", "polars": "polars"},
    cases={"formats": ("parquet", "json")},
    case="",
    figures=("seconds", "cpu_seconds"),
    plots=("seconds",),
    bounds=[Limit("seconds", "s until ten rows are there", most=0.5, of="Volley")],
)
def first_look(run: Run) -> None:
    """Ten rows of a filtered stream of files by `head`, in a new process, from after its imports."""
    folder = events_folder(run.rows, run.rows)
    if run.case == "json":
        # A tenth of the rows.
        duckdb.sql(f"copy (from '{folder}/*.parquet' limit {run.rows // 10}) to '{run.folder}/0000.json'")
        folder = run.folder
    figures = "print(time.perf_counter() - began, time.process_time() - cpu, rows)"
    command = [sys.executable, "-c", f"import sys, time\n{_LOOKS[run.peer]}{figures}", str(folder), str(run.case)]
    seconds, cpu_seconds, rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert rows == "10"
    run.record(seconds=float(seconds), cpu_seconds=float(cpu_seconds))

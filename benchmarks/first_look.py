"""How long the first ten rows of a stream take, in a new process that has imported what it names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.benchmark import benchmark
from benchmarks.events import events_folder
from benchmarks.rows import Bound, Row
from benchmarks.run import Run

_VOLLEY = """
from volley import Environment, FileSource, col
began, cpu = time.perf_counter(), time.process_time()
stream = Environment().from_source(FileSource(sys.argv[1], format=sys.argv[2]))
rows = stream.filter(col("id") > 0).head(10).num_rows
"""
_POLARS = """
import polars
began, cpu = time.perf_counter(), time.process_time()
scan = polars.scan_parquet if sys.argv[2] == "parquet" else polars.scan_ndjson
rows = scan(sys.argv[1] + "/*." + sys.argv[2]).filter(polars.col("id") > 0).head(10).collect().height
"""
_PRINT = "print(time.perf_counter() - began, time.process_time() - cpu, rows)"
_PEERS = {"volley": ("Volley", _VOLLEY), "polars": ("polars", _POLARS)}
_MOST_SECONDS = 0.5


def _bounds(row: Row) -> Iterator[Bound]:
    if row.peer == "Volley":
        yield from row.below("seconds", _MOST_SECONDS, "s until ten rows are there")


@benchmark(
    rows=1_000_000,
    repeat=5,
    peers={name: label for name, (label, _) in _PEERS.items()},
    options={"formats": ("parquet", "json")},
    cases="formats",
    figures=("seconds", "cpu_seconds"),
    plots=("seconds",),
    bounds=_bounds,
)
def first_look(run: Run) -> None:
    """Ten rows of a filtered stream of files by `head`, in a new process, from after its imports."""
    folder = events_folder(run.rows, run.rows)
    if run.case == "json":
        folder = _as_json(folder, run.folder)
    script = (
        f"import sys, time\n{_PEERS[run.peer][1]}print(time.perf_counter() - began, time.process_time() - cpu, rows)"
    )
    command = [sys.executable, "-c", script, str(folder), str(run.case)]
    seconds, cpu_seconds, rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert rows == "10"
    run.record(seconds=float(seconds), cpu_seconds=float(cpu_seconds))


def _as_json(folder: Path, to: Path) -> Path:
    """Write a tenth of a folder's rows as lines of JSON to another one."""
    (path, *_) = sorted(folder.glob("*.parquet"))
    rows = pq.read_table(path).slice(0, pq.read_metadata(path).num_rows // 10)
    rows.to_pandas().to_json(to / "0000.json", orient="records", lines=True, date_format="iso")
    return to

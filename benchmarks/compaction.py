"""Compaction of many small files: in this process, on Spark's executors, and by Iceberg's Spark runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyiceberg.table import Table

from benchmarks.benchmark import RATES, benchmark
from benchmarks.events import batches, events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME, Bound, Row
from benchmarks.run import Run
from volley import Environment
from volley.iceberg import IcebergTable

_PEERS = {"volley": "Volley, in this process", "executors": "Volley, on Spark's executors", "runtime": RUNTIME}
_ROWS_PER_FILE, _WARM_UP_FILES = 4_000, 20
_TARGET_BYTES = 128 << 20
_LEAST = 4.0


def _bounds(row: Row) -> list[Bound]:
    own = row.peer == _PEERS["volley"]
    return row.beside(RUNTIME, "rows_per_cpu_second", "rows per CPU-second", least=_LEAST) if own else []


@benchmark(
    repeat=3,
    peers=_PEERS,
    options={"files": (400, 1_000)},
    cases="files",
    case="files",
    figures=(*RATES[:2], "seconds", "cpu_seconds", "files_after", *RATES[2:]),
    bounds=_bounds,
)
def compaction(run: Run) -> None:
    """Compacting 400 and 1,000 files of 4,000 rows each, beside the runtime's rewrite_data_files."""
    lake, files = Lake(run.folder), int(run.case)
    _write(lake, "small", _WARM_UP_FILES)
    _write(lake, "t", files)
    rows = files * _ROWS_PER_FILE
    if run.peer == "runtime":
        found = runtime(run, runtime_job.compact, rows=rows, lake=str(run.folder), target=_TARGET_BYTES)
        run.results.extend(replace(each, case=run.case) for each in found)
    else:
        _compact(run, lake, rows)
    run.results[-1].figures.update(_checked(lake.table(), rows))


def _compact(run: Run, lake: Lake, rows: int) -> None:
    environment = Environment("local[*]")
    options: dict[str, Any] = {"target_size": _TARGET_BYTES}
    if run.peer == "executors":
        options["run"] = environment.task_runner()
    IcebergTable(replace(lake.config, table="small").ref).compact(**options)
    table = IcebergTable(lake.config.ref)
    run.measure(lambda: {"rows": table.compact(**options).rows}, rows=rows)


def _write(lake: Lake, name: str, files: int) -> None:
    """Write a table of small files in one epoch."""
    config = replace(lake.config, table=name).with_max_records(_ROWS_PER_FILE)
    write_epoch(config, 0, batches(events_folder(files * _ROWS_PER_FILE, files * _ROWS_PER_FILE)))
    assert len(lake.table(name).inspect.data_files()) == files


def _checked(table: Table, rows: int) -> dict[str, Any]:
    """Return the number of files, after a check that all rows are there."""
    files = table.inspect.data_files()
    assert sum(files["record_count"].to_pylist()) == rows
    return {"files_after": len(files)}

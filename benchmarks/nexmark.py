"""Nexmark's queries from their SQL texts, beside Spark Structured Streaming with Iceberg's sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.events import first_files
from benchmarks.lake import Lake
from benchmarks.peers import nexmark as peers
from benchmarks.peers import runtime
from benchmarks.rows import RUNTIME
from examples.nexmark import QUERIES, sources_of
from examples.nexmark.events import side_input, write
from tests.nexmark import differences

_FILES = 16
_VOLLEY = "Volley"
# Spark's streams have no windows over rows, no distinct counts, and no groups without a window that Iceberg's sink
# takes; a window of processing time closes at no certain row.
_NOT_BY_SPARK = ("q4", "q6", "q9", "q12", "q15", "q16", "q17", "q18", "q19")


def _prepared(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    write(folder / "events", asked.rows, _FILES)
    pq.write_table(side_input(), folder / "side_input.parquet")
    for name in ("person", "auction", "bid"):
        first_files(folder / "events" / name, folder / "few" / name)
    yield {"folder": folder / "events", "warm_up": folder / "few", "side_input": folder / "side_input.parquet"}


@benchmark(
    rows=2_000_000,
    repeat=3,
    peers={"volley": _VOLLEY, "spark": RUNTIME},
    options={"epochs": 8, "before": 2},
    cases={"query": tuple(QUERIES)},
    figures=("cpu_us_a_row", "rows_per_second", "found", "worker_mb", "jvm_mb", "driver_mb"),
    plots=("cpu_us_a_row",),
    prepare=_prepared,
    bounds=[Limit("rows_per_cpu_second", "events per CPU-second", 5.0, of=_VOLLEY, beside=RUNTIME)],
)
def nexmark(run: Run) -> None:
    """Nexmark's queries from their texts, into Iceberg tables: CPU of an event in steady state, beside Spark."""
    query, options = QUERIES[str(run.case)], run.options
    files = _FILES // options["epochs"]
    if run.peer == "volley":
        _fill(run, "warm_up", Path(options["warm_up"]), 1)
        run.measure_steady(lambda: _fill(run, "benchmark", Path(options["folder"]), files))
        _check(run)
    elif query.name not in _NOT_BY_SPARK:
        told = {"text": query.text, "tables": query.tables, "files_per_epoch": files}
        run.results.extend(runtime.apart(run, peers.spark, **options, **told))


def _fill(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    lake, query = Lake(run.folder), QUERIES[str(run.case)]
    rows = query.rows(lake.environment(), sources_of(folder, files))
    return {"found": rows.to_sink(query.sink(lake.named(name))).execute(name).progress.rows}


def _check(run: Run) -> None:
    """Compare the table's rows with DuckDB's."""
    query = QUERIES[str(run.case)]
    # Its rows are those of a clock, which the tests replay.
    if query.name != "q12":
        found = Lake(run.folder).table("benchmark").scan().to_arrow()
        tables = {name: pq.read_table(f"{run.options['folder']}/{name}") for name in query.tables}
        if number := differences(query.name, found, **tables):
            raise AssertionError(f"{query.name}: {number} rows differ from DuckDB's")

"""How much CPU the plan of a scan takes, when the filter leaves one partition of very many."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table

from benchmarks.benchmark import benchmark
from benchmarks.lake import Lake, duckdb_with_iceberg, write_epoch
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from volley.iceberg import Partitioning
from volley.iceberg.read.entries import forget_manifests
from volley.iceberg.read.planning import plan

_SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
_EPOCHS = 4
_MOST_MS = {"Volley": 50, "Volley, manifests cached": 5}
_OTHERS = ("pyiceberg", "DuckDB, rows read too")


def _bounds(row: Row) -> Iterator[Bound]:
    if row.peer not in _MOST_MS:
        return
    yield from row.below("cpu_ms", _MOST_MS[row.peer], "ms of CPU")
    for peer in _OTHERS:
        yield from row.beside(peer, "cpu_ms", "CPU", most=1)


@benchmark(
    options={"partitions": (1_000, 2_500), "plans": 25},
    cases="partitions",
    case="partitions",
    figures=("cpu_ms", "wall_ms", "files"),
    plots=("cpu_ms",),
    bounds=_bounds,
)
def planning(run: Run) -> None:
    """Planning one among 1,000 and more partitions of four epochs: CPU, beside pyiceberg and DuckDB (target: 50 ms)."""
    partitions, lake = int(run.case), Lake(run.folder)
    keys = pa.array(range(partitions))
    batch = pa.record_batch([keys, keys], schema=_SCHEMA)
    for epoch in range(_EPOCHS):
        write_epoch(lake.config.with_partitioning(Partitioning.identity("key")), epoch, [batch])
    table, one = lake.table(), parse(f"key = {partitions // 2}")
    plans: dict[str, Callable[[], int]] = {
        "Volley": lambda: _planned(table, one, is_cold=True),
        "Volley, manifests cached": lambda: _planned(table, one, is_cold=False),
        "pyiceberg": lambda: len(list(table.scan(row_filter=one).plan_files())),
        "DuckDB, rows read too": lambda: _by_duckdb(table, partitions // 2),
    }
    for peer, work in plans.items():
        cpu, wall, files = [], [], 0
        for _ in range(run.options["plans"]):
            began, used = time.perf_counter(), time.process_time()
            files = work()
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
        assert files == _EPOCHS
        run.record(peer, cpu_ms=statistics.median(cpu) * 1e3, wall_ms=statistics.median(wall) * 1e3, files=files)


def _planned(table: Table, row_filter: BooleanExpression, is_cold: bool) -> int:
    if is_cold:
        forget_manifests()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return len(plan(table.io, table.metadata, snapshot, row_filter).files)


def _by_duckdb(table: Table, key: int) -> int:
    query = f"select count(*) from iceberg_scan('{table.metadata_location}') where key = {key}"
    assert duckdb_with_iceberg().sql(query).fetchone() == (_EPOCHS,)
    return _EPOCHS

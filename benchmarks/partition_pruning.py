"""How long a scan's plan takes on a table with very many partitions, when the filter leaves one of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.benchmark import benchmark
from benchmarks.lake import Lake, duckdb_with_iceberg, write_epoch
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from volley.iceberg import Partitioning

_SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
_EPOCHS = 4
_MOST_MS = 50


def _bounds(row: Row) -> list[Bound]:
    return row.below("wall_ms", _MOST_MS, "ms") if row.median("files") == _EPOCHS else []


@benchmark(
    options={"partitions": (1_000, 4_000), "plans": 25},
    cases="partitions",
    case="partitions",
    figures=("wall_ms", "files"),
    plots=("wall_ms",),
    bounds=_bounds,
)
def partition_pruning(run: Run) -> None:
    """Planning a scan of one among 1,000 and more partitions (target: 50 ms)."""
    partitions, lake = int(run.case), Lake(run.folder)
    keys = pa.array(range(partitions))
    batch = pa.record_batch([keys, keys], schema=_SCHEMA)
    for epoch in range(_EPOCHS):
        write_epoch(lake.config.with_partitioning(Partitioning.identity("key")), epoch, [batch])
    table, one = lake.table(), f"key = {partitions // 2}"
    plans: dict[str, Callable[[], int]] = {
        "pyiceberg, one partition": lambda: _planned(table, one),
        "pyiceberg, all partitions": lambda: _planned(table, "true"),
        "DuckDB, one partition, read too": lambda: _by_duckdb(table, one),
    }
    for by, plan in plans.items():
        seconds, files = [], 0
        for _ in range(run.options["plans"]):
            began = time.perf_counter()
            files = plan()
            seconds.append(time.perf_counter() - began)
        run.record(by, wall_ms=statistics.median(seconds) * 1e3, files=files)


def _planned(table: Table, condition: str) -> int:
    return len(list(table.scan(row_filter=condition).plan_files()))


def _by_duckdb(table: Table, condition: str) -> int:
    query = f"select count(*) from iceberg_scan('{table.metadata_location}') where {condition}"
    assert duckdb_with_iceberg().sql(query).fetchone() == (_EPOCHS,)
    return _EPOCHS

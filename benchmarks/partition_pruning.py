"""How long a scan's plan takes on a table with very many partitions, when the filter leaves one of them."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.engines import duckdb_with_iceberg
from benchmarks.lake import Lake, write_epoch
from benchmarks.report import Figure, Report
from volley.iceberg import Partitioning

SUMMARY = "planning a scan of one among 1,000 and more partitions (target: 50 ms)"

_SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
_EPOCHS = 4
_SEED_MS = 50


@dataclass(frozen=True)
class Plan:
    """The median of some plans.

    Args:
        by: Who planned, and what.
        partitions: Of the table, a file for each in each epoch.
        wall_ms: Time.
        files: Left to read.
    """

    by: str
    partitions: int
    wall_ms: float
    files: int


def run(arguments: list[str]) -> None:
    """Each size once: the plan over and over."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partition_pruning", description=SUMMARY)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 4_000])
    parser.add_argument("--plans", type=int, default=25)
    asked = parser.parse_args(arguments)
    report = Report("partition_pruning", "plan", "partitions", "median ms", "files left")
    for partitions in asked.partitions:
        for plan in _plans(partitions, asked.plans):
            report.add(plan, plan.by, f"{partitions:,}", f"{plan.wall_ms:.1f}", f"{plan.files:,}")
            if plan.files == _EPOCHS:
                what = f"{plan.by}, {partitions:,} partitions"
                report.figure(Figure.below(what, plan.wall_ms, _SEED_MS, "ms"))
    report.print()


def _plans(partitions: int, times: int) -> list[Plan]:
    with Lake.temporary() as lake:
        keys = pa.array(range(partitions))
        batch = pa.record_batch([keys, keys], schema=_SCHEMA)
        for epoch in range(_EPOCHS):
            write_epoch(lake.config.with_partitioning(Partitioning.identity("key")), epoch, [batch], _SCHEMA)
        table, one = lake.table(), f"key = {partitions // 2}"
        return [
            _median("pyiceberg, one partition", partitions, times, lambda: _planned(table, one)),
            _median("pyiceberg, all partitions", partitions, times, lambda: _planned(table, "true")),
            _median("DuckDB, one partition, read too", partitions, times, lambda: _by_duckdb(table, one)),
        ]


def _planned(table: Table, condition: str) -> int:
    return len(list(table.scan(row_filter=condition).plan_files()))


def _by_duckdb(table: Table, condition: str) -> int:
    query = f"select count(*) from iceberg_scan('{table.metadata_location}') where {condition}"
    found = duckdb_with_iceberg().sql(query).fetchone()
    assert found == (_EPOCHS,)
    return _EPOCHS


def _median(by: str, partitions: int, times: int, plan: Callable[[], int]) -> Plan:
    seconds, files = [], 0
    for _ in range(times):
        began = time.perf_counter()
        files = plan()
        seconds.append(time.perf_counter() - began)
    return Plan(by, partitions, statistics.median(seconds) * 1e3, files)

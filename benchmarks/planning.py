"""How much CPU the plan of a scan takes, when the filter leaves one partition of very many."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table

from benchmarks.benchmark import Limit, Run, benchmark, within
from benchmarks.lake import Lake, scan_by_duckdb, write_epoch
from benchmarks.measure import medians, timed
from volley.iceberg import Partitioning
from volley.iceberg.read.entries import forget_manifests
from volley.iceberg.read.planning import plan

_SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
_EPOCHS = 4
_VOLLEY, _CACHED = "Volley", "Volley, manifests cached"
_PYICEBERG, _DUCKDB = _OTHERS = "pyiceberg", "DuckDB, rows read too"
_MOST_MS = {_VOLLEY: 50, _CACHED: 5}


@benchmark(
    options={"partitions": (1_000, 2_500), "plans": 25},
    cases="partitions",
    case="partitions",
    figures=("cpu_ms", "wall_ms", "files"),
    plots=("cpu_ms",),
    bounds=within(
        *(Limit("cpu_ms", "ms of CPU", most=most, of=peer) for peer, most in _MOST_MS.items()),
        *(
            Limit("cpu_ms", "CPU", most=1, of=peer, beside=other)
            for peer in _MOST_MS
            for other in (_PYICEBERG, _DUCKDB)
        ),
    ),
)
def planning(run: Run) -> None:
    """Planning one among 1,000 and more partitions of four epochs: CPU, beside pyiceberg and DuckDB (target: 50 ms)."""
    partitions, lake = int(run.case), Lake(run.folder)
    keys = pa.array(range(partitions))
    batch = pa.record_batch([keys, keys], schema=_SCHEMA)
    for epoch in range(_EPOCHS):
        write_epoch(lake.config.with_partitioning(Partitioning.identity("key")), epoch, [batch])
    table, where = lake.table(), f"key = {partitions // 2}"
    one = parse(where)
    plans: dict[str, Callable[[], int]] = {
        _VOLLEY: lambda: _planned(table, one, is_cold=True),
        _CACHED: lambda: _planned(table, one, is_cold=False),
        _PYICEBERG: lambda: len(list(table.scan(row_filter=one).plan_files())),
        _DUCKDB: lambda: int(scan_by_duckdb(table.metadata_location, "count(*)", where)[0]),
    }
    for peer, planned in plans.items():
        assert planned() == _EPOCHS
        run.record(peer, **medians(timed(planned) for _ in range(run.options["plans"])), files=_EPOCHS)


def _planned(table: Table, row_filter: BooleanExpression, is_cold: bool) -> int:
    if is_cold:
        forget_manifests()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return len(plan(table.io, table.metadata, snapshot, row_filter).files)

"""Scans and plans of tables that Volley has written: Volley, pyiceberg, DuckDB, Iceberg's Spark runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.lake import Lake, scan_by_duckdb, write_epoch
from benchmarks.measure import medians, timed
from benchmarks.peers import runtime
from benchmarks.rows import RUNTIME
from tests.duck import duckdb_with_iceberg
from volley import IcebergSourceConfig
from volley.iceberg import Partitioning, Upsert
from volley.iceberg.read.entries import forget_manifests
from volley.iceberg.read.planning import plan
from volley.iceberg.read.whole import read_snapshot

_PEERS = {
    **{"volley": "Volley, one thread", "pyarrow": "pyarrow over the planned files", "pyiceberg": "pyiceberg"},
    **{"duckdb": "DuckDB", "runtime": RUNTIME},
}
_DELETED = 20
_BATCH_ROWS = 10_000


def _table(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Make one table for all runs; with deletes, each 20th row is deleted by its position."""
    rows = asked.rows
    config = Lake(folder).config
    write_epoch(config, 0, batches(events_folder(rows, rows // FILES)))
    if asked.options["deletes"]:
        deletes = config.with_commit_mode(Upsert("id", op_field="op", strategy="merge_on_read"))
        ids = np.arange(0, rows, _DELETED)
        write_epoch(deletes, 1, [pa.record_batch({"id": ids, "op": pa.repeat("d", len(ids))})])
    yield {"lake": folder}


def read(run: Run) -> None:
    """A scan of all rows and columns of a table that Volley has written, by pyiceberg, DuckDB and Spark."""
    lake = Lake(run.options["lake"])
    run = replace(run, rows=run.rows - (run.rows // _DELETED if run.options["deletes"] else 0))
    match run.peer:
        case "volley":
            config = IcebergSourceConfig(lake.config.ref)
            run.measure_scan(lambda: read_snapshot(config, threads=1)[1])
        case "pyarrow":
            run.measure_scan(lambda: _plain(lake.table()))
        case "pyiceberg":
            table = lake.table()
            run.measure_scan(lambda: table.scan().to_arrow_batch_reader())
        case "duckdb":
            connection, query = duckdb_with_iceberg(), f"from iceberg_scan('{lake.table().metadata_location}')"
            run.measure_scan(lambda: connection.sql(query).to_arrow_reader(_BATCH_ROWS))
        case _:
            run.results.extend(runtime.apart(run, runtime.read, **run.options))


def _plain(table: Table) -> Iterator[pa.RecordBatch]:
    """Read the files by pyarrow alone."""
    for task in table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        yield from pq.ParquetFile(path).iter_batches(_BATCH_ROWS, use_threads=False)


# Only what users read with has a bound, not the peer.
_LIMITS = [Limit("rows_per_second", "rows/s", 100_000, of=label) for label in _PEERS.values() if label != RUNTIME]
_SETTINGS: dict[str, Any] = {"repeat": 5, "prepare": _table, "bounds": _LIMITS}
for _size, _rows in {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "8m": 8_000_000}.items():
    benchmark(f"read_{_size}", rows=_rows, peers=_PEERS, options={"deletes": False}, **_SETTINGS)(read)
_applying = {peer: label for peer, label in _PEERS.items() if peer not in ("pyarrow", "runtime")}
benchmark("read_deletes", rows=8_000_000, peers=_applying, options={"deletes": True}, **_SETTINGS)(read)


_KEYED = pa.schema({"key": pa.int64(), "value": pa.int64()})
_PLANNED_FILES = 4
_VOLLEY, _CACHED = "Volley", "Volley, manifests cached"
_PYICEBERG, _DUCKDB = _OTHERS = "pyiceberg", "DuckDB, rows read too"
_MOST_MS = {_VOLLEY: 50, _CACHED: 5}


@benchmark(
    options={"plans": 25},
    cases={"partitions": (1_000, 2_500)},
    figures=("cpu_ms", "wall_ms", "files"),
    plots=("cpu_ms",),
    bounds=[
        *(Limit("cpu_ms", "ms of CPU", most=most, of=peer) for peer, most in _MOST_MS.items()),
        *(Limit("cpu_ms", "CPU", most=1, of=peer, beside=other) for peer in _MOST_MS for other in _OTHERS),
    ],
)
def planning(run: Run) -> None:
    """Planning one among 1,000 and more partitions of four epochs: CPU, beside pyiceberg and DuckDB (target: 50 ms)."""
    partitions, lake = int(run.case), Lake(run.folder)
    keys = pa.array(range(partitions))
    batch = pa.record_batch([keys, keys], schema=_KEYED)
    for epoch in range(_PLANNED_FILES):
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
        assert planned() == _PLANNED_FILES
        run.record(peer, **medians(timed(planned) for _ in range(run.options["plans"])), files=_PLANNED_FILES)


def _planned(table: Table, row_filter: BooleanExpression, is_cold: bool) -> int:
    if is_cold:
        forget_manifests()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return len(plan(table.io, table.metadata, snapshot, row_filter).files)

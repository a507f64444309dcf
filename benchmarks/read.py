"""Reading so many rows of a table that Volley has written: pyiceberg, DuckDB and Iceberg's Spark runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.benchmark import Benchmark, benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.lake import Lake, duckdb_with_iceberg, write_epoch
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME, Bound, Row
from benchmarks.run import Run

_PEERS = {"pyiceberg": "pyiceberg", "duckdb": "DuckDB", "runtime": RUNTIME}


@contextmanager
def _table(asked: Benchmark) -> Iterator[dict[str, Any]]:
    """Make one table for all runs."""
    rows = asked.rows or 0
    folder = events_folder(rows, rows // FILES)
    with tempfile.TemporaryDirectory(prefix="volley-bench-") as lake:
        write_epoch(Lake(lake).config, 0, batches(folder))
        yield {"lake": lake}


def _bounds(row: Row) -> list[Bound]:
    # Only what users read with has a bound, not the peer.
    return [] if row.peer == RUNTIME else row.at_least("rows_per_second", 100_000, "rows/s")


def read(run: Run) -> None:
    """A scan of all rows and columns of a table that Volley has written, by pyiceberg, DuckDB and Spark."""
    match run.peer:
        case "pyiceberg":
            table = Lake(run.options["lake"]).table()
            _scan(run, lambda: table.scan().to_arrow_batch_reader())
        case "duckdb":
            connection, where = duckdb_with_iceberg(), Lake(run.options["lake"]).table().metadata_location
            _scan(run, lambda: connection.sql(f"from iceberg_scan('{where}')").to_arrow_reader(10_000))
        case "runtime":
            run.results.extend(runtime(run, runtime_job.read, **run.options))


for _size, _rows in {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}.items():
    benchmark(f"read_{_size}", rows=_rows, repeat=5, peers=_PEERS, prepare=_table, bounds=_bounds)(read)


def _scan(run: Run, scan: Any) -> None:
    """Measure a scan, batch by batch."""

    def work() -> None:
        assert sum(batch.num_rows for batch in scan()) == run.rows

    run.measure(work)

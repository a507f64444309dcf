"""Reading so many rows of a table that Volley has written: pyiceberg, DuckDB and Iceberg's Spark runtime."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.comparison import compared, show
from benchmarks.engines import duckdb_with_iceberg
from benchmarks.events import events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing, runtime
from benchmarks.report import Figure
from benchmarks.write import batches

SUMMARY = "a scan of all rows and columns of a table that Volley has written, by pyiceberg, DuckDB and Spark"

_FILES = 16
_SEED_ROWS_PER_SECOND = 100_000


def by_pyiceberg(lake: Lake, rows: int) -> Result:
    """A plain scan, batch by batch."""
    table = lake.table()

    def work() -> dict[str, Any]:
        assert sum(batch.num_rows for batch in table.scan().to_arrow_batch_reader()) == rows
        return {}

    return measured("pyiceberg", rows, work)


def by_duckdb(lake: Lake, rows: int) -> Result:
    """All columns as Arrow batches."""
    connection, where = duckdb_with_iceberg(), lake.table().metadata_location

    def work() -> dict[str, Any]:
        found = connection.sql(f"from iceberg_scan('{where}')").to_arrow_reader(10_000)
        assert sum(batch.num_rows for batch in found) == rows
        return {}

    return measured("DuckDB", rows, work)


_READERS = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb}


def run(arguments: list[str]) -> None:
    """One table; alternating scans, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks read_…", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=1_000_000, help="a multiple of 16")
    parser.add_argument("--repeat", type=int, default=5, help="alternating runs of each reader")
    parser.add_argument("--title", default="read", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    skipped, folder = missing(), events_folder(asked.rows, asked.rows // _FILES)
    readers = [*_READERS, *([] if skipped else ["runtime"])]
    with Lake.temporary() as lake:
        write_epoch(lake.config, 0, batches(folder), pq.read_schema(folder / "0000.parquet"))
        results = [_one_run(reader, lake, asked.rows) for _ in range(asked.repeat) for reader in readers]
    report = show(asked.title, results, skipped)
    # Not of the runtime, which is a peer.
    for row in compared([result for result in results if result.name in ("pyiceberg", "DuckDB")]):
        report.figure(Figure.at_least(f"read by {row.what}", row.speed, _SEED_ROWS_PER_SECOND, "rows/s"))
    report.print()


def _one_run(reader: str, lake: Lake, rows: int) -> Result:
    if reader == "runtime":
        return runtime("read", lake=lake.folder, table="t", rows=rows)
    return in_own_process("benchmarks.read", reader, str(lake.folder), str(rows))


if __name__ == "__main__":
    print_result(_READERS[sys.argv[1]](Lake(Path(sys.argv[2])), int(sys.argv[3])))

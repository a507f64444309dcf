"""From which share of a file on copy-on-write costs less: the CPU of an upsert, and of each scan after it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.engines import duckdb_with_iceberg
from benchmarks.lake import Lake, write_epoch
from benchmarks.report import Report
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

SUMMARY = "merge-on-read and copy-on-write over the replaced share of a file: CPU of the upsert and of scans after it"

_SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
_STRATEGIES = ("merge_on_read", "copy_on_write")


@dataclass(frozen=True)
class Cost:
    """CPU-seconds, the least of some runs.

    Args:
        share: The replaced part of the file.
        strategy: How it was replaced.
        upsert: Of staging, merging, replacing and committing.
        pyiceberg: Of a scan of the whole table.
        duckdb: Of the same by another engine.
    """

    share: float
    strategy: str
    upsert: float
    pyiceberg: float
    duckdb: float


def run(arguments: list[str]) -> None:
    """Each share with each strategy on a new table of one file, in this process: nothing but the work itself."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks upsert_strategy", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the file")
    parser.add_argument("--runs", type=int, default=3, help="the least of as many is shown")
    asked = parser.parse_args(arguments)
    columns = [f"{what} {short}" for what in ("upsert", "pyiceberg", "DuckDB") for short in ("MoR", "CoW")]
    duckdb_with_iceberg()
    report = Report("upsert_strategy", "share", *columns, "even after scans, pyiceberg", "DuckDB")
    for share in _SHARES:
        read, write = (_least(share, strategy, asked.rows, asked.runs) for strategy in _STRATEGIES)
        pairs = [(read.upsert, write.upsert), (read.pyiceberg, write.pyiceberg), (read.duckdb, write.duckdb)]
        cells = [f"{each:.2f}" for pair in pairs for each in pair]
        report.row(f"{share:.0%}", *cells, *(_even(pairs[0], scan) for scan in pairs[1:]))
        report.note(read)
        report.note(write)
    report.print()


def _even(upsert: tuple[float, float], scan: tuple[float, float]) -> str:
    """After how many scans copy-on-write has cost no more."""
    dearer, saved = upsert[1] - upsert[0], scan[0] - scan[1]
    return "0" if dearer <= 0 else f"{dearer / saved:.1f}" if saved > 0 else "never"


def _least(share: float, strategy: str, rows: int, runs: int) -> Cost:
    found = [_cost(share, strategy, rows) for _ in range(runs)]
    return Cost(share, strategy, *(min(each) for each in zip(*found, strict=True)))


def _cost(share: float, strategy: str, rows: int) -> tuple[float, float, float]:
    with Lake.temporary() as lake:
        ids = np.random.default_rng(7).permutation(rows)
        first = _rows(ids, 0.0)
        write_epoch(lake.config, 0, [first], first.schema)
        changed = _rows(np.random.default_rng(8).choice(ids, int(rows * share), replace=False), 1.0)
        mode = lake.config.with_commit_mode(Upsert("id", strategy=cast(Strategy, strategy)))
        upsert = _cpu(lambda: write_epoch(mode, 1, [changed], changed.schema))
        table = lake.table()
        return upsert, _cpu(lambda: _check(table.scan().to_arrow(), rows, share)), _cpu(lambda: _by_duckdb(table, rows))


def _rows(ids: np.ndarray[Any, Any], value: float) -> pa.RecordBatch:
    session = pa.array([f"session {each:012}" for each in ids])
    return pa.record_batch({"id": ids, "session": session, "value": np.full(len(ids), value), "more": ids * 0.37})


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _check(found: pa.Table, rows: int, share: float) -> None:
    assert found.num_rows == rows
    assert sum(found["value"].to_numpy()) == int(rows * share)


def _by_duckdb(table: Table, rows: int) -> None:
    query = f"select count(*), sum(value), max(session), max(more) from iceberg_scan('{table.metadata_location}')"
    (found,) = duckdb_with_iceberg().sql(query).fetchall()
    assert found == (rows, *found[1:])

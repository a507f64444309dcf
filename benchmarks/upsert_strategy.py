"""From which share of a file on copy-on-write costs less: the CPU of an upsert, and of each scan after it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.benchmark import benchmark
from benchmarks.lake import Lake, duckdb_with_iceberg, write_epoch
from benchmarks.run import Run
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

_STRATEGIES = ("merge_on_read", "copy_on_write")
_FIGURES = ("upsert", "pyiceberg", "duckdb")


@benchmark(
    rows=1_000_000,
    options={"shares": (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8), "runs": 3},
    case="share",
    figures=(*_FIGURES, "even_after_pyiceberg", "even_after_duckdb"),
    plots=_FIGURES,
)
def upsert_strategy(run: Run) -> None:
    """Merge-on-read and copy-on-write over the replaced share of a file: CPU of the upsert and of scans after it."""
    # All in one warm process; the least of some runs is the work itself.
    duckdb_with_iceberg()
    for strategy in _STRATEGIES:
        _costs(run, run.options["shares"][-1], strategy)
    for share in run.options["shares"]:
        found = [[_costs(run, share, strategy) for strategy in _STRATEGIES] for _ in range(run.options["runs"])]
        read, write = ([min(each) for each in zip(*costs, strict=True)] for costs in zip(*found, strict=True))
        run.record(_STRATEGIES[0], share, **dict(zip(_FIGURES, read, strict=True)))
        even = {f"even_after_{_FIGURES[scan]}": _even(read, write, scan) for scan in (1, 2)}
        run.record(_STRATEGIES[1], share, **dict(zip(_FIGURES, write, strict=True)), **even)


def _even(read: list[float], write: list[float], scan: int) -> float | None:
    """After how many scans copy-on-write has cost no more; None if never."""
    dearer, saved = write[0] - read[0], read[scan] - write[scan]
    return 0.0 if dearer <= 0 else dearer / saved if saved > 0 else None


def _costs(run: Run, share: float, strategy: str) -> list[float]:
    """CPU-seconds of staging, merging, replacing and committing; of a scan of the whole table; of another engine's."""
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        lake, rows = Lake(folder), run.rows
        ids = np.random.default_rng(7).permutation(rows)
        write_epoch(lake.config, 0, [_rows(ids, 0.0)])
        changed = _rows(np.random.default_rng(8).choice(ids, int(rows * share), replace=False), 1.0)
        mode = lake.config.with_commit_mode(Upsert("id", strategy=cast(Strategy, strategy)))
        upsert = _cpu(lambda: write_epoch(mode, 1, [changed]))
        table = lake.table()
        by_pyiceberg = _cpu(lambda: _check(table.scan().to_arrow(), rows, share))
        return [upsert, by_pyiceberg, _cpu(lambda: _by_duckdb(table, rows))]


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

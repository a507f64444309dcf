"""Measures commits and scans of tables that their job maintains, over many epochs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, cast

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import Limit, Run, benchmark, within
from benchmarks.events import NAMED, named_rows
from benchmarks.lake import Lake, commit, open_sink, scan_by_duckdb, write
from benchmarks.measure import timed
from volley import IcebergSinkConfig
from volley.iceberg import Maintenance, Upsert
from volley.iceberg.maintain.committer import MaintainingCommitter

_ROWS = 10
_PART = 500_000
_HOUR = 3_600


@benchmark(
    peers={"volley": "Volley"},
    # Simulated seconds of one commit each, and how many of them pass in a second.
    options={"commits": 20_000, "speed": 40},
    case="hour",
    figures=("p50_cpu_ms", "p50_ms", "scan_ms", "snapshots", "data_files", "cpu_seconds"),
    plots=("p50_cpu_ms", "scan_ms"),
    bounds=within(
        *(
            Limit(figure, figure, most=1.3, beside_case=1, times="× the first hour's")
            for figure in ("p50_cpu_ms", "scan_ms")
        )
    ),
)
def maintained_commits(run: Run) -> None:
    """Commits of ten rows, one a simulated second, with maintenance: each hour's commits, and a scan after it."""
    commits, speed, lake = run.options["commits"], run.options["speed"], Lake(run.folder)
    # Snapshots are kept for an hour, as by default; it passes faster, like the rest. A turn takes as long as ever, so
    # that it is a larger share of the time, and beside more commits: their CPU counts.
    maintenance = Maintenance(expire_after=_HOUR / speed, retain_most=None, every=600 / speed, budget=1.0)
    with _maintained(lake.config, maintenance) as committer, _reader(lake) as scan:
        for start in range(0, commits, _HOUR):
            epochs = range(start, min(start + _HOUR, commits))
            figures = run.measure(partial(_hour, committer, epochs, speed), rows=1, case=1 + start // _HOUR)
            figures |= {"scan_ms": 1_000 * scan(epochs.stop * _ROWS), **_size(lake)}


def _hour(committer: MaintainingCommitter, epochs: range, speed: float) -> dict[str, Any]:
    seconds, cpu_seconds = list[float](), list[float]()
    for epoch in epochs:
        ids, began = np.arange(epoch * _ROWS, (epoch + 1) * _ROWS), time.thread_time()
        seconds.append(_commit(committer, epoch, [named_rows(ids, 0.0)]))
        cpu_seconds.append(time.thread_time() - began)
        time.sleep(max(0.0, 1 / speed - seconds[-1]))
    p50, p50_cpu = (1_000 * statistics.median(each) for each in (seconds, cpu_seconds))
    return {"p50_ms": p50, "p50_cpu_ms": p50_cpu}


@benchmark(
    rows=10_000_000,
    peers={"volley": "Volley"},
    # Rows and seconds of an epoch; every how many of them the table is read; the size of data files.
    options={
        **{"epochs": 500, "keys": 1_000, "seconds": 1.0, "reads": 5, "target_mb": 16.0},
        "deletes_above": (0.005, 0.05),
    },
    cases="deletes_above",
    case="deletes above",
    figures=("scan_worst", "scan_mean", "fresh_ms", "p50_ms", "maintenance_seconds", "cpu_seconds"),
    bounds=within(Limit("scan_worst", "× a fresh table's scan, at worst", most=1.5, case=0.005)),
)
def maintained_upserts(run: Run) -> None:
    """Scans by DuckDB, × those of a fresh table, of 10 M rows that merge-on-read epochs update all over."""
    lake, maintenance = Lake(run.folder), Maintenance(deletes_above=float(run.case))
    config = lake.config.with_commit_mode(Upsert("id", strategy="merge_on_read"))
    config = config.with_target_file_size_mb(run.options["target_mb"])
    with _maintained(config, maintenance) as committer, _reader(lake) as scan:
        parts = (np.arange(start, min(start + _PART, run.rows)) for start in range(0, run.rows, _PART))
        _commit(committer, 0, (named_rows(part, 0.0) for part in parts))
        run.measure(lambda: _upserts(run, committer, partial(scan, run.rows)))


def _upserts(run: Run, committer: MaintainingCommitter, scan: Callable[[], float]) -> dict[str, Any]:
    fresh, seconds, scans = scan(), list[float](), list[float]()
    random, options = np.random.default_rng(1), run.options
    for epoch in range(1, options["epochs"] + 1):
        keys = random.choice(run.rows, options["keys"], replace=False)
        seconds.append(_commit(committer, epoch, [named_rows(keys, 1.0)]))
        time.sleep(max(0.0, options["seconds"] - seconds[-1]))
        if epoch % options["reads"] == 0:
            scans.append(scan() / fresh)
    return {
        "scan_worst": max(scans),
        "scan_mean": statistics.mean(scans),
        "fresh_ms": 1_000 * fresh,
        "p50_ms": 1_000 * statistics.median(seconds),
        "maintenance_seconds": sum(turn.seconds for turn in committer.maintenance.runs),
    }


@contextmanager
def _maintained(config: IcebergSinkConfig, maintenance: Maintenance) -> Iterator[MaintainingCommitter]:
    committer = open_sink(config.with_maintenance(maintenance), NAMED)
    committer.start()
    try:
        yield cast(MaintainingCommitter, committer)
    finally:
        committer.stop()


def _commit(committer: MaintainingCommitter, epoch: int, batches: Iterable[pa.RecordBatch]) -> float:
    """Write and commit one epoch; return its seconds."""
    began = time.monotonic()
    commit(committer, epoch, [write(committer, epoch, batches)])
    return time.monotonic() - began


@contextmanager
def _reader(lake: Lake) -> Iterator[Callable[[int], float]]:
    """Yield what returns the CPU-seconds of a scan, in a process of its own: the job's are none of them."""
    with ProcessPoolExecutor(1, get_context("spawn")) as reader:
        yield lambda rows: reader.submit(_scan, lake.table().metadata_location, rows).result()


def _scan(location: str, rows: int) -> float:
    """Return the least CPU-seconds of three scans by DuckDB that read all columns."""

    def scan() -> None:
        found, *_ = scan_by_duckdb(location, "count(*), sum(id), max(name), sum(value)")
        assert found == rows, f"{found} rows of {rows}"

    return min(timed(scan)["cpu_ms"] for _ in range(3)) / 1e3


def _size(lake: Lake) -> dict[str, int]:
    table = lake.table()
    return {"snapshots": len(table.snapshots()), "data_files": len(table.inspect.data_files())}

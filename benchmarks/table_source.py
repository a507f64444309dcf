"""A table as a source, beside Iceberg's Spark runtime: followed into another one; the changes of many snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, Limit, Run, benchmark
from benchmarks.events import FILES, events_folder, session_rows
from benchmarks.lake import Lake, write_epoch
from benchmarks.peers import runtime
from benchmarks.rows import NATIVE, RUNTIME
from volley import IcebergSink, IcebergSource, IcebergSourceConfig, Progress
from volley.iceberg import Incremental, Upsert, changes_between
from volley.iceberg.modes import Strategy

_ROWS_PER_FILE, _FILES_PER_SNAPSHOT = 500_000, 2
_ROWS_PER_SNAPSHOT = _ROWS_PER_FILE * _FILES_PER_SNAPSHOT
_WARM_UP_SNAPSHOTS = 2

_STRATEGIES: tuple[Strategy, ...] = ("copy_on_write", "merge_on_read")
# The first snapshots warm up both.
_FIRST_SNAPSHOTS = 2


def _followed(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Make a table with a snapshot for each epoch, and a small one, once for all runs."""
    files = sorted(events_folder(FILES * _ROWS_PER_FILE, _ROWS_PER_FILE).glob("*.parquet"))
    _fill(Lake(folder), "t", files, (asked.rows + asked.options["before"]) // _ROWS_PER_SNAPSHOT)
    _fill(Lake(folder), "small", files, _WARM_UP_SNAPSHOTS)
    yield {"lake": folder}


def _fill(lake: Lake, name: str, files: list[Path], snapshots: int) -> None:
    """Write snapshots of two files each; after sixteen files the same ones come again."""
    for epoch in range(snapshots):
        chosen = [files[(epoch * _FILES_PER_SNAPSHOT + task) % len(files)] for task in range(_FILES_PER_SNAPSHOT)]
        write_epoch(lake.named(name), epoch, *(pq.ParquetFile(file).iter_batches() for file in chosen))


@benchmark(
    rows=40_000_000,
    repeat=5,
    peers={"volley": NATIVE, "runtime": RUNTIME},
    options={"before": 4_000_000},
    figures=(*RATES, "epochs"),
    prepare=_followed,
    bounds=[Limit("rows_per_cpu_second", "rows per CPU-second", 2.5, beside=RUNTIME)],
)
def table_to_table(run: Run) -> None:
    """Iceberg → Iceberg as a stream, a snapshot of 1 M rows an epoch."""
    before = run.options["before"]
    if run.peer == "runtime":
        per_epoch = {"rows_per_epoch": _ROWS_PER_SNAPSHOT, "files_per_epoch": _FILES_PER_SNAPSHOT}
        run.results.extend(runtime.apart(run, runtime.table, **run.options, **per_epoch))
    else:
        _follow(run, "warm_up", "small", _WARM_UP_SNAPSHOTS * _ROWS_PER_SNAPSHOT)
        run.measure_job(lambda: _follow(run, "benchmark", "t", run.rows + before), before, _ROWS_PER_SNAPSHOT)


def _follow(run: Run, name: str, table: str, rows: int) -> Progress:
    """Run a job until all rows of a table are in another one."""
    mode = Incremental(poll_interval="1s", start_timestamp="2000-01-01")
    config = IcebergSourceConfig(Lake(run.options["lake"]).named(table).ref).with_mode(mode)
    source = IcebergSource(config.with_max_files_per_epoch(_FILES_PER_SNAPSHOT))
    lake = Lake(run.folder)
    job = lake.environment(checkpoint_interval=0).from_source(source).to_sink(IcebergSink(lake.named(name))).start(name)
    while job.progress.rows < rows and not job.wait(0.02):
        pass
    job.stop()
    assert job.progress.rows == rows
    return job.progress


def _changed(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Make the same history by both strategies, once for all runs."""
    rows, snapshots = asked.rows, asked.options["snapshots"]
    keys = int(rows * asked.options["share"])
    for strategy in _STRATEGIES:
        config = Lake(folder).named(strategy)
        ids = np.random.default_rng(7).permutation(rows)
        write_epoch(config.with_max_records(-(-rows // asked.options["files"])), 0, [_rows(ids, 0)])
        upserts = config.with_commit_mode(Upsert("id", strategy=strategy))
        for epoch in range(1, snapshots + _FIRST_SNAPSHOTS + 1):
            changed = np.random.default_rng(epoch).choice(rows, keys, replace=False)
            write_epoch(upserts, epoch, [_rows(changed, epoch)])
    yield {"lake": folder, "changes": 2 * keys * snapshots}


def _rows(ids: np.ndarray[Any, Any], value: int) -> pa.RecordBatch:
    kinds = pa.array(np.array(["click", "view", "purchase"])[ids % 3])
    return session_rows(ids, value).append_column("kind", kinds)


@benchmark(
    rows=200_000,
    repeat=2,
    peers={**{strategy: f"Volley, {strategy}" for strategy in _STRATEGIES}, "runtime": RUNTIME},
    options={"snapshots": 50, "share": 0.01, "files": 4},
    cases={"keys": ("", "id")},
    case="",
    figures=(*RATES[:2], "seconds", "cpu_seconds", *RATES[2:]),
    prepare=_changed,
    bounds=[Limit("rows_per_cpu_second", "changes per CPU-second", 2.0, beside=RUNTIME)],
)
def table_changes(run: Run) -> None:
    """The changes of 50 snapshots that each update 1 % of a table's rows, and the runtime's changelog view."""
    keys, lake = str(run.case), Lake(run.options["lake"])
    run = replace(run, rows=run.options["changes"], case=f"by key {keys}" if keys else "without keys")
    table = lake.named("copy_on_write" if run.peer == "runtime" else run.peer).ref
    snapshots = [snapshot.snapshot_id for snapshot in table.load().snapshots()]
    first, start = snapshots[0], snapshots[_FIRST_SNAPSHOTS]
    if run.peer == "runtime":
        view = "table => 'b.copy_on_write', changelog_view => 'changes'"
        view += f", identifier_columns => array('{keys}')" if keys else ""
        call = f"call volley.system.create_changelog_view({view}, options => map({{}}))"
        warm_up = call.format(f"'start-snapshot-id', '{first}', 'end-snapshot-id', '{start}'")
        given = {"warm_up": warm_up, "statement": call.format(f"'start-snapshot-id', '{start}'")}
        run.results.extend(runtime.apart(run, runtime.sql, lake=lake.folder, view="changes", **given))
        return

    for _ in changes_between(table, first, start, keys or ()).batches():
        pass
    run.measure_scan(lambda: changes_between(table, start, None, keys or ()).batches())

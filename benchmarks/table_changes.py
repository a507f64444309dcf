"""The changes of many snapshots of upserts: Volley's reader on both strategies, the runtime's view on copy-on-write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.lake import Lake, write_epoch
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME
from benchmarks.run import Run
from volley.iceberg import Upsert, changes_between
from volley.iceberg.modes import Strategy

_PEERS = {
    "copy_on_write": "Volley, copy_on_write",
    "merge_on_read": "Volley, merge_on_read",
    "runtime": RUNTIME,
}
_STRATEGIES: tuple[Strategy, ...] = ("copy_on_write", "merge_on_read")
_LEAST = 2.0
# The first snapshots warm up both.
_WARM_UP = 2


def _tables(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Make the same history by both strategies, once for all runs."""
    rows, snapshots = asked.rows or 0, asked.options["snapshots"]
    keys = int(rows * asked.options["share"])
    lake = Lake(folder)
    for strategy in _STRATEGIES:
        config = replace(lake.config, table=strategy)
        ids = np.random.default_rng(7).permutation(rows)
        write_epoch(config.with_max_records(-(-rows // asked.options["files"])), 0, [_rows(ids, 0)])
        upserts = config.with_commit_mode(Upsert("id", strategy=strategy))
        for epoch in range(1, snapshots + _WARM_UP + 1):
            changed = np.random.default_rng(epoch).choice(rows, keys, replace=False)
            write_epoch(upserts, epoch, [_rows(changed, epoch)])
    yield {"lake": folder, "changes": 2 * keys * snapshots}


@benchmark(
    rows=200_000,
    repeat=2,
    peers=_PEERS,
    options={"snapshots": 50, "share": 0.01, "files": 4, "keys": ("", "id")},
    cases="keys",
    figures=(*RATES[:2], "seconds", "cpu_seconds", *RATES[2:]),
    prepare=_tables,
    bounds=lambda row: row.beside(RUNTIME, "rows_per_cpu_second", "changes per CPU-second", least=_LEAST),
)
def table_changes(run: Run) -> None:
    """The changes of 50 snapshots that each update 1 % of a table's rows, and the runtime's changelog view."""
    keys, lake, rows = str(run.case), Lake(run.options["lake"]), run.options["changes"]
    case = f"by key {keys}" if keys else "without keys"
    if run.peer == "runtime":
        found = lake.table("copy_on_write")
        first, start = (found.snapshots()[number].snapshot_id for number in (0, _WARM_UP))
        settings = {"lake": run.options["lake"], "keys": keys, "first": first, "start": start, "case": case}
        run.results.extend(runtime(run, runtime_job.changes, rows=rows, **settings))
        return
    table = replace(lake.config, table=run.peer).ref
    snapshots = [snapshot.snapshot_id for snapshot in table.load().snapshots()]
    _count(changes_between(table, snapshots[0], snapshots[_WARM_UP], keys or ()).batches())

    def work() -> None:
        assert _count(changes_between(table, snapshots[_WARM_UP], keys=keys or ()).batches()) == rows

    run.measure(work, rows=rows, case=case)


def _count(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _rows(ids: np.ndarray[Any, Any], value: int) -> pa.RecordBatch:
    sessions = pa.array([f"session {each:012}" for each in ids])
    kinds = pa.array(np.array(["click", "view", "purchase"])[ids % 3])
    return pa.record_batch(
        {"id": ids, "session": sessions, "kind": kinds, "value": np.full(len(ids), value), "amount": ids * 0.37}
    )

"""Upserting keys into a large table beside MERGE INTO and pyiceberg, and into a file by the share that is replaced."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Run, benchmark
from benchmarks.events import named_rows, session_rows, write_files
from benchmarks.lake import Lake, scan_by_duckdb, write_epoch
from benchmarks.measure import timed
from benchmarks.peers import runtime
from tests.duck import duckdb_with_iceberg
from volley import FileSource, IcebergSink, IcebergSinkConfig
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

_MERGE, _COPY = "merge_on_read", "copy_on_write"
_PART, _INPUT_FILES = 1_000_000, 4
_COSTS = ("upsert", "pyiceberg", "duckdb")


@benchmark(
    rows=10_000_000,
    peers={
        **{_MERGE: "Volley, merge_on_read", _COPY: "Volley, copy_on_write"},
        **{"runtime": "Spark MERGE INTO", "pyiceberg": "pyiceberg Table.upsert"},
    },
    # Nine in ten keys are in the table; pyiceberg gets as many as it can finish.
    options={"keys": 1_000_000, "pyiceberg_keys": 10_000},
    figures=("rows_per_second", "rows_per_cpu_second", "rows", "seconds", "cpu_seconds", *RATES[2:]),
    plots=("seconds", "cpu_seconds"),
)
def upsert(run: Run) -> None:
    """Upsert of many keys into a large table, beside MERGE INTO and pyiceberg: seconds, memory of the driver."""
    keys, lake = run.options["pyiceberg_keys" if run.peer == "pyiceberg" else "keys"], Lake(run.folder)
    # An upsert into the small table warms the session up.
    _make(lake, "small", 1_000)
    _input(lake, "few", 1_000, 100)
    _make(lake, "large", run.rows)
    _input(lake, "many", run.rows, keys)
    match run.peer:
        case "runtime":
            # The table's properties ask for merge-on-read.
            given = {"warm_up": _merge_into(lake, "small", "few"), "statement": _merge_into(lake, "large", "many")}
            run.results.extend(runtime.apart(replace(run, rows=keys), runtime.sql, lake=lake.folder, **given))
        case "pyiceberg":
            table, changes = lake.table("large"), pq.read_table(lake.folder / "many")
            run.measure(lambda: table.upsert(changes, join_cols=["id"]), rows=keys)
        case strategy:
            _job(lake, "small", "few", strategy)
            run.measure(lambda: _job(lake, "large", "many", strategy), rows=keys)
    found = lake.table("large").scan(selected_fields=("id", "value")).to_arrow()
    assert len(found["id"].unique()) == found.num_rows
    _check(found, run.rows + keys // 10, keys)


def _make(lake: Lake, table: str, rows: int) -> None:
    """A table with ids in no order, a file for each million."""
    merge = {f"write.{verb}.mode": "merge-on-read" for verb in ("merge", "delete", "update")}
    ids = np.random.default_rng(7).permutation(rows)
    parts = [ids[start : start + _PART] for start in range(0, rows, _PART)]
    write_epoch(lake.named(table).with_table_properties(merge), 0, *([named_rows(part, 0.0)] for part in parts))


def _input(lake: Lake, name: str, rows: int, keys: int) -> None:
    """The changes: ids spread over the whole table, one in ten is new."""
    old = np.random.default_rng(8).choice(rows, keys - keys // 10, replace=False)
    ids = np.random.default_rng(9).permutation(np.concatenate([old, np.arange(rows, rows + keys // 10)]))
    parts = np.array_split(ids, _INPUT_FILES)
    write_files(lake.folder / name, len(parts), lambda file: pa.Table.from_batches([named_rows(parts[file], 1.0)]))


def _merge_into(lake: Lake, table: str, changes: str) -> str:
    return (
        f"merge into volley.b.{table} t using parquet.`{lake.folder / changes}` c on t.id = c.id "
        "when matched then update set * when not matched then insert *"
    )


def _job(lake: Lake, table: str, changes: str, strategy: str) -> None:
    rows = lake.environment("local[2]").from_source(FileSource(lake.folder / changes, format="parquet"))
    rows.to_sink(IcebergSink(_upserting(lake.named(table), strategy))).execute(table)


@benchmark(
    rows=1_000_000,
    options={"shares": (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8), "runs": 3},
    case="share",
    figures=(*_COSTS, "even_after_pyiceberg", "even_after_duckdb"),
    plots=_COSTS,
)
def upsert_strategy(run: Run) -> None:
    """Merge-on-read and copy-on-write over the replaced share of a file: CPU of the upsert and of scans after it."""
    # All in one warm process; the least of some runs is the work itself.
    duckdb_with_iceberg()
    shares = run.options["shares"]
    for strategy in (_MERGE, _COPY):
        _costs(run, shares[-1], strategy)
    for share in shares:
        runs = [[_costs(run, share, strategy) for strategy in (_MERGE, _COPY)] for _ in range(run.options["runs"])]
        merge, copy = (
            {name: min(costs[name] for costs in each) for name in _COSTS} for each in zip(*runs, strict=True)
        )
        even = {f"even_after_{scan}": _even(merge, copy, scan) for scan in _COSTS[1:]}
        run.record(_MERGE, share, **merge)
        run.record(_COPY, share, **copy, **even)


def _even(merge: dict[str, float], copy: dict[str, float], scan: str) -> float | None:
    """After how many scans copy-on-write has cost no more; None if never."""
    dearer, saved = copy["upsert"] - merge["upsert"], merge[scan] - copy[scan]
    return 0.0 if dearer <= 0 else dearer / saved if saved > 0 else None


def _costs(run: Run, share: float, strategy: str) -> dict[str, float]:
    """CPU-seconds of staging, merging, replacing and committing; of a scan of the whole table; of another engine's."""
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        lake, rows = Lake(folder), run.rows
        ids, keys = np.random.default_rng(7).permutation(rows), int(rows * share)
        write_epoch(lake.config, 0, [session_rows(ids, 0.0)])
        changed = session_rows(np.random.default_rng(8).choice(ids, keys, replace=False), 1.0)

        def by_duckdb() -> None:
            counted = scan_by_duckdb(table.metadata_location, "count(*), sum(value), max(session), max(more)")
            assert counted[:2] == (rows, keys)

        costs = timed(lambda: write_epoch(_upserting(lake.config, strategy), 1, [changed]))
        table = lake.table()
        scans = (timed(lambda: _check(table.scan().to_arrow(), rows, keys)), timed(by_duckdb))
        return {name: each["cpu_ms"] / 1e3 for name, each in zip(_COSTS, (costs, *scans), strict=True)}


def _upserting(config: IcebergSinkConfig, strategy: str) -> IcebergSinkConfig:
    return config.with_commit_mode(Upsert("id", strategy=cast(Strategy, strategy)))


def _check(found: pa.Table, rows: int, keys: int) -> None:
    """All rows are there, and those of the upsert are new."""
    assert found.num_rows == rows
    assert sum(found["value"].to_numpy()) == keys

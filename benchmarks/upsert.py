"""Upserting keys into a large table: Volley's two strategies, Spark's MERGE INTO, and pyiceberg's own upsert."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, benchmark
from benchmarks.lake import QUERY, Lake, open_sink, write
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.run import Run
from volley import Environment, Epoch, FileSource, IcebergSink
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

_SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "value": pa.float64()})
_PART = 1_000_000
_INPUT_FILES = 4


@benchmark(
    rows=10_000_000,
    peers={
        "merge_on_read": "Volley, merge_on_read",
        "copy_on_write": "Volley, copy_on_write",
        "runtime": "Spark MERGE INTO",
        "pyiceberg": "pyiceberg Table.upsert",
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
            run.results.extend(runtime(run, runtime_job.merge, lake=lake.folder, keys=keys))
        case "pyiceberg":
            table, changes = lake.table("large"), pq.read_table(lake.folder / "many")

            def by_pyiceberg() -> None:
                table.upsert(changes, join_cols=["id"])

            run.measure(by_pyiceberg, rows=keys)
        case strategy:
            _job(lake, "small", "few", strategy)
            run.measure(lambda: _job(lake, "large", "many", strategy), rows=keys)
    _check(lake, run.rows, keys)


def _job(lake: Lake, table: str, changes: str, strategy: str) -> None:
    """One job of one epoch."""
    config = replace(lake.config, table=table).with_commit_mode(Upsert("id", strategy=cast(Strategy, strategy)))
    (
        Environment("local[2]", checkpoint_dir=str(lake.folder / "checkpoints"))
        .from_source(FileSource(str(lake.folder / changes), format="parquet"))
        .to_sink(IcebergSink(config))
        .execute(table)
    )


def _rows(ids: np.ndarray[Any, Any], value: float) -> pa.RecordBatch:
    names = [f"name of {each}" for each in ids]
    return pa.record_batch([ids, names, np.full(len(ids), value)], schema=_SCHEMA)


def _make(lake: Lake, table: str, rows: int) -> None:
    """A table with ids in no order, a file for each million."""
    merge = {f"write.{verb}.mode": "merge-on-read" for verb in ("merge", "delete", "update")}
    committer = open_sink(replace(lake.config, table=table).with_table_properties(merge), _SCHEMA)
    ids = np.random.default_rng(7).permutation(rows)
    parts = (_rows(ids[start : start + _PART], 0.0) for start in range(0, rows, _PART))
    committer.commit(Epoch(QUERY, 0), [write(committer, 0, [part], task) for task, part in enumerate(parts)])


def _input(lake: Lake, name: str, rows: int, keys: int) -> None:
    """The changes: ids spread over the whole table, one in ten is new."""
    folder: Path = lake.folder / name
    folder.mkdir()
    old = np.random.default_rng(8).choice(rows, keys - keys // 10, replace=False)
    ids = np.concatenate([old, np.arange(rows, rows + keys // 10)])
    for number, part in enumerate(np.array_split(np.random.default_rng(9).permutation(ids), _INPUT_FILES)):
        pq.write_table(pa.Table.from_batches([_rows(part, 1.0)]), folder / f"{number}.parquet")


def _check(lake: Lake, rows: int, keys: int) -> None:
    """All rows are there once, and those of the upsert are new."""
    found = lake.table("large").scan(selected_fields=("id", "value")).to_arrow()
    assert found.num_rows == len(found["id"].unique()) == rows + keys // 10
    assert sum(found["value"].to_numpy()) == keys

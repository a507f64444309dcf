"""Upserting keys into a large table: Volley's two strategies, Spark's MERGE INTO, and pyiceberg's own upsert."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing, runtime
from benchmarks.report import Report
from volley import Environment, Epoch, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Metrics, SinkContext
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

SUMMARY = "upsert of many keys into a large table, beside MERGE INTO and pyiceberg: seconds, memory of the driver"
OURS = ("merge_on_read", "copy_on_write")
PEERS = (*OURS, "merge_into", "pyiceberg")

_SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "value": pa.float64()})
_PART = 1_000_000
_INPUT_FILES = 4


def run(arguments: list[str]) -> None:
    """One run of each peer, each in a process and on a table of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks upsert", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--keys", type=int, default=1_000_000, help="rows of the upsert; nine in ten are in the table")
    parser.add_argument("--pyiceberg-keys", type=int, default=10_000, help="as many as pyiceberg can finish")
    asked = parser.parse_args(arguments)
    report = Report("upsert", "what", "keys", "seconds", "CPU-s", "driver peak MB", "worker peak MB")
    for peer in PEERS:
        keys = asked.pyiceberg_keys if peer == "pyiceberg" else asked.keys
        if peer == "merge_into" and (reason := missing()):
            report.row(peer, f"skipped: {reason.splitlines()[0]}")
            continue
        seen = in_own_process("benchmarks.upsert", peer, str(asked.rows), str(keys))
        figures = f"{seen.seconds:.1f}", f"{seen.cpu_seconds:.1f}", f"{seen.driver_mb:,.0f}"
        report.add(seen, seen.name, f"{keys:,}", *figures, f"{seen.worker_mb:,.0f}")
    report.print()


def ours(strategy: str, rows: int, keys: int) -> Result:
    """One job of one epoch, in a session that has run a small one before."""
    with _lake() as lake:

        def job(config: IcebergSinkConfig, folder: Path) -> None:
            (
                Environment("local[2]", checkpoint_dir=str(lake / "checkpoints"))
                .from_source(FileSource(str(folder), format="parquet"))
                .to_sink(IcebergSink(config.with_commit_mode(Upsert("id", strategy=cast(Strategy, strategy)))))
                .execute(config.table)
            )

        job(_made(lake, "small", 1_000), _input(lake, "few", 1_000, 100))
        config, folder = _made(lake, "large", rows), _input(lake, "many", rows, keys)

        def work() -> dict[str, Any]:
            job(config, folder)
            return {}

        result = measured(f"Volley, {strategy}", keys, work)
        _check(lake, rows, keys)
    return result


def pyiceberg(rows: int, keys: int) -> Result:
    """pyiceberg's own, in one process."""
    with _lake() as lake:
        _made(lake, "large", rows)
        table, changes = _load(lake), pq.read_table(_input(lake, "many", rows, keys))

        def work() -> dict[str, Any]:
            table.upsert(changes, join_cols=["id"])
            return {}

        result = measured("pyiceberg Table.upsert", keys, work)
        _check(lake, rows, keys)
    return result


def merge_into(rows: int, keys: int) -> Result:
    """Spark's MERGE INTO with Iceberg's own runtime, merge-on-read, as warm as ours."""
    with _lake() as lake:
        _made(lake, "small", 1_000)
        _input(lake, "few", 1_000, 100)
        _made(lake, "large", rows)
        _input(lake, "many", rows, keys)
        result = runtime("merge", lake=lake, rows=keys)
        _check(lake, rows, keys)
    return replace(result, name="Spark MERGE INTO")


@contextmanager
def _lake() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="volley-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _rows(ids: np.ndarray[Any, Any], value: float) -> pa.RecordBatch:
    names = [f"name of {each}" for each in ids]
    return pa.record_batch([ids, names, np.full(len(ids), value)], schema=_SCHEMA)


def _made(lake: Path, table: str, rows: int) -> IcebergSinkConfig:
    """A table with ids in no order, a file for each million."""
    config = IcebergSinkConfig(namespace="b", table=table, storage=IcebergStorage.Local(str(lake)))
    merge = {f"write.{verb}.mode": "merge-on-read" for verb in ("merge", "delete", "update")}
    committer = IcebergSink(config.with_table_properties(merge)).open(SinkContext("b", _SCHEMA, Metrics()))
    ids = np.random.default_rng(7).permutation(rows)
    results = []
    for start in range(0, rows, _PART):
        task = committer.writer(Epoch("00000000", 0)).open(start // _PART)
        task.write(_rows(ids[start : start + _PART], 0.0))
        results.append(task.close())
    committer.commit(Epoch("00000000", 0), results)
    return config


def _input(lake: Path, name: str, rows: int, keys: int) -> Path:
    """The changes: ids spread over the whole table, one in ten is new."""
    folder = lake / name
    folder.mkdir()
    old = np.random.default_rng(8).choice(rows, keys - keys // 10, replace=False)
    ids = np.concatenate([old, np.arange(rows, rows + keys // 10)])
    for number, part in enumerate(np.array_split(np.random.default_rng(9).permutation(ids), _INPUT_FILES)):
        pq.write_table(pa.Table.from_batches([_rows(part, 1.0)]), folder / f"{number}.parquet")
    return folder


def _load(lake: Path) -> Table:
    catalog = SqlCatalog("volley", uri=f"sqlite:///{lake}/catalog.db")
    try:
        return catalog.load_table("b.large")
    finally:
        catalog.close()


def _check(lake: Path, rows: int, keys: int) -> None:
    """All rows are there once, and those of the upsert are new."""
    found = _load(lake).scan(selected_fields=("id", "value")).to_arrow()
    assert found.num_rows == len(found["id"].unique()) == rows + keys // 10
    assert sum(found["value"].to_numpy()) == keys


def main() -> None:
    """One run of one peer; prints its Result."""
    arguments = argparse.ArgumentParser(description=SUMMARY)
    arguments.add_argument("peer", choices=PEERS)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("keys", type=int)
    asked = arguments.parse_args()
    if asked.peer == "merge_into":
        print_result(merge_into(asked.rows, asked.keys))
    elif asked.peer == "pyiceberg":
        print_result(pyiceberg(asked.rows, asked.keys))
    else:
        print_result(ours(asked.peer, asked.rows, asked.keys))


if __name__ == "__main__":
    main()

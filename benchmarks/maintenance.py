"""Compaction and expiry beside Iceberg's Spark runtime; commits and scans of tables that their job maintains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from benchmarks.benchmark import RATES, Limit, Run, benchmark
from benchmarks.events import NAMED, batches, events_folder, named_rows
from benchmarks.lake import Lake, commit, open_sink, scan_by_duckdb, write, write_epoch
from benchmarks.measure import timed
from benchmarks.peers import runtime
from benchmarks.rows import RUNTIME
from volley import Environment, IcebergSinkConfig
from volley.iceberg import IcebergTable, Maintenance, SnapshotManager, Upsert
from volley.iceberg.maintain.committer import MaintainingCommitter
from volley.iceberg.pyiceberg_private.entries import data_file
from volley.iceberg.pyiceberg_private.manifests import manifest_writer
from volley.iceberg.pyiceberg_private.producer import added_entry
from volley.iceberg.schema.types import to_iceberg_schema

_IN_PROCESS = "Volley, in this process"
_ROWS_PER_FILE, _FEW_FILES = 4_000, 20
_TARGET_BYTES = 128 << 20

_ICEBERG_SCHEMA = to_iceberg_schema(pa.schema({"id": pa.int64()}))
_FILES, _WINDOW, _WARM_UP = 10, 100, 110
_VOLLEY = "Volley"


@benchmark(
    repeat=3,
    peers={"volley": _IN_PROCESS, "executors": "Volley, on Spark's executors", "runtime": RUNTIME},
    cases={"files": (400, 1_000)},
    figures=(*RATES[:2], "seconds", "cpu_seconds", "files_after", *RATES[2:]),
    bounds=[Limit("rows_per_cpu_second", "rows per CPU-second", 4.0, of=_IN_PROCESS, beside=RUNTIME)],
)
def compaction(run: Run) -> None:
    """Compacting 400 and 1,000 files of 4,000 rows each, beside the runtime's rewrite_data_files."""
    lake, files = Lake(run.folder), int(run.case)
    rows = files * _ROWS_PER_FILE
    _write(lake, "small", _FEW_FILES)
    _write(lake, "t", files)
    if run.peer == "runtime":
        options = f"options => map('target-file-size-bytes', '{_TARGET_BYTES}')"
        _by_runtime(replace(run, rows=rows), "rewrite_data_files", options)
    else:
        runner = Environment("local[*]").task_runner() if run.peer == "executors" else None
        small, table = (IcebergTable(lake.named(name).ref) for name in ("small", "t"))
        small.compact(target_size=_TARGET_BYTES, run=runner)
        run.measure(lambda: {"rows": table.compact(target_size=_TARGET_BYTES, run=runner).rows})
    compacted = lake.table().inspect.data_files()
    assert sum(compacted["record_count"].to_pylist()) == rows
    run.results[-1].figures["files_after"] = len(compacted)


def _by_runtime(run: Run, procedure: str, options: str) -> None:
    small, table = (f"call volley.system.{procedure}(table => 'b.{name}', {options})" for name in ("small", "t"))
    run.results.extend(runtime.apart(run, runtime.sql, lake=run.folder, warm_up=small, statement=table))


def _write(lake: Lake, name: str, files: int) -> None:
    rows = files * _ROWS_PER_FILE
    write_epoch(lake.named(name).with_max_records(_ROWS_PER_FILE), 0, batches(events_folder(rows, rows)))
    assert len(lake.table(name).inspect.data_files()) == files


@benchmark(
    peers={"volley": _VOLLEY, "runtime": RUNTIME},
    cases={"snapshots": (1_000, 10_000)},
    figures=("cpu_seconds", "seconds", "driver_mb", "jvm_mb", "rows"),
    plots=("cpu_seconds",),
    bounds=[
        Limit("driver_mb", "MB", most=500, of=_VOLLEY),
        Limit("cpu_seconds", "CPU-seconds", most=1, beside=RUNTIME),
    ],
)
def expiry(run: Run) -> None:
    """Expiring 10,000 snapshots of 100 manifests, down to the last 100; rows are data files that go."""
    count, lake = int(run.case), Lake(run.folder)
    lake.catalog().create_namespace("b")
    _make(lake, "small", _WARM_UP)
    _make(lake, "t", count)
    # The process that is measured has not made the tables.
    goes = replace(run, rows=(count - _WINDOW) * _FILES)
    if run.peer == "runtime":
        _by_runtime(goes, "expire_snapshots", f"older_than => current_timestamp(), retain_last => {_WINDOW}")
    else:
        run.results.extend(goes.apart(expire, options={"lake": run.folder}))
    assert len(lake.table().snapshots()) == _WINDOW


def expire(run: Run) -> None:
    """The snapshots of a table before the last ones, by Volley, after those of a small one."""
    small, table = (SnapshotManager(Lake(run.options["lake"]).named(name).ref) for name in ("small", "t"))
    small.expire_snapshots(0, _WINDOW)
    run.measure(lambda: table.expire_snapshots(0, _WINDOW))


def _make(lake: Lake, name: str, count: int) -> None:
    """A table whose snapshots each add a manifest of some data files, and drop the oldest of a hundred manifests."""
    location = f"file://{lake.folder}/b/{name}"
    table = lake.catalog().create_table(("b", f"{name}_empty"), _ICEBERG_SCHEMA)
    Path(lake.folder, "b", name, "metadata").mkdir(parents=True)
    snapshots, manifests = list[Snapshot](), list[ManifestFile]()
    for number in range(1, count + 1):
        manifests = [*manifests[1 - _WINDOW :], _manifest(table, location, number)]
        snapshots.append(_snapshot(table, location, number, manifests))
    main = SnapshotRef.model_validate({"snapshot-id": count, "type": SnapshotRefType.BRANCH})
    changes = {"current_snapshot_id": count, "refs": {"main": main}, "location": location}
    lake.register(name, table.metadata, snapshots, **changes)


def _snapshot(table: Table, location: str, number: int, manifests: list[ManifestFile]) -> Snapshot:
    path, parent = f"{location}/metadata/snap-{number}.avro", number - 1 or None
    with write_manifest_list(2, table.io.new_output(path), number, parent, number, "deflate") as writer:
        writer.add_manifests(manifests)
    ids = {"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": number}
    return Snapshot.model_validate({**ids, "manifest-list": path, "summary": {"operation": "append"}, "schema-id": 0})


def _manifest(table: Table, location: str, number: int) -> ManifestFile:
    output = table.io.new_output(f"{location}/metadata/{number}-m0.avro")
    with manifest_writer(2, UNPARTITIONED_PARTITION_SPEC, _ICEBERG_SCHEMA, output, number, "deflate") as writer:
        for file in range(_FILES):
            path = f"{location}/data/00000-{number}-{file}.parquet"
            writer.add(added_entry(data_file(path, "PARQUET", 0, (), 1_000, 10_000), number))
    return writer.to_manifest_file()


_ROWS_A_COMMIT = 10
_PART = 500_000
_HOUR = 3_600


@benchmark(
    # Simulated seconds of one commit each, and how many of them pass in a second.
    options={"commits": 20_000, "speed": 40},
    case="hour",
    figures=("p50_cpu_ms", "p50_ms", "scan_ms", "snapshots", "data_files", "cpu_seconds"),
    plots=("p50_cpu_ms", "scan_ms"),
    bounds=[
        Limit(figure, figure, most=1.3, beside_case=1, times="× the first hour's")
        for figure in ("p50_cpu_ms", "scan_ms")
    ],
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
            figures["scan_ms"] = 1_000 * scan(epochs.stop * _ROWS_A_COMMIT)
            table = lake.table()
            figures |= {"snapshots": len(table.snapshots()), "data_files": len(table.inspect.data_files())}


def _hour(committer: MaintainingCommitter, epochs: range, speed: float) -> dict[str, Any]:
    seconds, cpu_seconds = list[float](), list[float]()
    for epoch in epochs:
        ids, began = np.arange(epoch * _ROWS_A_COMMIT, (epoch + 1) * _ROWS_A_COMMIT), time.thread_time()
        seconds.append(_commit(committer, epoch, [named_rows(ids, 0.0)]))
        cpu_seconds.append(time.thread_time() - began)
        time.sleep(max(0.0, 1 / speed - seconds[-1]))
    p50, p50_cpu = (1_000 * statistics.median(each) for each in (seconds, cpu_seconds))
    return {"p50_ms": p50, "p50_cpu_ms": p50_cpu}


@benchmark(
    rows=10_000_000,
    # Rows and seconds of an epoch; every how many of them the table is read; the size of data files.
    options={"epochs": 500, "keys": 1_000, "seconds": 1.0, "reads": 5, "target_mb": 16.0},
    cases={"deletes_above": (0.005, 0.05)},
    figures=("scan_worst", "scan_mean", "fresh_ms", "p50_ms", "maintenance_seconds", "cpu_seconds"),
    bounds=[Limit("scan_worst", "× a fresh table's scan, at worst", most=1.5, case=0.005)],
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
    """Return the seconds that it takes."""
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

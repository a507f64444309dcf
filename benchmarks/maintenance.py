"""Maintenance beside Iceberg's Spark runtime: compaction of small files, expiry of old snapshots with their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from benchmarks.benchmark import RATES, Limit, Run, benchmark, within
from benchmarks.events import batches, events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME
from volley import Environment
from volley.iceberg import IcebergTable, SnapshotManager
from volley.iceberg.pyiceberg_private.entries import data_file
from volley.iceberg.pyiceberg_private.manifests import manifest_writer
from volley.iceberg.pyiceberg_private.producer import added_entry
from volley.iceberg.schema.types import to_iceberg_schema

_IN_PROCESS = "Volley, in this process"
_ROWS_PER_FILE, _FEW_FILES = 4_000, 20
_TARGET_BYTES = 128 << 20

_SCHEMA = to_iceberg_schema(pa.schema({"id": pa.int64()}))
_FILES, _WINDOW, _WARM_UP = 10, 100, 110
_VOLLEY = "Volley"


@benchmark(
    repeat=3,
    peers={"volley": _IN_PROCESS, "executors": "Volley, on Spark's executors", "runtime": RUNTIME},
    options={"files": (400, 1_000)},
    cases="files",
    case="files",
    figures=(*RATES[:2], "seconds", "cpu_seconds", "files_after", *RATES[2:]),
    bounds=within(Limit("rows_per_cpu_second", "rows per CPU-second", 4.0, of=_IN_PROCESS, beside=RUNTIME)),
)
def compaction(run: Run) -> None:
    """Compacting 400 and 1,000 files of 4,000 rows each, beside the runtime's rewrite_data_files."""
    lake, files = Lake(run.folder), int(run.case)
    rows = files * _ROWS_PER_FILE
    _write(lake, "small", _FEW_FILES)
    _write(lake, "t", files)
    if run.peer == "runtime":
        procedure = f"rewrite_data_files(options => map('target-file-size-bytes', '{_TARGET_BYTES}')"
        given = {"lake": run.folder, "procedure": procedure}
        run.results.extend(runtime(replace(run, rows=rows), runtime_job.maintain, **given))
    else:
        runner = Environment("local[*]").task_runner() if run.peer == "executors" else None
        small, table = (IcebergTable(lake.named(name).ref) for name in ("small", "t"))
        small.compact(target_size=_TARGET_BYTES, run=runner)
        run.measure(lambda: {"rows": table.compact(target_size=_TARGET_BYTES, run=runner).rows})
    compacted = lake.table().inspect.data_files()
    assert sum(compacted["record_count"].to_pylist()) == rows
    run.results[-1].figures["files_after"] = len(compacted)


def _write(lake: Lake, name: str, files: int) -> None:
    """Write a table of small files in one epoch."""
    rows = files * _ROWS_PER_FILE
    write_epoch(lake.named(name).with_max_records(_ROWS_PER_FILE), 0, batches(events_folder(rows, rows)))
    assert len(lake.table(name).inspect.data_files()) == files


@benchmark(
    peers={"volley": _VOLLEY, "runtime": RUNTIME},
    options={"snapshots": (1_000, 10_000)},
    cases="snapshots",
    case="snapshots",
    figures=("cpu_seconds", "seconds", "driver_mb", "jvm_mb", "rows"),
    plots=("cpu_seconds",),
    bounds=within(
        Limit("driver_mb", "MB", most=500, of=_VOLLEY), Limit("cpu_seconds", "CPU-seconds", most=1, beside=RUNTIME)
    ),
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
        procedure = f"expire_snapshots(older_than => current_timestamp(), retain_last => {_WINDOW}"
        run.results.extend(runtime(goes, runtime_job.maintain, lake=run.folder, procedure=procedure))
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
    catalog, location = lake.catalog(), f"file://{lake.folder}/b/{name}"
    table = catalog.create_table(("b", f"{name}_empty"), _SCHEMA)
    Path(lake.folder, "b", name, "metadata").mkdir(parents=True)
    snapshots: list[Snapshot] = []
    manifests: list[ManifestFile] = []
    for number in range(1, count + 1):
        manifests = [*manifests[1 - _WINDOW :], _manifest(table, location, number)]
        snapshots.append(_snapshot(table, location, number, manifests))
    log = [SnapshotLogEntry.model_validate(snapshot.model_dump(by_alias=True)) for snapshot in snapshots]
    changed = {
        **{"snapshots": snapshots, "snapshot_log": log, "current_snapshot_id": count, "last_sequence_number": count},
        "refs": {"main": SnapshotRef.model_validate({"snapshot-id": count, "type": SnapshotRefType.BRANCH})},
        "location": location,
    }
    path = f"{location}/metadata/00001-made.metadata.json"
    Path(path.removeprefix("file://")).write_text(table.metadata.model_copy(update=changed).model_dump_json())
    catalog.register_table(("b", name), path)


def _snapshot(table: Table, location: str, number: int, manifests: list[ManifestFile]) -> Snapshot:
    path, parent = f"{location}/metadata/snap-{number}.avro", number - 1 or None
    with write_manifest_list(2, table.io.new_output(path), number, parent, number, "deflate") as writer:
        writer.add_manifests(manifests)
    fields = {
        **{"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": number},
        **{"manifest-list": path, "summary": {"operation": "append"}, "schema-id": 0},
    }
    return Snapshot.model_validate(fields)


def _manifest(table: Table, location: str, number: int) -> ManifestFile:
    output = table.io.new_output(f"{location}/metadata/{number}-m0.avro")
    with manifest_writer(2, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, output, number, "deflate") as writer:
        for file in range(_FILES):
            path = f"{location}/data/00000-{number}-{file}.parquet"
            writer.add(added_entry(data_file(path, "PARQUET", 0, (), 1_000, 10_000), number))
    return writer.to_manifest_file()

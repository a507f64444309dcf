"""Measures the expiry of old snapshots with their files, beside Iceberg's Spark runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from benchmarks.benchmark import benchmark
from benchmarks.lake import Lake
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME, Bound, Row
from benchmarks.run import Run
from volley.iceberg import SnapshotManager
from volley.iceberg.pyiceberg_private.entries import data_file
from volley.iceberg.pyiceberg_private.manifests import manifest_writer
from volley.iceberg.pyiceberg_private.producer import added_entry
from volley.iceberg.schema.types import to_iceberg_schema

_SCHEMA = to_iceberg_schema(pa.schema({"id": pa.int64()}))
_FILES, _WINDOW, _WARM_UP = 10, 100, 110
_MOST_MB, _MOST_OF_RUNTIME = 500, 1.0
_PEERS = {"volley": "Volley", "runtime": RUNTIME}


def _bounds(row: Row) -> Iterator[Bound]:
    if row.peer != RUNTIME:
        yield from row.below("driver_mb", _MOST_MB, "MB")
        yield from row.beside(RUNTIME, "cpu_seconds", "CPU-seconds", most=_MOST_OF_RUNTIME)


@benchmark(
    peers=_PEERS,
    options={"snapshots": (1_000, 10_000)},
    cases="snapshots",
    case="snapshots",
    figures=("cpu_seconds", "seconds", "driver_mb", "jvm_mb", "rows"),
    plots=("cpu_seconds",),
    bounds=_bounds,
)
def expiry(run: Run) -> None:
    """Expiring 10,000 snapshots of 100 manifests, down to the last 100; rows are data files that go."""
    count, lake = int(run.case), Lake(run.folder)
    lake.catalog().create_namespace("b")
    _make(lake, "small", _WARM_UP)
    _make(lake, "t", count)
    gone = (count - _WINDOW) * _FILES
    # The process that is measured has not made the tables.
    given = {"rows": gone, "lake": str(run.folder), "keep": _WINDOW}
    found = runtime(run, runtime_job.expire, **given) if run.peer == "runtime" else run.apart(expire, options=given)
    run.results.extend(replace(each, case=run.case) for each in found)
    assert len(lake.table().snapshots()) == _WINDOW


def expire(run: Run) -> None:
    """The snapshots of a table before the last ones, by Volley."""
    config, keep = Lake(run.options["lake"]).config, run.options["keep"]
    for table in ("small", "t"):
        manager = SnapshotManager(replace(config, table=table).ref)
        run.measure(partial(_expire, manager, keep), rows=run.options["rows"])
    # The first one warms up.
    del run.results[0]


def _expire(manager: SnapshotManager, keep: int) -> None:
    manager.expire_snapshots(0, keep)


def _make(lake: Lake, name: str, count: int) -> None:
    """A table whose snapshots each add a manifest of some data files, and drop the oldest of a hundred manifests."""
    catalog = lake.catalog()
    table = catalog.create_table(("b", f"{name}_empty"), _SCHEMA)
    snapshots = _snapshots(table, lake.folder / "b" / name, count)
    last = snapshots[-1].snapshot_id
    changed = {
        **{"snapshots": snapshots, "current_snapshot_id": last, "last_sequence_number": last},
        "snapshot_log": [_logged(each) for each in snapshots],
        "refs": {"main": SnapshotRef.model_validate({"snapshot-id": last, "type": SnapshotRefType.BRANCH})},
        "location": f"file://{lake.folder}/b/{name}",
    }
    path = lake.folder / "b" / name / "metadata" / "00001-made.metadata.json"
    path.write_text(table.metadata.model_copy(update=changed).model_dump_json())
    catalog.register_table(("b", name), f"file://{path}")


def _logged(snapshot: Snapshot) -> SnapshotLogEntry:
    fields = {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.timestamp_ms}
    return SnapshotLogEntry.model_validate(fields)


def _snapshots(table: Table, folder: Path, count: int) -> list[Snapshot]:
    (folder / "metadata").mkdir(parents=True)
    snapshots: list[Snapshot] = []
    manifests: list[ManifestFile] = []
    for number in range(1, count + 1):
        manifests = [*manifests[1 - _WINDOW :], _manifest(table, folder, number)]
        path = f"file://{folder}/metadata/snap-{number}.avro"
        parent = number - 1 or None
        with write_manifest_list(2, table.io.new_output(path), number, parent, number, "deflate") as writer:
            writer.add_manifests(manifests)
        fields = {
            **{"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number},
            **{"timestamp-ms": number, "manifest-list": path, "summary": {"operation": "append"}, "schema-id": 0},
        }
        snapshots.append(Snapshot.model_validate(fields))
    return snapshots


def _manifest(table: Table, folder: Path, number: int) -> ManifestFile:
    output = table.io.new_output(f"file://{folder}/metadata/{number}-m0.avro")
    with manifest_writer(2, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, output, number, "deflate") as writer:
        for file in range(_FILES):
            path = f"file://{folder}/data/00000-{number}-{file}.parquet"
            writer.add(added_entry(data_file(path, "PARQUET", 0, (), 1_000, 10_000), number))
    return writer.to_manifest_file()

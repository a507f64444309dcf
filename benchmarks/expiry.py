"""What it takes to find the files that nobody needs once a table's old snapshots have expired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.snapshots import Snapshot

from benchmarks.benchmark import benchmark
from benchmarks.lake import Lake
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from volley.iceberg.maintain.unneeded import unneeded_files
from volley.iceberg.pyiceberg_private.entries import data_file
from volley.iceberg.pyiceberg_private.manifests import manifest_writer
from volley.iceberg.pyiceberg_private.producer import added_entry
from volley.iceberg.schema.types import to_iceberg_schema

_SCHEMA = to_iceberg_schema(pa.schema({"id": pa.int64()}))
_FILES, _WINDOW = 10, 100
_MOST_MB, _MOST_CPU_SECONDS = 500, 20


def _bounds(row: Row) -> Iterator[Bound]:
    if row.case == 10_000:
        yield from row.below("cpu_seconds", _MOST_CPU_SECONDS, "CPU-seconds")
        yield from row.below("driver_mb", _MOST_MB, "MB")


@benchmark(
    options={"snapshots": (1_000, 10_000)},
    cases="snapshots",
    case="snapshots",
    figures=("cpu_seconds", "seconds", "driver_mb", "rows"),
    plots=("cpu_seconds",),
    bounds=_bounds,
)
def expiry(run: Run) -> None:
    """Finding the files of 10,000 expired snapshots of 100 manifests; rows are files (target: linear, below 500 MB)."""
    count, lake = int(run.case), Lake(run.folder)
    catalog = lake.catalog()
    catalog.create_namespace("b")
    io = catalog.create_table(("b", "t"), _SCHEMA).io
    snapshots = _snapshots(io, run.folder, count)
    expired, kept = snapshots[:-_WINDOW], snapshots[-_WINDOW:]
    run.measure(lambda: {"rows": len(unneeded_files(io, expired, kept))})


def _snapshots(io: FileIO, folder: Path, count: int) -> list[Snapshot]:
    """Write snapshots that each add a manifest of some data files, and drop the manifest that is the oldest."""
    snapshots: list[Snapshot] = []
    manifests: list[ManifestFile] = []
    for number in range(1, count + 1):
        manifests = [*manifests[1 - _WINDOW :], _manifest(io, folder, number)]
        path = f"file://{folder}/metadata/snap-{number}.avro"
        with write_manifest_list(2, io.new_output(path), number, None, number, "deflate") as writer:
            writer.add_manifests(manifests)
        fields = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": number, "manifest-list": path}
        snapshots.append(Snapshot.model_validate(fields))
    return snapshots


def _manifest(io: FileIO, folder: Path, number: int) -> ManifestFile:
    output = io.new_output(f"file://{folder}/metadata/{number}-m0.avro")
    with manifest_writer(2, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, output, number, "deflate") as writer:
        for file in range(_FILES):
            path = f"file://{folder}/data/00000-{number}-{file}.parquet"
            writer.add(added_entry(data_file(path, "PARQUET", 0, (), 1_000, 10_000), number))
    return writer.to_manifest_file()

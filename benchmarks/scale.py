"""Measures one driver with more and more tasks, files, partitions, columns, snapshots or tables, and more workers.

Data files are entries in manifests, or links to one file: only the driver's own work is measured.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record
from sqlalchemy import Engine, event

from benchmarks.benchmark import Run, benchmark
from benchmarks.events import FILES, WARM_UP, events_folder
from benchmarks.lake import QUERY, Lake, commit, open_sink, write
from benchmarks.measure import measured, timed
from tests.cluster.standalone import Cluster
from tests.servers.shared import own_server
from volley import Committer, Epoch, FileSource, IcebergSink, IcebergSinkConfig, Metrics, SinkContext, WriteResult, col
from volley.iceberg import Partitioning
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.read.entries import forget_manifests
from volley.iceberg.read.planning import plan

_SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
_COMMITS = 5
_FILES_A_SNAPSHOT = 100_000
_FIGURES = ("cpu_ms", "driver_mb")

_ROUTED = pa.schema({"kind": pa.string(), **{field.name: field.type for field in _SCHEMA}})
_ROUTED_EPOCHS, _ROWS_A_TABLE = 3, 200
_FILES_PER_EPOCH = 4
_ROUTED_FIGURES = ("driver_ms", "task_ms", "driver_mb")


def _by(*more: str, figures: Sequence[str] = _FIGURES, **sizes: Sequence[int]) -> Callable[[Any], Any]:
    """A benchmark with a case for each size, by the setting's name; `more` figures are not drawn."""
    return benchmark(cases=sizes, figures=(*figures, *more), plots=figures)


@_by(tasks=(100, 1_000, 10_000))
def scale_tasks(run: Run) -> None:
    """The commit of an epoch of 100 to 10,000 tasks, each with one data file."""
    committer, tasks = open_sink(Lake(run.folder).config, _SCHEMA), int(run.case)
    _commits(run, "commit", committer, [_written(committer, epoch, tasks) for epoch in range(_COMMITS)])


@_by(files=(10_000, 100_000, 1_000_000))
def scale_files(run: Run) -> None:
    """The commit of one more file to a table of 10,000 to 1 M data files, and plans of a scan and of upserts."""
    lake, files = Lake(run.folder), int(run.case)
    committer = _grown(lake.config, files)
    _plans(run, lake, files)
    # Upserts need the bounds of keys.
    _plan(run, lake, "upsert of one key", f"id = {files // 2}", statistics=frozenset({1}))
    _plan(run, lake, "upsert of keys in all files", "id >= 0", statistics=frozenset({1}))
    _commits(run, "commit", committer, [_written(committer, epoch) for epoch in range(1, _COMMITS + 1)])


@_by(partitions=(10, 1_000, 100_000))
def scale_partitions(run: Run) -> None:
    """The same for a table of 10 to 100,000 partitions, each with one data file."""
    lake, partitions = Lake(run.folder), int(run.case)
    committer = _grown(lake.config.with_partitioning(Partitioning.identity("id")), partitions)
    _plans(run, lake, partitions)
    _commits(run, "commit", committer, [_written(committer, epoch) for epoch in range(1, _COMMITS + 1)])


@_by(columns=(10, 100, 1_000))
def scale_columns(run: Run) -> None:
    """The commit of 100 files of 10 to 1,000 columns, each with statistics."""
    schema = pa.schema({"id": pa.int64(), **{f"column_{number}": pa.int64() for number in range(1, int(run.case))}})
    committer = open_sink(Lake(run.folder).config, schema)
    _commits(run, "commit", committer, [_written(committer, epoch, 100, schema) for epoch in range(_COMMITS)])


@_by(snapshots=(10, 1_000, 10_000))
def scale_snapshots(run: Run) -> None:
    """Opening a table of 10 to 10,000 snapshots, the search for a new query's epochs, and a commit."""
    lake, opened = Lake(run.folder), list[Committer]()
    first = open_sink(lake.config, _SCHEMA)
    first.commit(Epoch(QUERY, 0), _written(first, 0))
    _with_snapshots(lake, int(run.case))
    _record(run, "open", lambda: opened.append(open_sink(lake.named("old"), _SCHEMA)))
    (committer,) = opened
    _record(run, "last epoch of a new query", lambda: committer.last_epoch("another query"))
    written = [_written(committer, epoch) for epoch in range(1, _COMMITS + 2)]
    # The first commit makes the JSON of all snapshots, the others that of one.
    _commits(run, "first commit", committer, written[:1], 1)
    _commits(run, "commit", committer, written[1:], 2)


@_by("requests", tables=(1, 50, 500))
def scale_tables(run: Run) -> None:
    """One epoch of a job that writes to 1 to 500 tables, one file each, with the statements that its catalog gets."""
    committers = [open_sink(Lake(run.folder).named(f"t{number}"), _SCHEMA) for number in range(int(run.case))]
    written = [[_written(committer, epoch) for committer in committers] for epoch in range(_COMMITS)]
    statements: list[str] = []

    def epochs() -> None:
        for epoch, results in enumerate(written):
            for committer, result in zip(committers, results, strict=True):
                commit(committer, epoch, result)

    event.listen(Engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    _record(run, "epoch", epochs, _COMMITS)
    run.results[-1].figures["requests"] = len(statements) / _COMMITS


@_by("writer_kb", figures=_ROUTED_FIGURES, tables=(1, 50, 500))
def scale_routed(run: Run) -> None:
    """An epoch of one task with 200 rows for each of 1 to 500 tables: CPU of the driver and of the task."""
    tables, config = int(run.case), Lake(run.folder).config
    context = SinkContext("benchmark", _ROUTED, Metrics(), state=f"{run.folder}/state")
    committer = IcebergSink(config).routed("{kind}", limit=tables).open(context)
    last = _ROUTED_EPOCHS + 1
    for peer, epochs, filled in (
        ("first epoch", range(1), tables),
        ("epoch", range(1, last), tables),
        ("epoch with rows for ten", range(last, last + _ROUTED_EPOCHS), min(10, tables)),
    ):
        figures = measured(partial(_routed_epochs, committer, epochs, filled))
        run.record(peer, **{name: figures[name] for name in (*_ROUTED_FIGURES, "writer_kb")})
    committer.stop()


def _routed_epochs(committer: Committer, epochs: Iterable[int], tables: int) -> dict[str, float]:
    """Run epochs; return the mean CPU of the driver and of the task in milliseconds, of all threads."""
    parts = []
    for epoch in (Epoch(QUERY, number) for number in epochs):
        times = [time.process_time()]
        pickled = pickle.dumps(committer.writer(epoch))
        times.append(time.process_time())
        result = _routed_task(pickled, tables)
        times.append(time.process_time())
        committer.commit(epoch, [result])
        times.append(time.process_time())
        planned, task, committed = np.diff(times) * 1e3
        parts.append((planned + committed, task, len(pickled) / 1e3))
    means = np.mean(parts, axis=0).tolist()
    return dict(zip(("driver_ms", "task_ms", "writer_kb"), means, strict=True))


def _routed_task(pickled: bytes, tables: int) -> WriteResult:
    writer, rows = pickle.loads(pickled).open(0), tables * _ROWS_A_TABLE
    kinds = pa.array([f"t{number % tables}" for number in range(rows)])
    writer.write(pa.record_batch([kinds, pa.array(range(rows)), pa.array(["a name"] * rows)], schema=_ROUTED))
    result: WriteResult = writer.close()
    return result


def _record(run: Run, peer: str, work: Callable[[], object], times: int = 1) -> None:
    """Record the CPU of each of so many times, and the peak of memory."""
    figures = measured(lambda: timed(work))
    run.record(peer, cpu_ms=figures["cpu_ms"] / times, driver_mb=figures["driver_mb"])


def _commits(run: Run, peer: str, committer: Committer, written: Sequence[list[WriteResult]], first: int = 1) -> None:
    def work() -> None:
        for epoch, results in enumerate(written, first):
            commit(committer, epoch, results)

    _record(run, peer, work, len(written))


def _plans(run: Run, lake: Lake, files: int) -> None:
    """Plan a scan for one key, with manifests to read and with manifests cached."""
    forget_manifests()
    for peer in ("plan", "plan, manifests cached"):
        _plan(run, lake, peer, f"id = {files // 2}")


def _plan(run: Run, lake: Lake, peer: str, where: str, statistics: frozenset[int] = frozenset()) -> None:
    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    _record(run, peer, partial(plan, table.io, table.metadata, snapshot, parse(where), statistics=statistics))


def _written(committer: Committer, epoch: int, tasks: int = 1, schema: pa.Schema = _SCHEMA) -> list[WriteResult]:
    """The results of tasks with one row each: the first has written its file, the others link to it."""
    values = [["a name"] if pa.types.is_string(field.type) else [epoch] for field in schema]
    result = write(committer, epoch, [pa.record_batch(values, schema=schema)])
    return [result, *(_linked(result, task) for task in range(1, tasks))]


def _linked(result: WriteResult, task: int) -> WriteResult:
    (written,) = result.committables
    file = _copy(written.data_file, task)
    os.link(written.path.removeprefix("file://"), file.file_path.removeprefix("file://"))
    return replace(result, committables=(replace(written, data_file=file),))


def _copy(file: DataFile, number: int, **changes: Any) -> DataFile:
    names = ("content", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes")
    counts = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets")
    same = {name: getattr(file, name) for name in (*names, *counts)}
    copied = DataFile.from_args(file_path=file.file_path.replace(".parquet", f"-{number}.parquet"), **same | changes)
    copied.spec_id = file.spec_id
    return copied


def _grown(config: IcebergSinkConfig, files: int) -> Committer:
    """The sink of a table with so many files; each has one key, and a partition of its own if there are partitions."""
    committer = open_sink(config, _SCHEMA)
    committer.commit(Epoch(QUERY, 0), results := _written(committer, 0))
    (written,) = results[0].committables
    more: dict[str, Any] = {"deletes": (), "removed": (), "summary": {}, "branch": "main"}
    with closing(config.ref.load_catalog()) as catalog:
        for start in range(1, files, _FILES_A_SNAPSHOT):
            added = [*_with_keys(written.data_file, range(start, min(start + _FILES_A_SNAPSHOT, files)))]
            transaction = catalog.load_table(("b", "t")).transaction()
            add_snapshot(transaction, added=added, snapshot_id=uuid.uuid4().int >> 65, **more)
            transaction.commit_transaction()
    return committer


def _with_keys(file: DataFile, keys: Sequence[int]) -> Iterator[DataFile]:
    for key in keys:
        bound = {1: struct.pack("<q", key)}
        partition = Record(key) if len(file.partition) else Record()
        lower, upper = (file.lower_bounds or {}) | bound, (file.upper_bounds or {}) | bound
        yield _copy(file, key, partition=partition, lower_bounds=lower, upper_bounds=upper)


def _with_snapshots(lake: Lake, count: int) -> None:
    """Register a table ``old`` whose snapshots are so many copies of the last one of ``t``."""
    metadata = lake.table().metadata
    last = metadata.snapshots[-1]
    snapshots = [
        last.model_copy(
            update={
                "snapshot_id": last.snapshot_id if number == count else number,
                "parent_snapshot_id": number - 1 or None,
                "sequence_number": number,
                "timestamp_ms": last.timestamp_ms - count + number,
            }
        )
        for number in range(1, count + 1)
    ]
    lake.register("old", metadata, snapshots)


@benchmark(
    # One core each, on this machine's cores.
    cases={"workers": (1, 2, 4)},
    options={"rows_per_file": (250_000, 1_000_000)},
    figures=("rows_per_cpu_second", "cpu_us_a_row", "driver_ms_an_epoch", "rows", "seconds", "worker_mb"),
    plots=("cpu_us_a_row", "driver_ms_an_epoch"),
)
def scale_workers(run: Run) -> None:
    """Rows through a standalone cluster, four epochs of four files: CPU a row, and of the driver alone an epoch."""
    hosts = tuple(f"127.0.0.{number + 1}" for number in range(int(run.case)))
    with own_server(Cluster(run.folder, hosts, watched=False)) as cluster:
        os.environ.update(cluster.environment())
        lake = Lake(run.folder)

        def job(name: str, folder: Path) -> None:
            files = FileSource(folder, format="parquet", max_files_per_epoch=_FILES_PER_EPOCH)
            lake.fill(name, lake.environment(cluster.master).from_source(files).filter_expr(col("id") >= 0))

        job("warm_up", events_folder(*WARM_UP))
        for rows_per_file in run.options["rows_per_file"]:
            rows = FILES * rows_per_file
            work = partial(job, f"of_{rows_per_file}", events_folder(rows, rows_per_file))
            before = _driver_seconds()
            figures = replace(run, label=f"{rows / 1e6:g} M rows").measure(work, rows=rows)
            figures["driver_ms_an_epoch"] = (_driver_seconds() - before) * 1e3 / (FILES // _FILES_PER_EPOCH)


def _driver_seconds() -> float:
    """Return the CPU-seconds of this process and of the JVM that it has started for the driver."""
    own = psutil.Process()
    jvms = (child for child in own.children() if "org.apache.spark.deploy.SparkSubmit" in child.cmdline())
    return sum(sum(process.cpu_times()[:2]) for process in (own, *jvms))

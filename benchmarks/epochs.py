"""How long rows wait until others can see them in the table, at a low rate; what an epoch costs apart from its rows."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.files_to_iceberg import copy
from benchmarks.lake import Lake, added_files
from benchmarks.measure import measured
from benchmarks.peers import runtime
from benchmarks.rows import NATIVE, RUNTIME
from benchmarks.run import Result
from volley import FileSource, IcebergSink, MemorySource, Pipeline, SourceContext
from volley.iceberg import Maintenance
from volley.spark.run import run_splits
from volley.spark.session import open_context, session_of
from volley.task.task import InputSplit, Task, TaskPlan
from volley.task.tree import SinkStep, Tree

FOLLOWED = "followed"  # the table that is watched
_SCHEMA = pa.schema({"id": pa.int64(), "arrived": pa.float64()})
_SPARK_SCHEMA = "id long, arrived double"
_FILE_SECONDS = 0.1
_POLL_SECONDS = 0.005
_START_SECONDS = 180
# The first epochs warm the session up.
_SKIPPED = 5
_VOLLEY, _MAINTAINED = "Volley", "Volley, with maintenance"


@benchmark(
    repeat=5,
    peers={"volley": _VOLLEY, "maintained": _MAINTAINED, "runtime": RUNTIME},
    # Rows a second; seconds to measure after the first epochs; seconds between epochs, 0 = without a pause.
    options={"rate": 1_000, "seconds": 30.0, "interval": 0.0},
    figures=("p50", "p99", "rows", "epochs", "cpu_seconds"),
    bounds=[
        Limit("p50", "median of p50", most=1, of=_VOLLEY, beside=RUNTIME),
        Limit("p99", "median of p99", most=1.5, of=_MAINTAINED, beside=_VOLLEY),
    ],
)
def epoch_latency(run: Run) -> None:
    """Arrival to visibility at 1,000 rows/s: p50 and p99, beside Iceberg's Spark runtime."""
    lake = Lake(run.folder)
    (lake.folder / "in").mkdir()
    feed = partial(_write_file, lake.folder / "in", round(run.options["rate"] * _FILE_SECONDS))
    given = {"lake": lake.folder, "interval": run.options["interval"], "schema": _SPARK_SCHEMA}
    if run.peer == "runtime":
        job = partial(runtime.apart, run, runtime.follow, **given)
    else:
        job = partial(run.apart, follow, options=given)
    record_waits(run, lake, partial(steadily, feed, _FILE_SECONDS), job)


def follow(run: Run) -> None:
    """Volley follows a folder until a file says stop."""
    lake = Lake(run.options["lake"])
    source = FileSource(lake.folder / "in", format="parquet", schema=run.options["schema"], bounded=False)
    config = lake.named(FOLLOWED)
    sink = IcebergSink(config.with_maintenance(Maintenance()) if run.peer == "maintained" else config)
    environment = lake.environment(checkpoint_interval=run.options["interval"])
    follow_until(run, environment.from_source(source).to_sink(sink), lake.folder / "stop")


def follow_until(run: Run, pipeline: Pipeline, stop: Path) -> None:
    """Measure a job that goes on until a file says stop."""

    def work() -> None:
        with pipeline.start(FOLLOWED) as job:
            while not stop.exists():
                assert not job.wait(_POLL_SECONDS * 10), job.exception

    run.measure(work, rows=1)


def _write_file(folder: Path, count: int, number: int) -> None:
    """Write a file; its rows arrive when it gets its name."""
    ids, part = np.arange(number * count, (number + 1) * count), folder / f".{number:06}.tmp"
    pq.write_table(pa.table([ids, np.full(count, time.time())], schema=_SCHEMA), part)
    part.rename(folder / f"{number:06}.parquet")


def steadily(work: Callable[[int], object], seconds: float, stop: Path) -> None:
    """Call `work` with 0, 1 and so on, every so many seconds, until a file says stop."""
    number, due = 0, time.time()
    while not stop.exists():
        work(number)
        number, due = number + 1, due + seconds
        time.sleep(max(0.0, due - time.time()))


@contextmanager
def beside(stop: Path, work: Callable[..., object], *arguments: Any) -> Iterator[None]:
    """Run `work` in a thread meanwhile; it ends once the file `stop`, its last argument, is there: errors make it."""
    thread = threading.Thread(target=work, args=(*arguments, stop))
    thread.start()
    try:
        yield
    except BaseException:
        stop.touch()
        raise
    finally:
        thread.join()


def record_waits(run: Run, lake: Lake, feed: Callable[[Path], object], job: Callable[[], list[Result]]) -> None:
    """Record how long rows wait until they can be seen in the table, as any reader sees it.

    `feed` makes rows arrive until the file exists; `job` follows them, in a process apart, until the file ``stop`` is
    in the lake. The run's option ``seconds`` says how long to measure after the first epochs.
    """
    seen, stop = dict[int, float](), lake.folder / "stop"
    # The process that is measured neither feeds nor watches.
    with beside(stop, feed), beside(stop, _watch, lake.folder / "catalog.db", seen, run.options["seconds"]):
        (followed,) = job()
    waits, epochs = _waits(lake.table(FOLLOWED), seen)
    p50, p99 = map(float, np.percentile(waits, [50, 99]))
    run.record(p50=p50, p99=p99, rows=len(waits), epochs=epochs, cpu_seconds=followed.figures["cpu_seconds"])


def _watch(catalog: Path, seen: dict[int, float], seconds: float, stop: Path) -> None:
    """Note when each snapshot becomes the current one, until so long after the first epochs; then say stop."""
    until, last = time.time() + _START_SECONDS, ""
    try:
        while time.time() < until:
            location = _location(catalog)
            if location and location != last:
                last, at = location, time.time()
                seen.setdefault(json.loads(_local(location).read_text()).get("current-snapshot-id"), at)
                if len(seen) == _SKIPPED:
                    until = at + seconds
            time.sleep(_POLL_SECONDS)
    finally:
        stop.touch()


def _location(catalog: Path) -> str | None:
    """The table's metadata, by the catalog's SQLite; at first there is no catalog, then no table in it."""
    query = "select metadata_location from iceberg_tables where table_name = ?"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{catalog}?mode=ro", uri=True)) as database:
        row = database.execute(query, [FOLLOWED]).fetchone()
        return str(row[0]) if row else None
    return None


def _local(location: str) -> Path:
    """Volley writes ``file:///tmp/…``, Spark ``file:/tmp/…``."""
    return Path(urlsplit(location).path)


def _waits(table: Table, seen: dict[int, float]) -> tuple[list[float], int]:
    """How long each row took that arrived after the first epochs, and the number of epochs they came in."""
    assert len(seen) > _SKIPPED, f"{len(seen)} epochs in {_START_SECONDS} s are too few to measure"
    began = list(seen.values())[_SKIPPED - 1]
    waits, epochs, visible = list[float](), 0, began
    for snapshot in sorted(table.snapshots(), key=lambda each: each.sequence_number or 0, reverse=True):
        if snapshot.summary is None or snapshot.summary.operation is Operation.REPLACE:
            continue
        # A snapshot that the watch missed became visible with the next one that it saw.
        visible = seen.get(snapshot.snapshot_id, visible)
        if visible > began:
            for file in added_files(table, snapshot):
                arrived = pq.read_table(_local(file.file_path), columns=["arrived"])["arrived"].to_pylist()
                waits += [visible - at for at in arrived if at > began]
            epochs += 1
    return waits, epochs


_ROWS, _JOBS = 10, 100
_JOB = "Volley, an empty job"


@benchmark(
    repeat=5,
    peers={
        **{"volley": NATIVE, "runtime": RUNTIME},
        **{"volley_job": _JOB, "pyspark_job": "PySpark's mapInArrow, an empty job"},
    },
    options={"epochs": (10, 60)},
    figures=("wall_ms", "cpu_ms"),
    bounds=[Limit("wall_ms", "ms", most=60, of=_JOB)],
)
def empty_epoch(run: Run) -> None:
    """Wall and CPU time of an epoch with ten rows, beside Iceberg's Spark runtime."""
    match run.peer:
        case "volley_job":
            _jobs(run, _run_splits)
        case "pyspark_job":
            _jobs(run, _map_in_arrow)
        case _:
            # The difference of a long and a short run leaves out the query's start and end.
            short, long = run.options["epochs"]
            less, more = (run.apart(epochs, rows=number * _ROWS)[0].figures for number in (short, long))
            figures = {"wall_ms": "seconds", "cpu_ms": "cpu_seconds"}
            run.record(**{ms: 1e3 * (more[name] - less[name]) / (long - short) for ms, name in figures.items()})


def epochs(run: Run) -> None:
    """One query, ten rows an epoch."""
    copy(run, _ROWS, _ROWS)


def _jobs(run: Run, job: Callable[[SparkSession], object]) -> None:
    """Measure a job of one task that has nothing to do, in a warm session; the mean of many."""
    session = session_of(open_context("local[2]"))

    def jobs() -> None:
        for _ in range(_JOBS):
            job(session)

    jobs()
    figures = measured(jobs)
    run.record(wall_ms=1e3 * figures["seconds"] / _JOBS, cpu_ms=1e3 * figures["cpu_seconds"] / _JOBS)


def _run_splits(session: SparkSession) -> object:
    reader = MemorySource([], schema="id long").open(SourceContext(""))
    # A sink that has the epoch already.
    plan = TaskPlan((reader,), (Tree(reader.schema, False, ()),), (SinkStep(reader.schema, None),))
    return run_splits(session.sparkContext, Task(0, plan, (None,)), [InputSplit(0, (0, 0, False))])


def _map_in_arrow(session: SparkSession) -> object:
    return session.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()

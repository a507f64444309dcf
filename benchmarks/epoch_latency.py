"""From a row's arrival to the moment others can see it in the table, at a low rate, beside Iceberg's Spark runtime."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from benchmarks.benchmark import Bound, Row, Run, benchmark
from benchmarks.lake import Lake, added_files
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import RUNTIME
from volley import Environment, FileSource, IcebergSink
from volley.iceberg import Maintenance

__all__ = ["FOLLOWED", "Watch", "beside", "waits_to_be_seen"]

FOLLOWED = "followed"
"""The table that is watched."""
_SCHEMA = pa.schema({"id": pa.int64(), "arrived": pa.float64()})
_SPARK_SCHEMA = "id long, arrived double"
_FILE_SECONDS = 0.1
_POLL_SECONDS = 0.005
_START_SECONDS = 180
# The first epochs warm the session up.
_SKIPPED = 5


_VOLLEY, _MAINTAINED = "Volley", "Volley, with maintenance"


def _bounds(row: Row) -> list[Bound]:
    slower = row.beside(_VOLLEY, "p99", "median of p99", of=_MAINTAINED, most=1.5)
    return [*row.beside(RUNTIME, "p50", "median of p50", of=_VOLLEY, most=1), *slower]


@benchmark(
    repeat=5,
    peers={"volley": _VOLLEY, "maintained": _MAINTAINED, "runtime": RUNTIME},
    # Rows a second; seconds to measure after the first epochs; seconds between epochs, 0 = without a pause.
    options={"rate": 1_000, "seconds": 30.0, "interval": 0.0},
    figures=("p50", "p99", "rows", "epochs", "cpu_seconds"),
    bounds=_bounds,
)
def epoch_latency(run: Run) -> None:
    """Arrival to visibility at 1,000 rows/s: p50 and p99, beside Iceberg's Spark runtime."""
    lake, folder, stop = Lake(run.folder), run.folder / "in", run.folder / "stop"
    folder.mkdir()
    watch = Watch(lake.folder / "catalog.db")
    given = {"lake": lake.folder, "folder": folder, "stop": stop, "interval": run.options["interval"]}
    # The process that is measured neither feeds nor watches.
    with beside(_feed, folder, run.options["rate"], stop), beside(watch.run, run.options["seconds"], stop):
        if run.peer == "runtime":
            (found,) = runtime(run, runtime_job.follow, **given, schema=_SPARK_SCHEMA)
        else:
            (found,) = run.apart(follow, options=given)
    waits, epochs = waits_to_be_seen(lake.table(FOLLOWED), watch.seen)
    p50, p99 = (float(each) for each in np.percentile(waits, [50, 99]))
    run.record(p50=p50, p99=p99, rows=len(waits), epochs=epochs, cpu_seconds=found.figures["cpu_seconds"])


def follow(run: Run) -> None:
    """Volley follows a folder until a file says stop."""
    lake, stop, interval = Lake(run.options["lake"]), Path(run.options["stop"]), run.options["interval"]
    source = FileSource(run.options["folder"], format="parquet", schema=_SPARK_SCHEMA, bounded=False)

    def work() -> None:
        environment = Environment(
            checkpoint_dir=f"{lake.folder}/checkpoints", checkpoint_interval=timedelta(seconds=interval)
        )
        config = lake.named(FOLLOWED)
        sink = IcebergSink(config.with_maintenance(Maintenance()) if run.peer == "maintained" else config)
        job = environment.from_source(source).to_sink(sink).start(FOLLOWED)
        while not stop.exists():
            assert not job.wait(_POLL_SECONDS * 10), job.exception
        job.stop()

    run.measure(work, rows=1)


@contextmanager
def beside(work: Any, *arguments: Any) -> Iterator[None]:
    """Run `work` in a thread meanwhile; it ends once the file that says stop is there."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _feed(folder: Path, rate: int, stop: Path) -> None:
    """Write files until told to stop; their rows arrive when the file gets its name."""
    count, number, due = round(rate * _FILE_SECONDS), 0, time.time()
    while not stop.exists():
        ids, path = np.arange(number * count, (number + 1) * count), folder / f"{number:06}.parquet"
        part = folder / f".{number:06}.tmp"
        pq.write_table(pa.table([ids, np.full(count, time.time())], schema=_SCHEMA), part)
        part.rename(path)
        number, due = number + 1, due + _FILE_SECONDS
        time.sleep(max(0.0, due - time.time()))


class Watch:
    """Sees which snapshot is the table's current one, as any reader would, and since when.

    Args:
        catalog: The SQLite catalog's file.
    """

    def __init__(self, catalog: Path) -> None:
        self.seen: dict[int, float] = {}
        self._catalog = catalog

    def run(self, seconds: float, stop: Path) -> None:
        """Look until so long after the first epochs; then say stop, whatever happens."""
        try:
            self._look(seconds)
        finally:
            stop.touch()

    def _look(self, seconds: float) -> None:
        until, last = time.time() + _START_SECONDS, ""
        while time.time() < until:
            location = self._location()
            if location and location != last:
                last, at = location, time.time()
                snapshot = json.loads(_local(location).read_text()).get("current-snapshot-id")
                self.seen.setdefault(snapshot, at)
                if len(self.seen) == _SKIPPED:
                    until = at + seconds
            time.sleep(_POLL_SECONDS)

    def _location(self) -> str | None:
        query = "select metadata_location from iceberg_tables where table_name = ?"
        # At first there is no catalog, then no table in it.
        with suppress(sqlite3.OperationalError):
            with closing(sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True)) as catalog:
                found = catalog.execute(query, [FOLLOWED]).fetchone()
            return str(found[0]) if found else None
        return None


def _local(location: str) -> Path:
    """Volley writes ``file:///tmp/…``, Spark ``file:/tmp/…``."""
    return Path(urlsplit(location).path)


def waits_to_be_seen(table: Table, seen: dict[int, float]) -> tuple[list[float], int]:
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
            files = (
                pq.read_table(_local(file.file_path), columns=["arrived"]) for file in added_files(table, snapshot)
            )
            arrived = (at for rows in files for at in rows["arrived"].to_pylist())
            waits += [visible - at for at in arrived if at > began]
            epochs += 1
    return waits, epochs

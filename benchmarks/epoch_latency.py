"""From a row's arrival to the moment others can see it in the table, at a low rate, beside Iceberg's Spark runtime."""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from benchmarks.lake import Lake
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.runtime import missing, runtime
from benchmarks.report import Figure, Report
from volley import Environment, FileSource, IcebergSink

SUMMARY = "arrival to visibility at 1,000 rows/s: p50 and p99, beside Iceberg's Spark runtime"

_TABLE = "followed"
_SCHEMA = pa.schema({"id": pa.int64(), "arrived": pa.float64()})
_SPARK_SCHEMA = "id long, arrived double"
_FILE_SECONDS = 0.1
_POLL_SECONDS = 0.005
_START_SECONDS = 180
# The first epochs warm the session up.
_SKIPPED = 5


@dataclass(frozen=True)
class Latency:
    """One run.

    Args:
        peer: Whose.
        rows: That were looked at.
        epochs: In which they came.
        p50: Seconds from arrival to visibility that half of the rows took at most.
        p99: That 99 in 100 took at most.
        cpu_seconds: Of the process tree, its start included.
    """

    peer: str
    rows: int
    epochs: int
    p50: float
    p99: float
    cpu_seconds: float


def run(arguments: list[str]) -> None:
    """Each peer in turn follows a folder into which files come."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks epoch_latency", description=SUMMARY)
    parser.add_argument("--rate", type=int, default=1_000, help="rows a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured, behind the first epochs")
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between epochs; 0 = as fast as it can")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args(arguments)
    report = Report("epoch_latency", "what", "rows", "epochs", "p50 s", "p99 s")
    half: dict[str, list[float]] = {}
    for peer in ["volley", *([] if missing() else ["runtime"])] * asked.repeat:
        found = _latency(peer, asked.rate, asked.seconds, asked.interval)
        half.setdefault(peer, []).append(found.p50)
        report.add(found, found.peer, f"{found.rows:,}", str(found.epochs), f"{found.p50:.2f}", f"{found.p99:.2f}")
    if "runtime" in half:
        ratio = statistics.median(half["volley"]) / statistics.median(half["runtime"])
        report.figure(Figure.below("median of p50", ratio, 1, "× the runtime's"))
    report.print()


def _latency(peer: str, rate: int, seconds: float, interval: float) -> Latency:
    with Lake.temporary() as lake:
        folder, stop = lake.folder / "in", lake.folder / "stop"
        folder.mkdir()
        watch = Watch(lake.folder / "catalog.db")
        given = {"lake": lake.folder, "folder": folder, "stop": stop, "interval": interval, "schema": _SPARK_SCHEMA}
        with _beside(_feed, folder, rate, stop), _beside(watch.run, seconds, stop):
            if peer == "runtime":
                result = runtime("follow", **given)
            else:
                result = in_own_process("benchmarks.epoch_latency", json.dumps(given, default=str))
        waits, epochs = _waits(lake.table(_TABLE), watch.seen)
    p50, p99 = np.percentile(waits, [50, 99])
    return Latency(result.name, len(waits), epochs, float(p50), float(p99), result.cpu_seconds)


@contextmanager
def _beside(work: Any, *arguments: Any) -> Iterator[None]:
    """Let a thread do it meanwhile; it ends by itself once there is the file that says stop."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _feed(folder: Path, rate: int, stop: Path) -> None:
    """Files of rows that arrive when their file gets its name."""
    count, number, due = round(rate * _FILE_SECONDS), 0, time.time()
    while not stop.exists():
        ids, path = np.arange(number * count, (number + 1) * count), folder / f"{number:06}.parquet"
        part = folder / f".{number:06}.tmp"
        pq.write_table(pa.table([ids, np.full(count, time.time())], schema=_SCHEMA), part)
        part.rename(path)
        number, due = number + 1, due + _FILE_SECONDS
        time.sleep(max(0.0, due - time.time()))


class Watch:
    """Sees which snapshot is the table's, as any reader would, and when it became so.

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
        # There is no catalog yet, or no table in it.
        with suppress(sqlite3.OperationalError):
            with closing(sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True)) as catalog:
                found = catalog.execute(query, [_TABLE]).fetchone()
            return str(found[0]) if found else None
        return None


def _local(location: str) -> Path:
    """Volley writes ``file:///tmp/…``, Spark ``file:/tmp/…``."""
    return Path(urlsplit(location).path)


def _waits(table: Table, seen: dict[int, float]) -> tuple[list[float], int]:
    """How long each row took that arrived after the first epochs, and in how many epochs they came."""
    snapshots = sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)
    assert len(seen) > _SKIPPED, f"{len(seen)} epochs in {_START_SECONDS} s are too few to measure"
    began = list(seen.values())[_SKIPPED - 1]
    waits: list[float] = []
    epochs, visible = 0, None
    for snapshot in reversed(snapshots):
        # One that nobody has seen became visible with the next that was.
        visible = seen.get(snapshot.snapshot_id, visible)
        if visible is None or visible <= began:
            continue
        arrived = _arrived(table, snapshot.snapshot_id)
        waits += [visible - at for at in arrived if at > began]
        epochs += 1
    return waits, epochs


def _arrived(table: Table, snapshot: int) -> list[float]:
    """When the rows that a snapshot added had arrived."""
    found = table.snapshot_by_id(snapshot)
    assert found is not None
    files = [
        _local(entry.data_file.file_path)
        for manifest in found.manifests(table.io)
        if manifest.added_snapshot_id == snapshot
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    return [at for file in files for at in pq.read_table(file, columns=["arrived"])["arrived"].to_pylist()]


def follow(lake: str, folder: str, stop: str, interval: float, schema: str) -> Result:
    """Volley follows the folder until a file says stop."""
    config = Lake(Path(lake)).config

    def work() -> dict[str, Any]:
        environment = Environment(checkpoint_dir=f"{lake}/checkpoints", checkpoint_interval=timedelta(seconds=interval))
        stream = environment.from_source(FileSource(folder, format="parquet", schema=schema, bounded=False))
        job = stream.to_sink(IcebergSink(replace(config, table=_TABLE))).start(_TABLE)
        while not Path(stop).exists():
            assert not job.wait(_POLL_SECONDS * 10), job.exception
        job.stop()
        return {}

    return measured("Volley", 1, work)


if __name__ == "__main__":
    print_result(follow(**json.loads(sys.argv[1])))

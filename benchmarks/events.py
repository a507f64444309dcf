"""The rows the benchmarks work on: seven columns, 66 bytes a row in Arrow, as Parquet files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.run import Run

FILES = 16  # the most files that differ; also the number of files where it doesn't matter
WARM_UP = (160_000, 10_000)  # rows of a warm-up, and of each of its files
NAMED = pa.schema({"id": pa.int64(), "name": pa.string(), "value": pa.float64()})  # of rows with names
BEGIN = 1_700_000_000_000_000  # when events begin, in microseconds since 1970
_BATCH = 10_000


def events_folder(rows: int, rows_per_file: int) -> Path:
    """A folder with `rows` events, made when it is first asked for.

    Beyond sixteen files the same ones come again under other names, as hard links: disk stays small.
    """
    files = rows // rows_per_file
    assert files * rows_per_file == rows, f"{rows} rows are no multiple of {rows_per_file}"
    folder = Path(tempfile.gettempdir(), f"volley-bench-events-{rows_per_file}-{files}")
    if (folder / "_done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if files > FILES:
        distinct = events_folder(FILES * rows_per_file, rows_per_file)
        for number in range(files):
            os.link(distinct / f"{number % FILES:04}.parquet", folder / f"{number:04}.parquet")
    else:
        # In a process apart, so that its memory does not count as that of the process to be measured.
        Run(rows=rows_per_file, options={"folder": folder, "files": files}).apart(write_events)
    (folder / "_done").touch()
    return folder


def batches(folder: Path, rows: int = _BATCH) -> Iterator[pa.RecordBatch]:
    """The rows of a folder's files, as a source hands them over, so many a batch."""
    for path in sorted(folder.glob("*.parquet")):
        yield from pq.ParquetFile(path).iter_batches(rows, use_threads=False)


def write_files(folder: Path, files: int, rows: Callable[[int], pa.Table]) -> Path:
    """Write Parquet files, each with the rows of its number, into a folder, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pq.write_table(rows(number), folder / f"{number:04}.parquet")
    return folder


def first_files(folder: Path, to: Path) -> Path:
    """Copy the first two files of a folder, for a warm-up, to another one, which is returned."""
    to.mkdir(parents=True)
    for path in sorted(folder.iterdir())[:2]:
        shutil.copy(path, to)
    return to


def numbered(text: str, numbers: np.ndarray[Any, Any]) -> pa.Array:
    """A text with each number behind it."""
    return pc.binary_join_element_wise(pa.scalar(text), pa.array(numbers).cast(pa.string()), "")


def times(microseconds: np.ndarray[Any, Any]) -> pa.Array:
    """Timestamps in UTC, from microseconds since 1970."""
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))


def users_at_times(random: np.random.Generator, ids: np.ndarray[Any, Any], users: int) -> tuple[pa.Array, pa.Array]:
    """Return a random user and a time for each row: rows are 120 µs apart, and up to five seconds out of order."""
    at = times(BEGIN + ids * 120 - random.integers(0, 5_000_000, len(ids)))
    return numbered("user-", np.arange(users)).take(pa.array(random.integers(0, users, len(ids)))), at


def named_rows(ids: np.ndarray[Any, Any], value: float) -> pa.RecordBatch:
    """Rows for upserts: an id, a name and a value."""
    return pa.record_batch([ids, numbered("name of ", ids), np.full(len(ids), value)], schema=NAMED)


def session_rows(ids: np.ndarray[Any, Any], value: float) -> pa.RecordBatch:
    """Wider rows for upserts."""
    session = pa.array([f"session {number:012}" for number in ids])
    return pa.record_batch({"id": ids, "session": session, "value": np.full(len(ids), value), "more": ids * 0.37})


def write_events(run: Run) -> None:
    """Write files of so many rows each."""
    random, rows = np.random.default_rng(7), run.rows
    write_files(Path(run.options["folder"]), run.options["files"], lambda file: _events(random, file * rows, rows))


def _events(random: np.random.Generator, start: int, rows: int) -> pa.Table:
    kinds, countries = ["view", "click", "cart", "order"], ["de", "fr", "us", "gb", "in", "br", "jp", "ng"]
    return pa.table(
        {
            "id": np.arange(start, start + rows),
            "user": random.integers(0, 1_000_000, rows),
            "kind": random.choice(kinds, rows),
            "country": random.choice(countries, rows),
            "session": [f"s{n:09}" for n in random.integers(0, 100_000_000, rows)],
            "amount": random.random(rows) * 100,
            "at": times(BEGIN + np.arange(start, start + rows) * 1000),
        }
    )

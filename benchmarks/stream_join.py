"""Two streams joined within ten seconds, beside Spark's own join of streams, which has no sink."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import RATES, Benchmark, Limit, Run, benchmark, within
from benchmarks.events import BEGIN, first_files, numbered, times, write_files
from benchmarks.lake import Lake
from benchmarks.measure import after
from benchmarks.peers.spark import counted, session
from volley import FileSource

_VOLLEY, _SPARK = "Volley, into an Iceberg table", "Spark's own join, without a sink"
_SIDES = ("ads", "clicks")
_KEYS = 100_000
_FILES = 16
# Each side has a row of a user every twelve seconds; a row is up to five seconds older than the latest.
_MICROSECONDS_A_ROW = 120
_DISORDER = 5_000_000
_SCHEMA = "user string, id long, at timestamp"


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write both streams once for all runs."""
    rows = (asked.rows or 0) // _FILES // len(_SIDES)
    for seed, side in enumerate(_SIDES):
        write_files(folder / side, _FILES, partial(_events, seed, rows))
    yield {"folder": folder}


def _events(seed: int, rows: int, file: int) -> pa.Table:
    dice, ids = np.random.default_rng([seed, file]), np.arange(file * rows, (file + 1) * rows)
    at = times(BEGIN + ids * _MICROSECONDS_A_ROW - dice.integers(0, _DISORDER, rows))
    users = numbered("user-", np.arange(_KEYS)).take(pa.array(dice.integers(0, _KEYS, rows)))
    return pa.table([users, pa.array(ids), at], ["user", "id", "at"])


@benchmark(
    rows=4_000_000,
    peers={"volley": _VOLLEY, "spark": _SPARK},
    options={"epochs": 8, "before": 2},
    figures=(*RATES, "pairs"),
    prepare=_folders,
    bounds=within(Limit("rows_per_cpu_second", "rows per CPU-second", 5.0, of=_VOLLEY, beside=_SPARK)),
)
def stream_join(run: Run) -> None:
    """Two streams joined by user within ten seconds: rows of both per CPU-second, in steady state, beside Spark."""
    folder, few = Path(run.options["folder"]), run.folder / "few"
    for side in _SIDES:
        first_files(folder / side, few / side)
    query = {"volley": _volley, "spark": _spark}[run.peer]
    query(run, "warm_up", few, 1)
    epochs, before = run.options["epochs"], run.options["before"]
    steady = int(run.rows * (epochs - before) / epochs)
    start = after(run.folder / "checkpoints", before)
    run.measure(lambda: query(run, "benchmark", folder, _FILES // epochs), rows=steady, start=start)


def _volley(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    lake = Lake(run.folder)
    ads, clicks = (
        lake.environment().from_source(FileSource(folder / side, format="parquet", max_files_per_epoch=files))
        for side in _SIDES
    )
    pairs = ads.join(clicks, on="user", within=("0s", "10s"), time="at", lateness="10s", suffix="_of_click")
    return {"pairs": pairs.to_sink(lake.sink(name)).execute(name).progress.rows}


def _spark(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    spark = session()
    for side in _SIDES:
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files).format("parquet")
        reader.load(str(folder / side)).withWatermark("at", "10 seconds").createOrReplaceTempView(side)
    pairs = spark.sql(
        "select a.*, c.id as id_of_click, c.at as at_of_click from ads a join clicks c "
        "on a.user = c.user and c.at between a.at and a.at + interval 10 seconds"
    )
    return {"pairs": counted(pairs, run.folder / "checkpoints" / name)}

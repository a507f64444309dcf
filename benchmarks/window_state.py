"""A window of a day with a key for every row: what a worker takes while the state grows to millions of keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import RATES, Benchmark, Limit, Run, benchmark, within
from benchmarks.events import BEGIN, numbered, times, write_files
from benchmarks.lake import Lake
from volley import FileSource, count, max_, min_, sum_, tumbling

_FILES = 16


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the events once for all runs."""
    yield {"folder": write_files(folder, _FILES, partial(_events, asked.rows // _FILES))}


def _events(rows: int, file: int) -> pa.Table:
    keys = np.arange(file * rows, (file + 1) * rows)
    return pa.table({"user": numbered("user-", keys), "price": keys % 10_000 / 100, "at": times(BEGIN + keys)})


@benchmark(
    rows=10_000_000,
    peers={"volley": "Volley, into an Iceberg table"},
    options={"epochs": 8},
    figures=(*RATES, "windows", "state_mb"),
    prepare=_folders,
    bounds=within(Limit("worker_mb", "MB of a worker", most=1_000)),
)
def window_state(run: Run) -> None:
    """Windows whose state grows to 10 million keys and then comes out: memory of a worker, size of the state."""
    lake, files = Lake(run.folder), _FILES // run.options["epochs"]
    source = FileSource(run.options["folder"], format="parquet", max_files_per_epoch=files)
    windows = lake.environment().from_source(source).key_by("user").window(tumbling("1d"), on="at", lateness="10s")
    totals = windows.aggregate(n=count(), total=sum_("price"), low=min_("price"), high=max_("price"))
    figures = run.measure(lambda: {"windows": totals.to_sink(lake.sink()).execute("benchmark").progress.rows})
    states = (run.folder / "checkpoints" / "benchmark" / "volley" / "windows-0").glob("*")
    figures["state_mb"] = max(sum(file.stat().st_size for file in state.glob("state-*")) for state in states) / 1e6

"""A window of a day with a key for every row: what a worker takes while the state grows to millions of keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.lake import Lake
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from volley import Environment, FileSource, IcebergSink, count, max_, min_, sum_, tumbling

_FILES = 16
_LARGEST_MB = 1_000


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the events once for all runs."""
    each = (asked.rows or 0) // _FILES
    for number in range(_FILES):
        keys = np.arange(number * each, (number + 1) * each)
        events = {
            "user": pa.array(np.char.add("user-", keys.astype(str))),
            "price": pa.array(keys % 10_000 / 100),
            "at": pa.array(1_700_000_000_000_000 + keys).cast(pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(events), folder / f"{number:04}.parquet")
    yield {"folder": folder}


def _bounds(row: Row) -> Iterator[Bound]:
    yield from row.below("worker_mb", _LARGEST_MB, "MB of a worker")


@benchmark(
    rows=10_000_000,
    peers={"volley": "Volley, into an Iceberg table"},
    options={"epochs": 8},
    figures=(*RATES, "windows", "state_mb"),
    prepare=_folders,
    bounds=_bounds,
)
def window_state(run: Run) -> None:
    """Windows whose state grows to 10 million keys and then comes out: memory of a worker, size of the state."""
    checkpoints = run.folder / "checkpoints"
    source = FileSource(run.options["folder"], format="parquet", max_files_per_epoch=_FILES // run.options["epochs"])
    rows = Environment(checkpoint_dir=str(checkpoints)).from_source(source).key_by("user")
    totals = rows.window(tumbling("1d"), on="at", lateness="10s").aggregate(
        n=count(), total=sum_("price"), low=min_("price"), high=max_("price")
    )
    pipeline = totals.to_sink(IcebergSink(Lake(run.folder).config))

    def work() -> dict[str, Any]:
        return {"windows": pipeline.execute("benchmark").progress.rows}

    figures = run.measure(work)
    states = (checkpoints / "benchmark" / "volley" / "windows-0").glob("*")
    figures["state_mb"] = max(sum(file.stat().st_size for file in state.glob("state-*")) for state in states) / 1e6

"""Writing so many rows in one epoch: Volley's sink in this process, a whole job, and the peers."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.benchmark import RATES, benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.files_to_iceberg import PEERS, Sizes, copy
from benchmarks.lake import Lake, write_epoch
from benchmarks.rows import Bound, Row, case_of
from benchmarks.run import Run

_PEERS = {"sink": "Volley's sink alone, one process", **PEERS}


def _bounds(row: Row) -> list[Bound]:
    return row.at_least("rows_per_second", 50_000, "rows/s") if row.peer.startswith("Volley") else []


def write(run: Run) -> None:
    """One epoch of so many rows: the sink alone, a whole job, pyiceberg, Iceberg's Spark runtime, pyarrow."""
    named = replace(run, case=case_of(run.rows))
    if run.peer == "sink":
        _sink(named)
    else:
        copy(named, Sizes(run.rows // FILES, run.rows))


for _size, _rows in {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}.items():
    _figures = (*RATES, "epochs", "files", "mb")
    benchmark(f"write_{_size}", rows=_rows, repeat=5, peers=_PEERS, figures=_figures, bounds=_bounds)(write)


def _sink(run: Run) -> None:
    """Writer and committer without Spark: what the sink itself can do."""
    folder = events_folder(run.rows, run.rows // FILES)
    write_epoch(Lake(run.folder / "warm_up").config, 0, [next(batches(folder))])
    run.measure(lambda: write_epoch(Lake(run.folder).config, 0, batches(folder)))

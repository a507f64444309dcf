"""A table that is followed, snapshot by snapshot, into another one, beside Iceberg's Spark runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.events import FILES, events_folder
from benchmarks.lake import QUERY, Lake, open_sink, write
from benchmarks.measure import after
from benchmarks.peers import runtime_job
from benchmarks.peers.runtime import runtime
from benchmarks.rows import NATIVE, RUNTIME
from benchmarks.run import Run
from volley import Environment, Epoch, IcebergSink, IcebergSource, IcebergSourceConfig, Progress
from volley.iceberg import Incremental

_PEERS = {"volley": NATIVE, "runtime": RUNTIME}
_ROWS_PER_FILE = 500_000
_FILES_PER_SNAPSHOT = 2
_WARM_UP_SNAPSHOTS = 2
_LEAST = 2.5


def _tables(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Make a table with a snapshot for each epoch, and a small one, once for all runs."""
    files = sorted(events_folder(FILES * _ROWS_PER_FILE, _ROWS_PER_FILE).glob("*.parquet"))
    snapshots = ((asked.rows or 0) + asked.options["before"]) // (_ROWS_PER_FILE * _FILES_PER_SNAPSHOT)
    _fill(Lake(folder), "t", files, snapshots)
    _fill(Lake(folder), "small", files, _WARM_UP_SNAPSHOTS)
    yield {"lake": folder}


def _fill(lake: Lake, name: str, files: list[Path], snapshots: int) -> None:
    """Write snapshots of two files each."""
    committer = open_sink(replace(lake.config, table=name), pq.read_schema(files[0]))
    for epoch in range(snapshots):
        chosen = [files[(epoch * _FILES_PER_SNAPSHOT + task) % len(files)] for task in range(_FILES_PER_SNAPSHOT)]
        written = [
            write(committer, epoch, pq.ParquetFile(file).iter_batches(), task) for task, file in enumerate(chosen)
        ]
        committer.commit(Epoch(QUERY, epoch), written)


@benchmark(
    rows=40_000_000,
    repeat=5,
    peers=_PEERS,
    options={"before": 4_000_000},
    figures=(*RATES, "epochs"),
    prepare=_tables,
    bounds=lambda row: row.beside(RUNTIME, "rows_per_cpu_second", "rows per CPU-second", least=_LEAST),
)
def table_to_table(run: Run) -> None:
    """Iceberg → Iceberg as a stream, a snapshot of 1 M rows an epoch."""
    before = run.options["before"]
    epochs_before = before // (_ROWS_PER_FILE * _FILES_PER_SNAPSHOT)
    if run.peer == "runtime":
        settings = {**run.options, "epochs_before": epochs_before, "files_per_epoch": _FILES_PER_SNAPSHOT}
        run.results.extend(runtime(run, runtime_job.table, **settings))
        return
    checkpoints = run.folder / "checkpoints"

    def copy(name: str, table: str, rows: int) -> Progress:
        ref = replace(Lake(run.options["lake"]).config.ref, table=table)
        follow = Incremental(poll_interval="1s", start_timestamp="2000-01-01")
        source = IcebergSourceConfig(ref).with_mode(follow).with_max_files_per_epoch(_FILES_PER_SNAPSHOT)
        sink = IcebergSink(replace(Lake(run.folder).config, table=name))
        environment = Environment(checkpoint_dir=str(checkpoints), checkpoint_interval=0)
        job = environment.from_source(IcebergSource(source)).to_sink(sink).start(name)
        while job.progress.rows < rows and not job.wait(0.02):
            pass
        job.stop()
        assert job.progress.rows == rows
        return job.progress

    def work() -> dict[str, Any]:
        return {"epochs": copy("benchmark", "t", run.rows + before).epochs}

    copy("warm_up", "small", _WARM_UP_SNAPSHOTS * _FILES_PER_SNAPSHOT * _ROWS_PER_FILE)
    run.measure(work, start=after(checkpoints, epochs_before))

"""Files → Iceberg on a standalone cluster: what a row costs, and what the driver does, with more workers and rows."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import psutil

from benchmarks.benchmark import Run, benchmark
from benchmarks.events import FILES, WARM_UP, events_folder
from benchmarks.lake import Lake
from benchmarks.measure import measured
from tests.cluster.standalone import Cluster
from volley import FileSource, col

_FILES_PER_EPOCH = 4


@benchmark(
    # One core each, on this machine's cores.
    options={"workers": (1, 2, 4), "rows_per_file": (250_000, 1_000_000)},
    cases="workers",
    case="workers",
    figures=("rows_per_cpu_second", "cpu_us_a_row", "driver_ms_an_epoch", "rows", "seconds", "worker_mb"),
    plots=("cpu_us_a_row", "driver_ms_an_epoch"),
)
def scale_workers(run: Run) -> None:
    """Rows through a standalone cluster, four epochs of four files: CPU a row, and of the driver alone an epoch."""
    hosts = tuple(f"127.0.0.{number + 1}" for number in range(int(run.case)))
    cluster = Cluster(run.folder, hosts, watched=False)
    try:
        cluster.start()
        os.environ.update(cluster.environment())
        copy = partial(_copy, Lake(run.folder), cluster.master)
        copy("warm_up", events_folder(*WARM_UP))
        for rows_per_file in run.options["rows_per_file"]:
            rows = FILES * rows_per_file
            work = partial(copy, f"of_{rows_per_file}", events_folder(rows, rows_per_file))
            before = _driver_seconds()
            figures = {"rows": rows, **measured(work)}
            figures["driver_ms_an_epoch"] = (_driver_seconds() - before) * 1e3 / (FILES // _FILES_PER_EPOCH)
            figures["rows_per_cpu_second"] = rows / figures["cpu_seconds"]
            figures["cpu_us_a_row"] = figures["cpu_seconds"] * 1e6 / rows
            run.record(f"{rows / 1e6:g} M rows", **figures)
    finally:
        cluster.stop()


def _copy(lake: Lake, master: str, name: str, folder: Path) -> None:
    files = FileSource(folder, format="parquet", max_files_per_epoch=_FILES_PER_EPOCH)
    rows = lake.environment(master).from_source(files).filter_expr(col("id") >= 0)
    rows.to_sink(lake.sink(name)).execute(name)


def _driver_seconds() -> float:
    """Return the CPU-seconds of this process and of the JVM that it has started for the driver."""
    own = psutil.Process()
    jvms = (child for child in own.children() if "org.apache.spark.deploy.SparkSubmit" in child.cmdline())
    return sum(sum(process.cpu_times()[:2]) for process in (own, *jvms))

"""Whether cost a row and memory stay what they are while a job grows from a million rows to fifty."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.benchmark import RATES, benchmark
from benchmarks.files_to_iceberg import Sizes, copy
from benchmarks.rows import NATIVE, RUNTIME
from benchmarks.run import Run


@benchmark(
    peers={"volley": NATIVE, "runtime": RUNTIME},
    options={
        "sizes": (1_000_000, 5_000_000, 20_000_000, 50_000_000),
        "rows_per_file": 500_000,
        "rows_per_epoch": 1_000_000,
        "before": 4_000_000,
    },
    cases="sizes",
    case="rows",
    figures=(*RATES, "cpu_us_a_row", "peak_mb", "epochs", "files", "mb"),
    plots=("cpu_us_a_row", "peak_mb"),
)
def memory(run: Run) -> None:
    """Files → Iceberg from 1 M to 50 M rows: CPU a row, peak memory of workers, JVM and driver."""
    sizes = (run.options[name] for name in ("rows_per_file", "rows_per_epoch", "before"))
    copy(replace(run, rows=int(run.case)), Sizes(*sizes))
    figures = run.results[-1].figures
    figures["cpu_us_a_row"] = 1e6 / figures["rows_per_cpu_second"]
    figures["peak_mb"] = sum(figures[f"{process}_mb"] or 0 for process in ("worker", "jvm", "driver"))

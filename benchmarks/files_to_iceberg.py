"""Files → filter → Iceberg, beside Iceberg's Spark runtime, plain pyiceberg, and pyarrow that only reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.benchmark import RATES, Run, benchmark
from benchmarks.events import WARM_UP, events_folder
from benchmarks.lake import Lake
from benchmarks.peers import runtime
from benchmarks.peers.plain import append, limit, rewrite
from benchmarks.rows import AIMS, NATIVE, RUNTIME, SPARK_READS, case_of
from volley import FileSource, Progress, Source, SparkSource, col

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PEERS = {
    "limit": "pyarrow alone, a process a core",
    "append": "pyiceberg Table.append",
    "volley": NATIVE,
    "runtime": RUNTIME,
}
_BY_SPARK = {"spark_reads": SPARK_READS, "runtime": RUNTIME}
_WRITTEN = ("epochs", "files", "mb")
_WARM_UP_FILES = 4
_SETTINGS: dict[str, Any] = {
    **{"rows": 40_000_000, "repeat": 5, "figures": (*RATES, *_WRITTEN), "bounds": AIMS},
    "options": {"before": 4_000_000, "rows_per_file": 500_000},
    **{"cases": {"rows_per_epoch": (1_000_000, 4_000_000)}, "case": ""},
}


@dataclass(frozen=True)
class SparkFiles(SparkSource):
    """Parquet files of a folder as Spark itself reads them."""

    folder: str
    files_per_epoch: int

    bounded = True

    @property
    def identity(self) -> str:
        return f"spark-files:{self.folder}"

    def load(self, spark: SparkSession) -> DataFrame:
        schema = spark.read.parquet(self.folder).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", self.files_per_epoch)
        return reader.parquet(self.folder)


@benchmark("read_by_spark", peers=_BY_SPARK, **_SETTINGS)
@benchmark(peers=PEERS, **_SETTINGS)
def files_to_iceberg(run: Run) -> None:
    """Files → Iceberg: rows/s and rows per CPU-second, beside Iceberg's Spark runtime and others."""
    rows_per_epoch = int(run.case)
    # The limit has no epochs: one case is enough.
    if run.peer != "limit" or rows_per_epoch == run.options["rows_per_epoch"][0]:
        copy(replace(run, case=case_of(rows_per_epoch)), run.options["rows_per_file"], rows_per_epoch)


@benchmark(
    peers={"volley": NATIVE, "runtime": RUNTIME},
    options={"before": 4_000_000, "rows_per_file": 500_000, "rows_per_epoch": 1_000_000},
    cases={"sizes": (1_000_000, 5_000_000, 20_000_000, 50_000_000)},
    case="rows",
    figures=(*RATES, "cpu_us_a_row", "peak_mb", *_WRITTEN),
    plots=("cpu_us_a_row", "peak_mb"),
)
def memory(run: Run) -> None:
    """Files → Iceberg from 1 M to 50 M rows: CPU a row, peak memory of workers, JVM and driver."""
    copy(replace(run, rows=int(run.case)), run.options["rows_per_file"], run.options["rows_per_epoch"])
    figures = run.results[-1].figures
    figures["peak_mb"] = sum(figures[f"{process}_mb"] or 0 for process in ("worker", "jvm", "driver"))


def copy(run: Run, rows_per_file: int, rows_per_epoch: int) -> None:
    """Copy all files into a table, by the run's peer; an epoch has some whole files."""
    # So many rows, whole epochs, a query handles before it is measured; the limit and pyiceberg have none to warm up.
    before = 0 if run.peer in ("limit", "append") else run.options.get("before", 0)
    folder = events_folder(run.rows + before, rows_per_file)
    files_per_epoch = rows_per_epoch // rows_per_file
    match run.peer:
        case "limit":
            paths = sorted(folder.glob("*.parquet"))
            limit(run, rewrite, paths, warm_up=paths)
        case "append":
            append(run, folder, files_per_epoch)
        case "runtime":
            epochs = {"files_per_epoch": files_per_epoch, "rows_per_epoch": rows_per_epoch, "before": before}
            given = {"folder": folder, "warm_up": events_folder(*WARM_UP), **epochs}
            run.results.extend(runtime.apart(run, runtime.files, **given))
        case _:
            # A small job warms the session up.
            _job(run, "warm_up", events_folder(*WARM_UP), _WARM_UP_FILES)
            run.measure_job(lambda: _job(run, "benchmark", folder, files_per_epoch), before, rows_per_epoch)


def _job(run: Run, name: str, folder: Path, files: int) -> Progress:
    """Run one job over all files of a folder, so many an epoch."""
    source: Source = FileSource(folder, format="parquet", max_files_per_epoch=files)
    if run.peer == "spark_reads":
        source = SparkFiles(str(folder), files)
    lake = Lake(run.folder)
    rows = lake.environment().from_source(source)
    return lake.fill(name, rows.filter_expr(col("id") >= 0))

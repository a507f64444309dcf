"""Files → filter → Iceberg, beside Iceberg's Spark runtime, plain pyiceberg, and pyarrow that only reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.benchmark import RATES, benchmark
from benchmarks.events import events_folder
from benchmarks.lake import Lake
from benchmarks.measure import after
from benchmarks.peers import runtime_job
from benchmarks.peers.plain import append, limit
from benchmarks.peers.runtime import runtime
from benchmarks.rows import GENERAL, NATIVE, RUNTIME, SPARK_READS, aims, case_of
from benchmarks.run import Run
from volley import Environment, FileSource, IcebergSink, Progress, Source, SparkSource, col

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PEERS = {
    "limit": "pyarrow alone, a process a core",
    "append": "pyiceberg Table.append",
    "volley": NATIVE,
    "runtime": RUNTIME,
}
_OPTIONS = {"before": 4_000_000, "rows_per_file": 500_000, "rows_per_epoch": (1_000_000, 4_000_000)}
_SHOWN = (*RATES, "epochs", "files", "mb")

_WARM_UP = (160_000, 10_000)
_WARM_UP_FILES = 4


@dataclass(frozen=True)
class Sizes:
    """How a run's rows are divided.

    Args:
        rows_per_file: Rows of a file.
        rows_per_epoch: Rows of an epoch, a multiple of those of a file.
        before: Rows that the same query handles before it is measured, whole epochs; 0 = its start is measured too.
    """

    rows_per_file: int
    rows_per_epoch: int
    before: int = 0


@dataclass(frozen=True)
class SparkFiles(SparkSource):
    """Parquet files as Spark itself reads them.

    Args:
        folder: Where they are.
        files_per_epoch: The most of one epoch.
    """

    folder: str
    files_per_epoch: int

    @property
    def bounded(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"spark-files:{self.folder}"

    def load(self, spark: SparkSession) -> DataFrame:
        schema = spark.read.parquet(self.folder).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", self.files_per_epoch)
        return reader.parquet(self.folder)


_GENERAL = {"general": GENERAL, "spark_reads": SPARK_READS, "runtime": RUNTIME}
_SETTINGS: dict[str, Any] = {
    **{"rows": 40_000_000, "repeat": 5, "options": _OPTIONS, "cases": "rows_per_epoch"},
    **{"figures": _SHOWN, "bounds": aims},
}


@benchmark("general_path", peers=_GENERAL, **_SETTINGS)
@benchmark(peers=PEERS, **_SETTINGS)
def files_to_iceberg(run: Run) -> None:
    """Files → Iceberg: rows/s and rows per CPU-second of the paths, beside Iceberg's Spark runtime and others."""
    rows_per_epoch = int(run.case)
    # The limit has no epochs: one case is enough.
    if run.peer != "limit" or rows_per_epoch == run.options["rows_per_epoch"][0]:
        sizes = Sizes(run.options["rows_per_file"], rows_per_epoch, run.options["before"])
        copy(replace(run, case=case_of(rows_per_epoch)), sizes)


def copy(run: Run, sizes: Sizes) -> None:
    """Copy all files into a table, by the run's peer.

    Args:
        run: The run.
        sizes: How its rows are divided.
    """
    files_per_epoch = sizes.rows_per_epoch // sizes.rows_per_file
    # The limit and pyiceberg have no query that would have to warm up.
    match run.peer:
        case "limit":
            limit(run, events_folder(run.rows, sizes.rows_per_file))
        case "append":
            append(run, events_folder(run.rows, sizes.rows_per_file), files_per_epoch)
        case "runtime":
            given = {
                "folder": events_folder(run.rows + sizes.before, sizes.rows_per_file),
                "warm_up": events_folder(*_WARM_UP),
                "before": sizes.before,
                "epochs_before": sizes.before // sizes.rows_per_epoch,
                "files_per_epoch": files_per_epoch,
            }
            run.results.extend(runtime(run, runtime_job.files, **given))
        case _:
            _volley(run, sizes)


def _volley(run: Run, sizes: Sizes) -> None:
    """Run one job over all files, in a session that a small one has warmed up."""
    checkpoints = run.folder / "checkpoints"

    def source(folder: Path, files: int) -> Source:
        if run.peer == "spark_reads":
            return SparkFiles(str(folder), files)
        return FileSource(folder, format="parquet", max_files_per_epoch=files)

    def job(name: str, folder: Path, files: int) -> Progress:
        environment = Environment(checkpoint_dir=str(checkpoints), arrow_native=run.peer != "general")
        rows = environment.from_source(source(folder, files)).filter_expr(col("id") >= 0)
        return rows.to_sink(IcebergSink(replace(Lake(run.folder).config, table=name))).execute(name).progress

    def work() -> dict[str, Any]:
        seen = job("benchmark", folder, sizes.rows_per_epoch // sizes.rows_per_file)
        assert seen.rows == run.rows + sizes.before
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    folder = events_folder(run.rows + sizes.before, sizes.rows_per_file)
    job("warm_up", events_folder(*_WARM_UP), _WARM_UP_FILES)
    run.measure(work, start=after(checkpoints, sizes.before // sizes.rows_per_epoch))

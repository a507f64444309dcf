"""Files → filter → Iceberg, beside Iceberg's Spark runtime, plain pyiceberg, and pyarrow that only reads and writes."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks.comparison import GENERAL, LIMIT, NATIVE, SPARK_READS, InEpochs, aims, compared, show
from benchmarks.events import events_folder
from benchmarks.measure import Result, after, in_own_process, measured, print_result
from benchmarks.peers.append import append
from benchmarks.peers.runtime import missing, runtime
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Progress,
    Source,
    SparkSource,
    col,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PEERS = ("limit", "append", "volley", "general", "spark_reads", "runtime")
SUMMARY = "files → Iceberg: rows/s and rows per CPU-second of the paths, beside Iceberg's Spark runtime and others"
_USUAL = ("limit", "append", "volley", "runtime")

_WARM_UP = (160_000, 10_000)
_WARM_UP_FILES = 4


@dataclass(frozen=True)
class Sizes(InEpochs):
    """How much work a run is.

    Args:
        rows: Rows that are measured.
        rows_per_file: Rows of a file.
        rows_per_epoch: Rows of an epoch, a multiple of those of a file.
        before: Rows that the same query handles before it is measured, whole epochs; 0 = its start is measured too.
    """

    rows: int
    rows_per_file: int
    rows_per_epoch: int
    before: int = 0

    @property
    def folder(self) -> Path:
        """Where the files are; they are made if they are not there."""
        return events_folder(self.rows + self.before, self.rows_per_file)

    @property
    def files_per_epoch(self) -> int:
        return self.rows_per_epoch // self.rows_per_file


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


def volley(peer: str, sizes: Sizes) -> Result:
    """One job over all files, in a session that has run a small one before."""
    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))
    checkpoints = work / "checkpoints"

    def source(folder: Path, files: int) -> Source:
        if peer == "spark_reads":
            return SparkFiles(str(folder), files)
        return FileSource(folder, format="parquet", max_files_per_epoch=files)

    def run(name: str, folder: Path, files: int) -> Progress:
        config = IcebergSinkConfig(namespace=["b"], table=name, storage=IcebergStorage.Local(str(work / "lake")))
        stream = Environment(checkpoint_dir=str(checkpoints), arrow_native=peer != "general")
        rows = stream.from_source(source(folder, files)).filter_expr(col("id") >= 0)
        return rows.to_sink(IcebergSink(config)).execute(name).progress

    def all_rows() -> dict[str, Any]:
        seen = run("benchmark", sizes.folder, sizes.files_per_epoch)
        assert seen.rows == sizes.rows + sizes.before
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    try:
        run("warm_up", events_folder(*_WARM_UP), _WARM_UP_FILES)
        name = {"general": GENERAL, "spark_reads": SPARK_READS}.get(peer, NATIVE)
        return measured(name, sizes.rows, all_rows, sizes.case, after(checkpoints, sizes.epochs_before))
    finally:
        shutil.rmtree(work)


def limit(folder: Path, rows: int) -> Result:
    """The limit: a process for each core reads files and writes them again."""
    work, cores = Path(tempfile.mkdtemp(prefix="volley-bench-")), os.cpu_count() or 1
    paths = sorted(folder.glob("*.parquet"))

    def run() -> dict[str, Any]:
        assert sum(pool.map(_copied, paths, [work] * len(paths))) == rows
        return {}

    # Forked, as Spark's workers are: what they import is there already.
    with ProcessPoolExecutor(cores, multiprocessing.get_context("fork")) as pool:
        try:
            list(pool.map(_copied, paths[:cores], [work] * cores))
            return measured("pyarrow alone, a process a core", rows, run, LIMIT)
        finally:
            shutil.rmtree(work)


def _copied(path: Path, folder: Path) -> int:
    """Read a file and write it again; returns its rows."""
    source = pq.ParquetFile(path)
    with pq.ParquetWriter(folder / path.name, source.schema_arrow) as writer:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group, use_threads=False))
    return int(source.metadata.num_rows)


def one_run(peer: str, sizes: Sizes) -> Result:
    """One run of one peer, in a process of its own."""
    if peer != "runtime":
        return in_own_process("benchmarks.files_to_iceberg", peer, json.dumps(asdict(sizes)))
    return runtime(
        "files",
        folder=sizes.folder,
        warm_up=events_folder(*_WARM_UP),
        rows=sizes.rows,
        before=sizes.before,
        epochs_before=sizes.epochs_before,
        files_per_epoch=sizes.files_per_epoch,
        case=sizes.case,
    )


def run(arguments: list[str]) -> None:
    """Alternating runs, each in a process of its own: a table of medians with their spread, and each run as JSON."""
    asked = _asked(arguments)
    skipped = missing() if "runtime" in asked.peers else None
    events_folder(*_WARM_UP)
    turns = [
        (peer, Sizes(asked.rows, asked.rows_per_file, epoch, asked.before))
        for peer in asked.peers
        # The limit knows no epochs.
        for epoch in (asked.rows_per_epoch[:1] if peer == "limit" else asked.rows_per_epoch)
        if not (peer == "runtime" and skipped)
    ]
    assert all(sizes.folder.exists() for _, sizes in turns)
    results = [one_run(peer, sizes) for _ in range(asked.repeat) for peer, sizes in turns]
    report = show(asked.title, results, skipped)
    for figure in aims(compared(results)):
        report.figure(figure)
    report.print()


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks files_to_iceberg", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=40_000_000, help="measured; disk stays small")
    parser.add_argument("--before", type=int, default=4_000_000, help="rows of the same query before, to warm it up")
    parser.add_argument("--rows-per-file", type=int, default=500_000)
    parser.add_argument("--rows-per-epoch", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=_USUAL)
    parser.add_argument("--repeat", type=int, default=5, help="alternating runs of each peer")
    parser.add_argument("--title", default="files_to_iceberg", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """One run of one peer; prints its Result."""
    peer, sizes = sys.argv[1], Sizes(**json.loads(sys.argv[2]))
    # Who has no query to start has none to warm up.
    alone = replace(sizes, before=0)
    match peer:
        case "limit":
            result = limit(alone.folder, sizes.rows)
        case "append":
            result = append(alone.folder, sizes.rows, sizes.files_per_epoch, sizes.case)
        case _:
            result = volley(peer, sizes)
    print_result(result)


if __name__ == "__main__":
    main()

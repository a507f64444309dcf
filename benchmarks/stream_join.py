"""Two streams joined within ten seconds, beside Spark's own join of streams, which has no sink."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.lake import Lake
from benchmarks.measure import after
from benchmarks.run import Run
from volley import Environment, FileSource, IcebergSink, Progress

_VOLLEY, _SPARK = "Volley, into an Iceberg table", "Spark's own join, without a sink"
_FIGURE = "rows_per_cpu_second"
_LEAST = 5.0
_SIDES = ("ads", "clicks")
_KEYS = 100_000
_FILES = 16
# Each side has a row of a user every twelve seconds; a row is up to five seconds older than the latest.
_MICROSECONDS_A_ROW = 120
_DISORDER = 5_000_000
_SCHEMA = "user string, id long, at timestamp"


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write both streams once for all runs."""
    for seed, side in enumerate(_SIDES):
        (folder / side).mkdir()
        each = (asked.rows or 0) // _FILES // len(_SIDES)
        for number in range(_FILES):
            events = _events(np.random.default_rng([seed, number]), number * each, each)
            pq.write_table(events, folder / side / f"{number:04}.parquet")
    yield {"folder": folder}


def _events(dice: np.random.Generator, start: int, rows: int) -> pa.Table:
    numbers = np.arange(start, start + rows)
    at = 1_700_000_000_000_000 + numbers * _MICROSECONDS_A_ROW - dice.integers(0, _DISORDER, rows)
    users = pa.array(np.char.add("user-", np.arange(_KEYS).astype(str)))
    columns = [users.take(pa.array(dice.integers(0, _KEYS, rows))), pa.array(numbers)]
    return pa.table([*columns, pa.array(at).cast(pa.timestamp("us", "UTC"))], ["user", "id", "at"])


@benchmark(
    rows=4_000_000,
    peers={"volley": _VOLLEY, "spark": _SPARK},
    options={"epochs": 8, "before": 2},
    figures=(*RATES, "pairs"),
    prepare=_folders,
    bounds=lambda row: row.beside(_SPARK, _FIGURE, "rows per CPU-second", of=_VOLLEY, least=_LEAST),
)
def stream_join(run: Run) -> None:
    """Two streams joined by user within ten seconds: rows of both per CPU-second, in steady state, beside Spark."""
    folder, few = Path(run.options["folder"]), run.folder / "few"
    for side in _SIDES:
        (few / side).mkdir(parents=True)
        for path in sorted((folder / side).iterdir())[:2]:
            shutil.copy(path, few / side)
    query = {"volley": _volley, "spark": _spark}[run.peer]
    query(run, "warm_up", few, 1)
    epochs, before = run.options["epochs"], run.options["before"]
    steady = int(run.rows * (epochs - before) / epochs)
    start = after(run.folder / "checkpoints", before)
    run.measure(lambda: query(run, "benchmark", folder, _FILES // epochs), rows=steady, start=start)


def _volley(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    environment = Environment(checkpoint_dir=str(run.folder / "checkpoints"))
    ads, clicks = (
        environment.from_source(FileSource(folder / side, format="parquet", max_files_per_epoch=files))
        for side in _SIDES
    )
    pairs = ads.join(clicks, on="user", within=("0s", "10s"), time="at", lateness="10s", suffix="_of_click")
    sink = IcebergSink(replace(Lake(run.folder).config, table=name))
    progress: Progress = pairs.to_sink(sink).execute(name).progress
    return {"pairs": progress.rows}


def _spark(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    from pyspark.sql import DataFrame, SparkSession

    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.driver.memory", "6g").getOrCreate()
    # As many partitions as cores, as a careful user sets it: 200 would cost many times more.
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    for side in _SIDES:
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files).format("parquet")
        reader.load(str(folder / side)).withWatermark("at", "10 seconds").createOrReplaceTempView(side)
    pairs = spark.sql(
        "select a.*, c.id as id_of_click, c.at as at_of_click from ads a join clicks c "
        "on a.user = c.user and c.at between a.at and a.at + interval 10 seconds"
    )
    counts = []

    def batch(frame: DataFrame, number: int) -> None:
        counts.append(frame.count())

    writer = pairs.writeStream.outputMode("append").foreachBatch(batch)
    writer = writer.option("checkpointLocation", str(run.folder / "checkpoints" / name))
    writer.trigger(availableNow=True).start().awaitTermination()
    return {"pairs": sum(counts)}

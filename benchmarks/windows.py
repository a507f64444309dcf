"""Tumbling windows of a minute, beside other streaming engines without a sink, and DuckDB's batch query."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.lake import Lake
from benchmarks.measure import after
from benchmarks.peers import bytewax_windows, pathway_windows
from benchmarks.rows import Bound, Row
from benchmarks.run import Case, Run
from volley import Environment, FileSource, IcebergSink, Progress, count, max_, min_, sum_, tumbling

_PEERS = {
    "volley": "Volley, into an Iceberg table",
    "spark": "Spark's own windows, without a sink",
    "duckdb": "DuckDB, one thread, a batch query",
    "bytewax": "bytewax, the first of the files, without a sink",
    "pathway": "Pathway, the first of the files, without a sink",
}
_CASES = ("10000 keys in Parquet", "1000000 keys in Parquet", "10000 keys in JSON")
_AT_LEAST = {
    **{("spark", _CASES[0]): 5.0, ("spark", _CASES[1]): 3.0, ("spark", _CASES[2]): 2.0},
    **{("duckdb", _CASES[0]): 0.25, ("bytewax", _CASES[0]): 1.0, ("pathway", _CASES[2]): 1.0},
}
_FILES = 16
# 2.5 million rows are five minutes; a row is up to five seconds older than the latest.
_MICROSECONDS_A_ROW = 120
_DISORDER = 5_000_000
_SCHEMA = "user string, price double, item long, at timestamp"


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the events once for all runs."""
    for case in asked.options["keys"]:
        keys, form = _parsed(case)
        _write(folder / case, asked.rows or 0, keys, form)
    yield {"folder": folder}


def _parsed(case: str) -> tuple[int, str]:
    keys, _, form = case.partition(" keys in ")
    return int(keys), form.lower()


def _write(folder: Path, rows: int, keys: int, form: str) -> None:
    folder.mkdir()
    each = rows // _FILES
    for number in range(_FILES):
        events = _events(np.random.default_rng(number), number * each, each, keys)
        if form == "parquet":
            pq.write_table(events, folder / f"{number:04}.parquet")
        else:
            path = folder / f"{number:04}.json"
            duckdb.sql(f"copy (from events) to '{path}' (format json)")


def _events(dice: np.random.Generator, start: int, rows: int, keys: int) -> pa.Table:
    at = (
        1_700_000_000_000_000 + np.arange(start, start + rows) * _MICROSECONDS_A_ROW - dice.integers(0, _DISORDER, rows)
    )
    users = pa.array(np.char.add("user-", np.arange(keys).astype(str)))
    return pa.table(
        {
            "user": users.take(pa.array(dice.integers(0, keys, rows))),
            "price": pa.array(dice.integers(0, 10_000, rows) / 100),
            "item": pa.array(dice.integers(0, 1_000, rows)),
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
        }
    )


def _bounds(row: Row) -> Iterator[Bound]:
    if row.peer != _PEERS["volley"]:
        return
    for (peer, case), least in _AT_LEAST.items():
        ratio = row.times("rows_per_cpu_second", partial(_is, peer, case)) if case == row.case else None
        if ratio is not None:
            yield Bound(f"{row.what}: rows per CPU-second", ratio, least, f"× {_PEERS[peer]}", ratio >= least)


def _is(peer: str, case: Case, row: Row) -> bool:
    return row.peer == _PEERS[peer] and row.case == case


@benchmark(
    rows=10_000_000,
    peers=_PEERS,
    options={"keys": _CASES, "epochs": 8, "before": 2},
    cases="keys",
    figures=(*RATES, "windows", "worker_mb"),
    prepare=_folders,
    bounds=_bounds,
)
def windows(run: Run) -> None:
    """Tumbling windows of a minute with count, sum, min and max: rows per CPU-second in steady state."""
    folder = Path(run.options["folder"], str(run.case))
    match run.peer:
        case "volley":
            _volley(run, folder)
        case "spark":
            _spark(run, folder)
        case "duckdb":
            _duckdb(run, folder)
        case _:
            _others(run, folder)


def _steady(run: Run) -> int:
    """The rows of the epochs that are measured."""
    epochs, before = run.options["epochs"], run.options["before"]
    return int(run.rows * (epochs - before) / epochs)


def _volley(run: Run, folder: Path) -> None:
    form = _parsed(str(run.case))[1]
    checkpoints, epochs = run.folder / "checkpoints", run.options["epochs"]

    def job(name: str, folder: Path, files: int) -> Progress:
        source = (
            FileSource(folder, format="parquet", max_files_per_epoch=files)
            if form == "parquet"
            else FileSource(folder, format="json", schema=_SCHEMA, max_files_per_epoch=files)
        )
        rows = Environment(checkpoint_dir=str(checkpoints)).from_source(source).key_by("user")
        totals = rows.window(tumbling("1m"), on="at", lateness="10s").aggregate(
            n=count(), total=sum_("price"), low=min_("price"), high=max_("price")
        )
        return totals.to_sink(IcebergSink(replace(Lake(run.folder).config, table=name))).execute(name).progress

    def work() -> dict[str, Any]:
        return {"windows": job("benchmark", folder, _FILES // epochs).rows}

    job("warm_up", _few(folder, run.folder / "few"), 1)
    run.measure(work, rows=_steady(run), start=after(checkpoints, run.options["before"]))


def _few(folder: Path, few: Path) -> Path:
    """A folder with the first two files."""
    few.mkdir()
    for path in sorted(folder.iterdir())[:2]:
        shutil.copy(path, few)
    return few


def _spark(run: Run, folder: Path) -> None:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F

    form = _parsed(str(run.case))[1]
    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.sql.session.timeZone", "UTC")
        # A million keys do not fit into the default of 1 GB.
        .config("spark.driver.memory", "6g")
        .getOrCreate()
    )
    # As many partitions as cores, as a careful user sets it: 200 would cost many times more.
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    checkpoints = run.folder / "checkpoints"
    found = []

    def query(name: str, folder: Path, files: int) -> None:
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files).format(form)
        rows = reader.load(str(folder)).withWatermark("at", "10 seconds")
        totals = rows.groupBy(F.window("at", "1 minute"), "user").agg(
            F.count("*"), F.sum("price"), F.min("price"), F.max("price")
        )

        def batch(frame: DataFrame, number: int) -> None:
            found.append(frame.count())

        writer = totals.writeStream.outputMode("append").foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(checkpoints / name))
        writer.trigger(availableNow=True).start().awaitTermination()

    def work() -> dict[str, Any]:
        query("benchmark", folder, _FILES // run.options["epochs"])
        return {"windows": sum(found)}

    query("warm_up", _few(folder, run.folder / "few"), 1)
    found.clear()
    run.measure(work, rows=_steady(run), start=after(checkpoints, run.options["before"]))
    spark.stop()


def _others(run: Run, folder: Path) -> None:
    """Run a peer that has an hour's work with all files over the first one, in the case whose format it reads."""
    rows = run.rows // _FILES
    match run.peer, run.case:
        # With a million keys a file takes an hour.
        case "bytewax", "10000 keys in Parquet" if bytewax_windows.missing() is None:
            run.results.extend(bytewax_windows.bytewax(run, folder / "0000.parquet"))
        case "pathway", "10000 keys in JSON" if pathway_windows.missing() is None:
            run.results.extend(pathway_windows.pathway(run, folder / "0000.json", rows))


def _duckdb(run: Run, folder: Path) -> None:
    connection = duckdb.connect()
    connection.execute("set threads to 1")

    def work() -> dict[str, Any]:
        source = f"'{folder}/*.parquet'" if _parsed(str(run.case))[1] == "parquet" else f"read_json('{folder}/*.json')"
        totals = connection.sql(
            "select time_bucket(interval '1 minute', \"at\"::timestamp) as s, user, count(*), sum(price), min(price), "
            f"max(price) from {source} group by all"
        ).to_arrow_table()
        return {"windows": totals.num_rows}

    run.measure(work)

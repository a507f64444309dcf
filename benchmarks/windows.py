"""Tumbling windows of a minute, beside other streaming engines without a sink, and DuckDB's batch query."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, benchmark
from benchmarks.events import BEGIN, FILES, first_files, numbered, times
from benchmarks.lake import Lake
from benchmarks.measure import after
from benchmarks.peers.bytewax_windows import bytewax
from benchmarks.peers.flink_windows import flink
from benchmarks.peers.pathway_windows import pathway
from benchmarks.peers.quix_windows import quix
from benchmarks.peers.spark import counted, session
from benchmarks.rows import Bound, Row
from benchmarks.run import Case, Run
from tests.servers.kafka import Kafka
from volley import (
    FileSource,
    KafkaSource,
    Progress,
    Source,
    count,
    max_,
    min_,
    sum_,
    tumbling,
)

_PEERS = {
    "volley": "Volley, into an Iceberg table",
    "spark": "Spark's own windows, without a sink",
    "duckdb": "DuckDB, one thread, a batch query",
    "bytewax": "bytewax, the first of the files, without a sink",
    "pathway": "Pathway, the first of the files, without a sink",
    "flink": "PyFlink, into CSV files",
    "quix": "Quix Streams, the rows of the first of the files, without a sink",
}
_CASES = ("10000 keys in Parquet", "1000000 keys in Parquet", "10000 keys in JSON", "10000 keys in Kafka")
_AT_LEAST = {
    **{("spark", _CASES[0]): 5.0, ("spark", _CASES[1]): 3.0, ("spark", _CASES[2]): 2.0},
    **{("duckdb", _CASES[0]): 0.25, ("bytewax", _CASES[0]): 1.0, ("pathway", _CASES[2]): 1.0},
    **{("flink", _CASES[0]): 1.0, ("flink", _CASES[2]): 1.0, ("flink", _CASES[3]): 1.0, ("quix", _CASES[3]): 1.0},
}
# 2.5 million rows are five minutes; a row is up to five seconds older than the latest.
_MICROSECONDS_A_ROW = 120
_DISORDER = 5_000_000
_SCHEMA = "user string, price double, item long, at timestamp"
_PARTITIONS = 4
_LATE = '{"user":"late","price":0.0,"item":0,"at":"2023-11-16 00:00:00.000000+00"}'


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the events once for all runs, and let DuckDB say what they come to."""
    expected, topics = {}, {}
    with ExitStack() as stack:
        for case in asked.options["keys"]:
            keys, form = _parsed(case)
            files = _write(folder / case, asked.rows or 0, keys, form)
            expected[case] = {part: _batch(files[:number]) for part, number in (("all", None), ("first", 1))}
            if form == "kafka":
                topics = stack.enter_context(_topics(folder, files))
        yield {"folder": folder, "expected": expected, **topics}


@contextmanager
def _topics(folder: Path, files: Sequence[Path]) -> Iterator[dict[str, str]]:
    """One broker, whose CPU does not count, with a topic of all lines and one of the first file's, keyed by user.

    Behind the first file's lines each partition has one so late that it closes the windows before: Quix Streams hands
    out no others.
    """
    kafka = Kafka(folder)
    properties = {"compression.type": "lz4", "linger.ms": 20, "batch.size": 262_144}
    try:
        kafka.start()
        topics = {"all": kafka.topic(_PARTITIONS), "first": kafka.topic(_PARTITIONS)}
        for topic, chosen in ((topics["all"], files), (topics["first"], files[:1])):
            for file in chosen:
                lines = file.read_text().splitlines()
                # The producer chooses the partition by the key.
                messages = ({"value": line, "key": line.split('"', 4)[3], "partition": -1} for line in lines)
                kafka.produce(topic, messages, **properties)
        kafka.produce(topics["first"], ({"value": _LATE, "key": "late", "partition": n} for n in range(_PARTITIONS)))
        yield {"brokers": kafka.bootstrap, **topics}
    finally:
        kafka.stop()


def _parsed(case: str) -> tuple[int, str]:
    keys, _, form = case.partition(" keys in ")
    return int(keys), form.lower()


def _write(folder: Path, rows: int, keys: int, form: str) -> list[Path]:
    folder.mkdir()
    each = rows // FILES
    files = [folder / f"{number:04}.{'parquet' if form == 'parquet' else 'json'}" for number in range(FILES)]
    for number, file in enumerate(files):
        events = _events(np.random.default_rng(number), number * each, each, keys)
        if form == "parquet":
            pq.write_table(events, file)
        else:
            duckdb.sql(f"copy (from events) to '{file}' (format json)")
    return files


def _events(dice: np.random.Generator, start: int, rows: int, keys: int) -> pa.Table:
    at = BEGIN + np.arange(start, start + rows) * _MICROSECONDS_A_ROW - dice.integers(0, _DISORDER, rows)
    users = numbered("user-", np.arange(keys))
    return pa.table(
        {
            "user": users.take(pa.array(dice.integers(0, keys, rows))),
            "price": pa.array(dice.integers(0, 10_000, rows) / 100),
            "item": pa.array(dice.integers(0, 1_000, rows)),
            "at": times(at),
        }
    )


def _batch(files: Sequence[Path]) -> tuple[float, ...]:
    """The totals over all windows of these files."""
    windows = _query(duckdb.connect(), [str(file) for file in files])
    return _totals(windows)


def _query(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> duckdb.DuckDBPyRelation:
    read = "read_parquet" if files[0].endswith("parquet") else "read_json"
    return connection.sql(
        "select time_bucket(interval '1 minute', \"at\"::timestamp) as s, user, count(*) as n, sum(price) as total, "
        f"min(price) as low, max(price) as high from {read}({list(files)}) group by all"
    )


def _totals(windows: duckdb.DuckDBPyRelation) -> tuple[float, ...]:
    return windows.aggregate("count(*), sum(n)::bigint, sum(total), sum(low), sum(high)").fetchall()[0]


def _check(run: Run, part: str, totals: Sequence[float]) -> None:
    """Compare the totals over all windows with what DuckDB finds."""
    expected = run.options["expected"][run.case][part]
    if not all(map(partial(math.isclose, rel_tol=1e-9), totals, expected)):
        raise AssertionError(f"{run.label}, {run.case}: totals {list(totals)}, expected {expected}")


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
    files = _parsed(str(run.case))[1] != "kafka"
    match run.peer:
        case "volley":
            _volley(run, folder)
        case "spark" if files:
            _spark(run, folder)
        case "duckdb" if files:
            _duckdb(run, folder)
        case _:
            _others(run, folder)


def _steady(run: Run) -> int:
    """The rows of the epochs that are measured."""
    epochs, before = run.options["epochs"], run.options["before"]
    return int(run.rows * (epochs - before) / epochs)


def _volley(run: Run, folder: Path) -> None:
    checkpoints, lake = run.folder / "checkpoints", Lake(run.folder)

    def job(name: str, source: Source) -> Progress:
        rows = lake.environment().from_source(source).key_by("user")
        totals = rows.window(tumbling("1m"), on="at", lateness="10s").aggregate(
            n=count(), total=sum_("price"), low=min_("price"), high=max_("price")
        )
        return totals.to_sink(lake.sink(name)).execute(name).progress

    def work() -> dict[str, Any]:
        return {"windows": job("benchmark", source).rows}

    few, source = _sources(run, folder)
    job("warm_up", few)
    run.measure(work, rows=_steady(run), start=after(checkpoints, run.options["before"]))
    found = lake.table("benchmark").scan().to_arrow()
    _check(run, "all", _totals(duckdb.from_arrow(found)))


def _sources(run: Run, folder: Path) -> tuple[Source, Source]:
    """Few rows for a warm-up, and all."""
    options, form = run.options, _parsed(str(run.case))[1]
    if form == "kafka":
        kafka = partial(KafkaSource, options["brokers"], schema=_SCHEMA, bounded=True)
        return kafka(options["first"]), kafka(options["all"], max_rows_per_epoch=run.rows // options["epochs"])
    files = (
        partial(FileSource, format="parquet")
        if form == "parquet"
        else partial(FileSource, format="json", schema=_SCHEMA)
    )
    few = files(first_files(folder, run.folder / "few"), max_files_per_epoch=1)
    return few, files(folder, max_files_per_epoch=FILES // options["epochs"])


def _spark(run: Run, folder: Path) -> None:
    from pyspark.sql import functions as F

    form, checkpoints, spark = _parsed(str(run.case))[1], run.folder / "checkpoints", session()

    def query(name: str, folder: Path, files: int) -> int:
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files).format(form)
        rows = reader.load(str(folder)).withWatermark("at", "10 seconds")
        totals = rows.groupBy(F.window("at", "1 minute"), "user").agg(
            F.count("*"), F.sum("price"), F.min("price"), F.max("price")
        )
        return counted(totals, checkpoints / name)

    def work() -> dict[str, Any]:
        return {"windows": query("benchmark", folder, FILES // run.options["epochs"])}

    query("warm_up", first_files(folder, run.folder / "few"), 1)
    run.measure(work, rows=_steady(run), start=after(checkpoints, run.options["before"]))
    spark.stop()


def _others(run: Run, folder: Path) -> None:
    """Run a peer in the cases whose format it reads; one that would take an hour, over the first file's rows alone."""
    options, first, part = run.options, replace(run, rows=run.rows // FILES), "first"
    match run.peer, run.case:
        # With a million keys a file takes bytewax an hour.
        case "bytewax", "10000 keys in Parquet":
            found = bytewax(first, f"{folder}/0000.parquet")
        case "pathway", "10000 keys in JSON":
            found = pathway(first, f"{folder}/0000.json")
        case "quix", "10000 keys in Kafka":
            found = quix(first, options["brokers"], options["first"], options["expected"][run.case]["first"][0])
        case "flink", "10000 keys in Kafka":
            part, found = "all", flink(run, "kafka", options["all"], options["first"], options["brokers"])
        case "flink", "10000 keys in Parquet" | "10000 keys in JSON":
            few = first_files(folder, run.folder / "few")
            part, found = "all", flink(run, _parsed(str(run.case))[1], str(folder), str(few))
        case _:
            return
    for result in found:
        _check(run, part, result.figures.pop("totals"))
    run.results.extend(found)


def _duckdb(run: Run, folder: Path) -> None:
    connection = duckdb.connect()
    connection.execute("set threads to 1")

    def work() -> dict[str, Any]:
        files = [str(file) for file in sorted(folder.iterdir())]
        return {"windows": _query(connection, files).to_arrow_table().num_rows}

    run.measure(work)

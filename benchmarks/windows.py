"""Windows by user: of a minute, beside other streaming engines without a sink and DuckDB; of a day, with much state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, Limit, benchmark
from benchmarks.events import BEGIN, FILES, first_files, numbered, times, users_at_times, write_files
from benchmarks.kafka_to_iceberg import BATCHED
from benchmarks.lake import Lake
from benchmarks.peers.spark import counted, session
from benchmarks.peers.windows import run_peer
from benchmarks.run import Run
from tests.servers.kafka import Kafka
from tests.servers.shared import own_server
from volley import FileSource, KafkaSource, Source, count, max_, min_, sum_, tumbling

_VOLLEY = "Volley, into an Iceberg table"
_PEERS = {
    "volley": _VOLLEY,
    "spark": "Spark's own windows, without a sink",
    "duckdb": "DuckDB, one thread, a batch query",
    "bytewax": "bytewax, the first of the files, without a sink",
    "pathway": "Pathway, the first of the files, without a sink",
    "flink": "PyFlink, into CSV files",
    "quix": "Quix Streams, the rows of the first of the files, without a sink",
}
_CASES = {
    "10000 keys in Parquet": (10_000, "parquet"),
    "1000000 keys in Parquet": (1_000_000, "parquet"),
    "10000 keys in JSON": (10_000, "json"),
    "10000 keys in Kafka": (10_000, "kafka"),
}
_PARQUET, _MANY, _JSON, _KAFKA = _CASES
_AT_LEAST = {
    **{("spark", _PARQUET): 5.0, ("spark", _MANY): 3.0, ("spark", _JSON): 2.0},
    **{("duckdb", _PARQUET): 0.25, ("bytewax", _PARQUET): 1.0, ("pathway", _JSON): 1.0},
    **{("flink", _PARQUET): 1.0, ("flink", _JSON): 1.0, ("flink", _KAFKA): 1.0, ("quix", _KAFKA): 1.0},
}
_FIGURE, _UNIT = "rows_per_cpu_second", "rows per CPU-second"
_SCHEMA = "user string, price double, item long, at timestamp"
_PARTITIONS = 4
_LATE = '{"user":"late","price":0.0,"item":0,"at":"2023-11-16 00:00:00.000000+00"}'


def _prepared(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the events once for all runs, and let DuckDB say what they come to."""
    expected, topics = {}, {}
    with ExitStack() as running:
        for case in asked.options["keys"]:
            keys, form = _CASES[case]
            files = _write(folder / case, asked.rows, keys, "json" if form == "kafka" else form)
            expected[case] = {"all": _totals(_query(files)), "first": _totals(_query(files[:1]))}
            if form == "kafka":
                kafka = running.enter_context(own_server(Kafka(folder)))
                topics = {"brokers": kafka.bootstrap, "all": _topic(kafka, files), "first": _topic(kafka, files[:1])}
                # Windows before so late a row are closed: Quix Streams hands out no others.
                late = ({"value": _LATE, "key": "late", "partition": number} for number in range(_PARTITIONS))
                kafka.produce(topics["first"], late)
        yield {"folder": folder, "expected": expected, **topics}


def _topic(kafka: Kafka, files: Sequence[Path]) -> str:
    """A topic with the lines of files, keyed by user."""
    topic = kafka.topic(_PARTITIONS)
    for file in files:
        lines = file.read_text().splitlines()
        # The producer chooses the partition by the key.
        messages = ({"value": line, "key": line.split('"', 4)[3], "partition": -1} for line in lines)
        kafka.produce(topic, messages, **BATCHED)
    return topic


def _write(folder: Path, rows: int, keys: int, form: str) -> list[Path]:
    folder.mkdir()
    files = [folder / f"{number:04}.{form}" for number in range(FILES)]
    for number, file in enumerate(files):
        events = _events(number, rows // FILES, keys)
        if form == "parquet":
            pq.write_table(events, file)
        else:
            duckdb.sql(f"copy (from events) to '{file}' (format json)")
    return files


def _events(file: int, rows: int, keys: int) -> pa.Table:
    dice, ids = np.random.default_rng(file), np.arange(file * rows, (file + 1) * rows)
    # 2.5 million rows are five minutes.
    users, at = users_at_times(dice, ids, keys)
    prices, items = dice.integers(0, 10_000, rows) / 100, dice.integers(0, 1_000, rows)
    return pa.table({"user": users, "price": prices, "item": items, "at": at})


def _query(files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
    """DuckDB's windows, by one thread."""
    connection = duckdb.connect(config={"threads": 1})
    read = "read_parquet" if files[0].suffix == ".parquet" else "read_json"
    return connection.sql(
        "select time_bucket(interval '1 minute', \"at\"::timestamp) as s, user, count(*) as n, sum(price) as total, "
        f"min(price) as low, max(price) as high from {read}({list(map(str, files))}) group by all"
    )


def _totals(windows: duckdb.DuckDBPyRelation) -> tuple[float, ...]:
    return windows.aggregate("count(*), sum(n)::bigint, sum(total), sum(low), sum(high)").fetchall()[0]


def _check(run: Run, part: str, totals: Sequence[float]) -> None:
    """Compare the totals over all windows with what DuckDB finds."""
    expected = run.options["expected"][run.case][part]
    if not all(map(partial(math.isclose, rel_tol=1e-9), totals, expected)):
        raise AssertionError(f"{run.label}, {run.case}: totals {list(totals)}, expected {expected}")


@benchmark(
    rows=10_000_000,
    peers=_PEERS,
    options={"epochs": 8, "before": 2},
    cases={"keys": tuple(_CASES)},
    case="",
    figures=(*RATES, "windows", "worker_mb"),
    prepare=_prepared,
    bounds=[
        Limit(_FIGURE, _UNIT, least, of=_VOLLEY, case=case, beside=_PEERS[peer], times=f"× {_PEERS[peer]}")
        for (peer, case), least in _AT_LEAST.items()
    ],
)
def windows(run: Run) -> None:
    """Tumbling windows of a minute with count, sum, min and max: rows per CPU-second in steady state."""
    folder, (_, form) = Path(run.options["folder"], str(run.case)), _CASES[str(run.case)]
    match run.peer, form:
        case "volley", _:
            _volley(run, folder)
        case "spark", "parquet" | "json":
            _spark(run, folder)
        case "duckdb", "parquet" | "json":
            files = sorted(folder.iterdir())
            run.measure(lambda: {"windows": _query(files).to_arrow_table().num_rows})
        case _:
            _others(run, folder)


def _volley(run: Run, folder: Path) -> None:
    options, form = run.options, _CASES[str(run.case)][1]
    few: Source
    source: Source
    if form == "kafka":
        kafka = partial(KafkaSource, options["brokers"], schema=_SCHEMA, bounded=True)
        few, source = kafka(options["first"]), kafka(options["all"], max_rows_per_epoch=run.rows // options["epochs"])
    else:
        files = partial(FileSource, format="parquet" if form == "parquet" else "json", schema=_SCHEMA)
        few = files(first_files(folder, run.folder / "few"), max_files_per_epoch=1)
        source = files(folder, max_files_per_epoch=FILES // options["epochs"])
    _windows(run, "warm_up", few, "1m")
    run.measure_steady(lambda: _windows(run, "benchmark", source, "1m"))
    _check(run, "all", _totals(duckdb.from_arrow(Lake(run.folder).table("benchmark").scan().to_arrow())))


def _windows(run: Run, name: str, source: Source, size: str) -> dict[str, Any]:
    """Run a job of windows of a size; return how many there are."""
    lake = Lake(run.folder)
    rows = lake.environment().from_source(source).key_by("user").window(tumbling(size), on="at", lateness="10s")
    totals = rows.aggregate(n=count(), total=sum_("price"), low=min_("price"), high=max_("price"))
    return {"windows": lake.fill(name, totals).rows}


def _spark(run: Run, folder: Path) -> None:
    from pyspark.sql import functions as F

    (_, form), spark = _CASES[str(run.case)], session()

    def query(name: str, folder: Path, files: int) -> dict[str, Any]:
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files).format(form)
        rows = reader.load(str(folder)).withWatermark("at", "10 seconds")
        totals = rows.groupBy(F.window("at", "1 minute"), "user").agg(
            F.count("*"), F.sum("price"), F.min("price"), F.max("price")
        )
        return {"windows": counted(totals, run.folder / "checkpoints" / name)}

    query("warm_up", first_files(folder, run.folder / "few"), 1)
    run.measure_steady(lambda: query("benchmark", folder, FILES // run.options["epochs"]))
    spark.stop()


def _others(run: Run, folder: Path) -> None:
    """Run a peer in the cases whose format it reads; one that would take an hour, over the first file's rows alone."""
    options, (_, form) = run.options, _CASES[str(run.case)]
    part, given = "first", dict[str, Any]()
    match run.peer, run.case:
        # With a million keys a file takes bytewax an hour: it takes rows one by one.
        case ("bytewax", "10000 keys in Parquet") | ("pathway", "10000 keys in JSON"):
            given = {"file": folder / f"0000.{form}"}
        case "quix", "10000 keys in Kafka":
            windows = options["expected"][run.case]["first"][0]
            given = {"brokers": options["brokers"], "topic": options["first"], "windows": windows}
        case "flink", "10000 keys in Kafka":
            part, given = "all", {"source": options["all"], "warm_up": options["first"], "brokers": options["brokers"]}
        case "flink", "10000 keys in Parquet" | "10000 keys in JSON":
            few = first_files(folder, run.folder / "few")
            part, given = "all", {"source": folder, "warm_up": few, "brokers": ""}
        case _:
            return
    rows = run.rows if part == "all" else run.rows // FILES
    for result in run_peer(replace(run, rows=rows), form=form, **given):
        _check(run, part, result.figures.pop("totals"))
        run.results.append(result)


def _growing(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    yield {"folder": write_files(folder, FILES, partial(_with_keys, asked.rows // FILES))}


def _with_keys(rows: int, file: int) -> pa.Table:
    keys = np.arange(file * rows, (file + 1) * rows)
    return pa.table({"user": numbered("user-", keys), "price": keys % 10_000 / 100, "at": times(BEGIN + keys)})


@benchmark(
    rows=10_000_000,
    peers={"volley": _VOLLEY},
    options={"epochs": 8},
    figures=(*RATES, "windows", "state_mb"),
    prepare=_growing,
    bounds=[Limit("worker_mb", "MB of a worker", most=1_000)],
)
def window_state(run: Run) -> None:
    """Windows whose state grows to 10 million keys and then comes out: memory of a worker, size of the state."""
    files = FILES // run.options["epochs"]
    source = FileSource(run.options["folder"], format="parquet", max_files_per_epoch=files)
    figures = run.measure(lambda: _windows(run, "benchmark", source, "1d"))
    states = (run.folder / "checkpoints" / "benchmark" / "volley" / "windows-0").glob("*")
    figures["state_mb"] = max(sum(file.stat().st_size for file in state.glob("state-*")) for state in states) / 1e6

"""Joins beside Spark: streams with tables, by key and as of a time, beside DuckDB, too; two streams within a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import RATES, Benchmark, Limit, Run, benchmark
from benchmarks.events import batches, first_files, numbered, times, users_at_times, write_files
from benchmarks.lake import Lake
from benchmarks.peers.spark import counted, session
from volley import Environment, FileSource, MemorySource
from volley.columns.nodes import lower
from volley.engine.joins import with_rows
from volley.plan.nodes import walk
from volley.spark.session import open_context, session_of

_EVENT_FILES, _STREAM_FILES = 4, 16
_CASES = {"10,000 keys": (10_000, 1), "1 M keys": (1_000_000, 1), "as of: 10,000 keys, 20 versions": (10_000, 20)}
_ONE_THREAD, _ALL_CORES = "Volley, one thread", "Spark, all cores"
_FIGURE = "rows_per_cpu_second"
_BATCH_ROWS = 64_000
_HOUR = 3_600_000_000


@benchmark(
    rows=8_000_000,
    repeat=3,
    peers={"volley": _ONE_THREAD, "duckdb": "DuckDB, one thread", "spark": _ALL_CORES},
    cases={"join": tuple(_CASES)},
    figures=(_FIGURE, "rows_per_second"),
    plots=(_FIGURE,),
    bounds=[Limit(_FIGURE, "rows per CPU-second", 2.0, of=_ONE_THREAD, beside=_ALL_CORES)],
)
def table_join(run: Run) -> None:
    """Events joined with a table by a text: rows per CPU-second, reading included, beside Spark and DuckDB."""
    keys, versions = _CASES[str(run.case)]
    events = partial(_table_events, keys, run.rows // _EVENT_FILES)
    folder = write_files(run.folder / "events", _EVENT_FILES, events)
    by_peer = {"volley": _by_volley, "duckdb": _by_duckdb, "spark": _by_spark}[run.peer]
    compute = by_peer(folder, _table(keys, versions), versions > 1)
    # The first pass warms up: the JVM compiles what it does often.
    compute()
    run.measure(compute)


def _table(keys: int, versions: int) -> pa.Table:
    rows = np.arange(keys * versions)
    users, since = numbered("user-", rows // versions), times(rows % versions * _HOUR)
    countries, scores = pa.array(rows % 200).cast(pa.string()), rows.astype(np.float64)
    return pa.table({"user": users, "valid_from": since, "country": countries, "score": scores})


def _table_events(keys: int, rows: int, file: int) -> pa.Table:
    dice = np.random.default_rng([21, file])
    users, at = numbered("user-", dice.integers(0, keys, rows)), times(dice.integers(0, 20 * _HOUR, rows))
    return pa.table({"id": np.arange(file * rows, (file + 1) * rows), "user": users, "at": at})


def _by_volley(folder: Path, table: pa.Table, as_of: bool) -> Callable[[], None]:
    stream, source = Environment().from_source(FileSource(str(folder), format="parquet")), MemorySource(table)
    joined = stream.join(source, on="user", as_of=("at", "valid_from") if as_of else None, suffix="_of_user")
    _, node = walk(with_rows([joined._node]))
    steps = lower([node], pq.read_schema(folder / "0000.parquet").remove_metadata())

    def compute() -> None:
        for batch in batches(folder, _BATCH_ROWS):
            steps(batch)

    return compute


def _by_duckdb(folder: Path, table: pa.Table, as_of: bool) -> Callable[[], None]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("set timezone = 'UTC'")
    connection.register("arrow_users", table)
    connection.execute("create table users as from arrow_users")
    validity = ' and e."at" >= u.valid_from' if as_of else ""
    sql = (
        f"select e.id, e.user, e.\"at\", u.valid_from, u.country, u.score from read_parquet('{folder}/*.parquet') e "
        f"{'asof ' if as_of else ''}join users u on e.user = u.user{validity}"
    )

    def compute() -> None:
        for _ in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
            pass

    return compute


def _by_spark(folder: Path, table: pa.Table, as_of: bool) -> Callable[[], None]:
    spark = session_of(open_context(None))
    users = write_files(folder.parent / "users", 1, lambda _: table)
    for name, path in {"users": users, "events": folder}.items():
        spark.read.parquet(str(path)).createOrReplaceTempView(name)
    # Spark has no join as of a time: the usual way is a range of validity, which the table is given here.
    spark.sql(
        "create or replace temp view ranges as "
        "select *, lead(valid_from) over (partition by user order by valid_from) as valid_to from users"
    )
    validity = "and e.at >= u.valid_from and (u.valid_to is null or e.at < u.valid_to)" if as_of else ""
    frame = spark.sql(
        "select /*+ broadcast(u) */ e.id, e.user, e.at, u.valid_from, u.country, u.score "
        f"from events e join {'ranges' if as_of else 'users'} u on e.user = u.user {validity}"
    )
    return lambda: frame.write.format("noop").mode("overwrite").save()


_VOLLEY, _SPARK = "Volley, into an Iceberg table", "Spark's own join, without a sink"
_SIDES, _USERS = ("ads", "clicks"), 100_000
_SCHEMA = "user string, id long, at timestamp"


def _folders(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    rows = asked.rows // _STREAM_FILES // len(_SIDES)
    for seed, side in enumerate(_SIDES):
        write_files(folder / side, _STREAM_FILES, partial(_stream_events, seed, rows))
    yield {"folder": folder}


def _stream_events(seed: int, rows: int, file: int) -> pa.Table:
    dice, ids = np.random.default_rng([seed, file]), np.arange(file * rows, (file + 1) * rows)
    # Each side has a row of a user every twelve seconds.
    users, at = users_at_times(dice, ids, _USERS)
    return pa.table([users, pa.array(ids), at], ["user", "id", "at"])


@benchmark(
    rows=4_000_000,
    peers={"volley": _VOLLEY, "spark": _SPARK},
    options={"epochs": 8, "before": 2},
    figures=(*RATES, "pairs"),
    prepare=_folders,
    bounds=[Limit("rows_per_cpu_second", "rows per CPU-second", 5.0, of=_VOLLEY, beside=_SPARK)],
)
def stream_join(run: Run) -> None:
    """Two streams joined by user within ten seconds: rows of both per CPU-second, in steady state, beside Spark."""
    folder, few = Path(run.options["folder"]), run.folder / "few"
    for side in _SIDES:
        first_files(folder / side, few / side)
    query = {"volley": _pairs_by_volley, "spark": _pairs_by_spark}[run.peer]
    query(run, "warm_up", few, 1)
    run.measure_steady(lambda: query(run, "benchmark", folder, _STREAM_FILES // run.options["epochs"]))


def _pairs_by_volley(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    lake, source = Lake(run.folder), partial(FileSource, format="parquet", max_files_per_epoch=files)
    ads, clicks = map(lake.environment().from_source, (source(folder / side) for side in _SIDES))
    pairs = ads.join(clicks, on="user", within=("0s", "10s"), time="at", lateness="10s", suffix="_of_click")
    return {"pairs": lake.fill(name, pairs).rows}


def _pairs_by_spark(run: Run, name: str, folder: Path, files: int) -> dict[str, Any]:
    spark = session()
    for side in _SIDES:
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files).format("parquet")
        reader.load(str(folder / side)).withWatermark("at", "10 seconds").createOrReplaceTempView(side)
    pairs = spark.sql(
        "select a.*, c.id as id_of_click, c.at as at_of_click from ads a join clicks c "
        "on a.user = c.user and c.at between a.at and a.at + interval 10 seconds"
    )
    return {"pairs": counted(pairs, run.folder / "checkpoints" / name)}

"""Streams joined with tables, by key and as of a time, beside Spark and DuckDB: reads files, writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import Limit, Run, benchmark, within
from benchmarks.events import batches, numbered, times, write_files
from volley import Environment, FileSource, MemorySource
from volley.arrow.nodes import lower
from volley.engine.joins import with_rows
from volley.plan.graph import walk
from volley.spark.session import open_session

_FILES = 4
_CASES = {"10,000 keys": (10_000, 1), "1 M keys": (1_000_000, 1), "as of: 10,000 keys, 20 versions": (10_000, 20)}
_VOLLEY, _SPARK = "Volley, one thread", "Spark, all cores"
_FIGURE = "rows_per_cpu_second"
_BATCH_ROWS = 64_000
_HOUR = 3_600_000_000


@benchmark(
    rows=8_000_000,
    repeat=3,
    peers={"volley": _VOLLEY, "duckdb": "DuckDB, one thread", "spark": _SPARK},
    options={"joins": tuple(_CASES)},
    cases="joins",
    case="join",
    figures=(_FIGURE, "rows_per_second"),
    plots=(_FIGURE,),
    bounds=within(Limit(_FIGURE, "rows per CPU-second", 2.0, of=_VOLLEY, beside=_SPARK)),
)
def table_join(run: Run) -> None:
    """Events joined with a table by a text: rows per CPU-second, reading included, beside Spark and DuckDB."""
    keys, versions = _CASES[str(run.case)]
    folder = write_files(run.folder / "events", _FILES, lambda file: _events(file, run.rows // _FILES, keys))
    peer = {"volley": _by_volley, "duckdb": _by_duckdb, "spark": _by_spark}[run.peer]
    compute = peer(folder, _table(keys, versions), versions > 1)
    # The first pass warms up: the JVM compiles what it does often.
    compute()
    run.measure(compute)


def _table(keys: int, versions: int) -> pa.Table:
    rows = np.arange(keys * versions)
    return pa.table(
        {
            "user": numbered("user-", rows // versions),
            "valid_from": times(rows % versions * _HOUR),
            "country": pa.array(rows % 200).cast(pa.string()),
            "score": pa.array(rows.astype(np.float64)),
        }
    )


def _events(file: int, rows: int, keys: int) -> pa.Table:
    dice = np.random.default_rng([21, file])
    users, at = numbered("user-", dice.integers(0, keys, rows)), times(dice.integers(0, 20 * _HOUR, rows))
    return pa.table({"id": np.arange(file * rows, (file + 1) * rows), "user": users, "at": at})


def _by_volley(folder: Path, table: pa.Table, as_of: bool) -> Callable[[], None]:
    stream = Environment().from_source(FileSource(str(folder), format="parquet"))
    source = MemorySource(table)
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
    spark = open_session(None)
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

"""Groups without a window, and steps behind rows that change: after random epochs, tables have what DuckDB computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from duckdb import DuckDBPyRelation

from tests.duck import query
from tests.recovery.runs import load
from tests.sinks import config_of
from tests.tiers import some
from volley import (
    DataStream,
    Environment,
    IcebergSink,
    MemorySink,
    MemorySource,
    Upsert,
    avg,
    col,
    count,
    count_distinct,
    lit,
    max_,
    min_,
    session,
    sliding,
    sum_,
    tumbling,
    variance,
)

START = datetime(2026, 1, 1)
DISORDER = 20
"""How much later than a later row a row comes, in seconds."""
NAMES = [{"k": "a", "name": "Ada"}, {"k": "b", "name": "Bob"}]
SCHEMA = pa.schema(
    {"k": pa.string(), "v": pa.int64(), "d": pa.float64(), "m": pa.decimal128(9, 2), "t": pa.timestamp("us")}
)


def groups(rows: DataStream) -> DataStream:
    by_key = rows.key_by("k")
    numbers = {"least": min_("v"), "most": max_("d"), "kinds": count_distinct("v"), "mean": avg("v")}
    return by_key.aggregate(n=count(), known=count("d"), total=sum_("v"), money=sum_("m"), **numbers)


def totals(rows: DataStream) -> DataStream:
    return rows.key_by("k", "v").aggregate(n=count(), d=sum_("d"), m=max_("m"))


def filtered(rows: DataStream) -> DataStream:
    return rows.key_by("k").aggregate(total=sum_("v")).filter(col("total") > 3)


def groups_of_groups(rows: DataStream) -> DataStream:
    return totals(rows).key_by("n").aggregate(
        groups=count(), least=min_("v"), most=max_("m"), kinds=count_distinct("k"), total=sum_("v"), money=sum_("m"),
        mean=avg("v"), doubles=sum_("d"), middle=avg("d"), spread=variance("v"),
    )  # fmt: skip


def means_of_extremes(rows: DataStream) -> DataStream:
    """Nexmark's query 4."""
    return rows.key_by("k", "v").aggregate(most=max_("d")).key_by("k").aggregate(mean=avg("most"), n=count("most"))


def three_levels(rows: DataStream) -> DataStream:
    second = totals(rows).key_by("n").aggregate(groups=count())
    return second.key_by("groups").aggregate(sizes=count(), most=max_("n"))


def behind_a_filter(rows: DataStream) -> DataStream:
    named = (
        totals(rows)
        .filter((col("n") > 1) & col("v").is_not_null())
        .select("v", twice=col("n") * 2)
        .rename({"twice": "two"})
    )
    return named.key_by("v").aggregate(groups=count(), twos=sum_("two"))


def behind_a_table(rows: DataStream) -> DataStream:
    named = totals(rows).join(MemorySource(NAMES), on="k").with_column("n", col("n") + 1).drop("k")
    return named.key_by("name").aggregate(n=sum_("n"), least=min_("n"))


def beside_rows(rows: DataStream) -> DataStream:
    both = totals(rows).select("k", "n").union(rows.select("k", n=col("v")))
    return both.key_by("k").aggregate(rows=count(), n=sum_("n"), most=max_("n"))


def of_all(rows: DataStream) -> DataStream:
    return (
        totals(rows)
        .filter(col("n") > 2)
        .key_by()
        .aggregate(groups=count(), n=sum_("n"), most=max_("m"))
        .with_column("one", lit(1))
    )


def all_of_all(rows: DataStream) -> DataStream:
    """A group of all rows, whose row changes, feeds another one."""
    of_groups = totals(rows).key_by().aggregate(n=count(), most=max_("n"))
    return of_groups.key_by().aggregate(rows=count(), n=sum_("n"), most=max_("most")).with_column("one", lit(1))


def windows(rows: DataStream) -> DataStream:
    window = rows.key_by("k").window(tumbling(10), on="t", lateness=DISORDER, emit="updates")
    return window.aggregate(n=count(), total=sum_("v"))


def groups_of_windows(rows: DataStream) -> DataStream:
    return windows(rows).key_by("k").aggregate(windows=count(), n=sum_("n"), most=max_("n"), least=min_("total"))


def windows_of_windows(rows: DataStream) -> DataStream:
    """Final rows behind rows that change: Upsert takes them, too."""
    minutes = windows(rows).key_by().window(tumbling(60), on="window_start")
    return minutes.aggregate(windows=count(), n=sum_("n"), most=max_("total"))


def changing_windows_of_windows(rows: DataStream) -> DataStream:
    hops = windows(rows).key_by("k").window(sliding(60, every=20), on="window_start", emit="updates")
    return hops.aggregate(windows=count(), most=max_("n"))


def groups_of_sessions(rows: DataStream) -> DataStream:
    visits = rows.key_by("k").window(session(7), on="t", lateness=DISORDER, emit="updates").aggregate(n=count())
    named = visits.select("k", "n", "_change").drop("_change")
    return named.key_by("k").aggregate(visits=count(), most=max_("n"), n=sum_("n"))


def busy_windows(rows: DataStream) -> DataStream:
    return windows(rows).filter(col("total") > 2)


WINDOWS = (
    """(select time_bucket(interval '10 seconds', t) s, k, count(*) n, sum(v)::bigint total from rows group by all)"""
)
TOTALS = "(select k, v, count(*) n, sum(d) d, max(m) m from rows group by all)"
Chains = dict[Callable[[DataStream], DataStream], tuple[list[str], str]]
"""Steps, the keys of the table that they are written to, and the query that they are equal to."""

CHAINS: Chains = {
    groups: (["k"], """select k, count(*), count(d), sum(v)::bigint, sum(m), min(v), max(d), count(distinct v), avg(v)
        from rows group by k"""),
    filtered: (["k"], "select k, sum(v)::bigint as total from rows group by k having total > 3"),
    groups_of_groups: (["n"], f"""select n, count(*), min(v), max(m), count(distinct k), sum(v)::bigint, sum(m), avg(v),
        sum(d), avg(d), var_samp(v) from {TOTALS} group by n"""),
    means_of_extremes: (["k"], """select k, avg(most), count(most) from (
        select k, v, max(d) most from rows group by all) group by k"""),
    three_levels: (["groups"], f"""select groups, count(*), max(n) from (
        select n, count(*) as groups from {TOTALS} group by n) group by groups"""),
    behind_a_filter: (["v"], f"""select v, count(*), sum(2 * n)::bigint from {TOTALS}
        where n > 1 and v is not null group by v"""),
    behind_a_table: (["name"], f"""select case k when 'a' then 'Ada' else 'Bob' end, sum(n + 1)::bigint, min(n + 1)
        from {TOTALS} where k in ('a', 'b') group by k"""),
    beside_rows: (["k"], f"""select k, count(*), sum(n)::bigint, max(n) from (
        select k, n from {TOTALS} union all select k, v from rows) group by k"""),
    of_all: (["one"], f"select count(*), sum(n)::bigint, max(m), 1 from {TOTALS} where n > 2 having count(*) > 0"),
    all_of_all: (["one"], f"select 1, count(*), max(n), 1 from {TOTALS}"),
    groups_of_windows: (["k"], f"""select k, count(*), sum(n)::bigint, max(n), min(total) from {WINDOWS} group by k"""),
    windows_of_windows: (["window_start"], f"""select time_bucket(interval '1 minute', s) w, w + interval '1 minute',
        count(*), sum(n)::bigint, max(total) from {WINDOWS} group by w"""),
    changing_windows_of_windows: (["window_start", "k"], f"""select w, w + interval '1 minute', k, count(*), max(n)
        from {WINDOWS}, (select unnest(range(timestamp '2025-12-31 23:00:00', timestamp '2026-01-01 02:00:00',
            interval '20 seconds')) w) where s >= w and s < w + interval '1 minute' group by all"""),
    groups_of_sessions: (["k"], """select k, count(*), max(n), sum(n)::bigint from (
        select k, count(*) n from (select k, sum(begins) over (partition by k order by t) as visit
            from (select *, (coalesce(t - lag(t) over (partition by k order by t), interval '1 day')
                >= interval '7 seconds')::int begins from rows)) group by k, visit) group by k"""),
    busy_windows: (["window_start", "k"], f"""select s, s + interval '10 seconds', k, n, total
        from {WINDOWS} where total > 2"""),
}  # fmt: skip


def random_rows(draw: random.Random) -> pa.Table:
    """Rows that come up to DISORDER late, no two at one time, with nulls and values that cancel out."""
    at, times = 0.0, []
    for _ in range(draw.randrange(5, 80)):
        at += draw.choice([0, 0.5, 1, 3, 11 * (draw.random() < 0.2)])
        times.append(at)
    arrived = sorted(times, key=lambda time: time + draw.random() * DISORDER * 0.99)
    doubles = [None, -0.0, 0.1, 1e6, -1e6, 2.5, -3.0, float("nan")]
    columns = {
        "k": [draw.choice("abcd") for _ in times],
        "v": [draw.choice([None, -4, -1, 0, 1, 2, 5]) for _ in times],
        "d": [draw.choice(doubles) for _ in times],
        "m": pa.array([draw.choice([None, -125, 1, 300, 9999]) for _ in times]).cast(pa.decimal128(21, 2)),
        "t": [START + timedelta(seconds=time, microseconds=number) for number, time in enumerate(arrived)],
    }
    return pa.table(columns).cast(SCHEMA)


def upserted(folder: Path, table: str, *keys: str) -> IcebergSink:
    """A sink that keeps the last row of each key; without keys, of those that the rows tell."""
    config = config_of(folder, table)
    return IcebergSink(config.with_commit_mode(Upsert(keys) if keys else Upsert()))


def check(folder: Path, table: str, expected: DuckDBPyRelation) -> None:
    """Compare the rows of a table with those of a query; doubles to six places."""
    found = load(folder, f"db.{table}").scan().to_arrow()
    rows = expected.to_arrow_table().rename_columns(found.column_names)
    assert sorted(map(_text_of, found.to_pylist())) == sorted(map(_text_of, rows.to_pylist())), table


def _text_of(row: dict[str, Any]) -> str:
    return repr([f"{round(value, 6) + 0.0:.6g}" if isinstance(value, float) else value for value in row.values()])


def check_chains(native: Environment, chains: Chains, seed: int, folder: Path) -> None:
    """Run chains in one job over random rows, each into a table of its own, and compare the tables with the queries."""
    draw = random.Random(seed)
    rows = random_rows(draw)
    stream = native.from_source(MemorySource(rows, rows_per_epoch=draw.choice([8, 20, 40])))
    pipelines = [chain(stream).to_sink(upserted(folder, chain.__name__, *keys)) for chain, (keys, _) in chains.items()]
    job = native.execute("chains", *pipelines)
    assert job.metrics.rows_late == 0
    for chain, (_, sql) in chains.items():
        check(folder, chain.__name__, query(sql, rows=rows))


@pytest.mark.parametrize("seed", some(range(60)))
def test_tables_have_what_a_query_computes_of_all_rows(native: Environment, seed: int, tmp_path: Path) -> None:
    check_chains(native, CHAINS, seed, tmp_path)


def test_an_upsert_takes_the_keys_of_groups(native: Environment, tmp_path: Path) -> None:
    values = [{"k": "a", "v": 3}, {"k": "b", "v": 9}, {"k": "a", "v": -3}]
    rows = native.from_source(MemorySource(values, rows_per_epoch=1))
    totals = rows.key_by("k").aggregate(total=sum_("v")).filter(col("total") > 1)
    native.execute("totals", totals.to_sink(upserted(tmp_path, "totals")))
    assert load(tmp_path, "db.totals").scan().to_arrow().to_pylist() == [{"k": "b", "total": 9}]


def test_a_sink_that_appends_gets_a_changelog_where_rows_are_deleted(native: Environment) -> None:
    rows = native.from_source(MemorySource([{"v": 3}, {"v": 9}, {"v": -12}], rows_per_epoch=1))
    sink = MemorySink("totals")
    native.execute("log", rows.key_by().aggregate(total=sum_("v")).filter(col("total") > 1).to_sink(sink))
    assert [(row["total"], row["_change"]) for row in sink.rows()] == [
        *((3, "update_after"), (3, "delete"), (12, "update_after"), (12, "delete")),
    ]


QUERY_4 = """
    select k, avg(final) as final from (
        select a.id, a.k, max(b.v) as final from auctions a join bids b on a.id = b.auction
        where b.at between a.at and a.expires group by a.id, a.k) as q group by k
"""


def test_query_4_of_nexmark_is_one_job(native: Environment, tmp_path: Path) -> None:
    """Its bids come before their auctions, too, and its means change as prices rise."""
    draw = random.Random(8)
    auctions = pa.table({
        "id": range(30), "k": [draw.choice("abc") for _ in range(30)],
        "at": [START + timedelta(seconds=draw.randrange(100)) for _ in range(30)],
    })  # fmt: skip
    expires = [at + timedelta(seconds=draw.randrange(60)) for at in auctions["at"].to_pylist()]
    auctions = auctions.append_column("expires", pa.array(expires, pa.timestamp("us")))
    bids = pa.table({
        "auction": [draw.randrange(35) for _ in range(300)], "v": [draw.randrange(1000) for _ in range(300)],
        "at": [START + timedelta(seconds=draw.randrange(160)) for _ in range(300)],
    })  # fmt: skip
    streams = {"auctions": (auctions, 4), "bids": (bids, 37)}
    rows = {name: native.from_source(MemorySource(table, rows_per_epoch=n)) for name, (table, n) in streams.items()}
    final = native.sql(QUERY_4, ttl="1d", lateness=0, **rows).to_sink(upserted(tmp_path, "q4", "k"))
    native.execute("q4", final)
    check(tmp_path, "q4", query(QUERY_4, auctions=auctions, bids=bids))


def test_a_query_of_groups_of_groups_runs_as_a_job(native: Environment, tmp_path: Path) -> None:
    rows = random_rows(random.Random(4))
    stream = native.from_source(MemorySource(rows, rows_per_epoch=9))
    text = """select v, avg(most) as mean, count(*) as keys from (
        select k, v, max(d) as most from rows where v is not null group by k, v) group by v having count(*) > 1"""
    means = native.sql(text, rows=stream).to_sink(upserted(tmp_path, "means", "v"))
    native.execute("means", means)
    check(tmp_path, "means", query(text.replace("rows", "events"), events=rows))


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@pytest.mark.parametrize("columns", some([None, ["d"]]))
def test_streams_without_times_are_joined_while_they_wait(
    native: Environment, how: Any, columns: list[str] | None, tmp_path: Path
) -> None:
    """Rows come out of the join once, and feed groups of groups."""
    tables = {name: random_rows(random.Random(seed)).select(["k", "v", "d"]) for name, seed in (("a", 5), ("b", 6))}
    a, b = (native.from_source(MemorySource(rows, rows_per_epoch=9)) for rows in tables.values())
    joined = a.select("k", first="v").join(b, on="k", how=how, ttl="1d", columns=columns, suffix="_b")
    means = joined.key_by("k", "first").aggregate(most=max_("d_b")).key_by("k").aggregate(mean=avg("most"), n=count())
    job = native.execute("means", means.to_sink(upserted(tmp_path, "means", "k")))
    assert job.metrics.rows_late == 0
    rows = query(
        f"""select k, avg(most) as mean, count(*) as n from (
        select coalesce(a.k, b.k) as k, a.v, max(b.d) as most
        from a {how} join b on a.k = b.k group by 1, 2) group by k""",
        **tables,
    )
    check(tmp_path, "means", rows)

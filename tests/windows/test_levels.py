"""Keyed steps behind each other: random rows, cut into random epochs, give what DuckDB makes of all rows at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import (
    DataStream,
    Environment,
    FileSource,
    MemorySource,
    PlanError,
    calendar,
    col,
    count,
    cumulative,
    last,
    max_,
    previous,
    session,
    sliding,
    sum_,
    tumbling,
)

START = datetime(2025, 12, 31, 23, 58)
DISORDER = 20
"""How much later than a later row a row comes, in seconds."""

TUMBLED = """
    select time_bucket(interval '{size} seconds', t, timestamp '1970-01-01') as start, k, count(*) as n, sum(v) as total
    from {rows}
    group by all
"""
SESSIONS = """
    select k, min(t) as first, max(t) + interval '7 seconds' as over, count(*) as n from (
        select *, sum(begins) over (partition by k order by t rows unbounded preceding) as session from (
            select *, (coalesce(t - lag(t) over (partition by k order by t), interval '1 day')
                >= interval '7 seconds')::int as begins from a))
    group by k, session
"""
HOPS = """
    select s.start, k, count(*) as n from a, (
        select unnest(range(timestamp '2025-12-31 23:00:00', timestamp '2026-01-01 02:00:00', interval '5 seconds'))
            as start) s
    where t >= s.start and t < s.start + interval '15 seconds' group by all
"""


def per(rows: DataStream, seconds: int, *keys: str, on: str = "t", lateness: int = DISORDER) -> DataStream:
    window = rows.key_by(*keys).window(tumbling(seconds), on=on, lateness=lateness)
    return window.aggregate(n=count(), total=sum_("v"))


def of_windows(rows: DataStream, seconds: int, *keys: str, on: str = "window_start") -> DataStream:
    return rows.key_by(*keys).window(tumbling(seconds), on=on).aggregate(windows=count(), n=sum_("n"))


def tumbling_twice(a: DataStream, b: DataStream) -> DataStream:
    return of_windows(per(a, 10, "k"), 60)


def by_an_end(a: DataStream, b: DataStream) -> DataStream:
    last = col("window_end").dt.add(microseconds=-1)
    return of_windows(per(a, 7, "k").with_column("last", last), 20, "k", on="last")


def three_levels(a: DataStream, b: DataStream) -> DataStream:
    second = of_windows(per(a, 5, "k"), 20, "k").rename({"window_start": "began", "window_end": "ended"})
    return second.key_by().window(tumbling(60), on="began").aggregate(windows=sum_("windows"), n=sum_("n"))


def by_a_truncated_time(a: DataStream, b: DataStream) -> DataStream:
    timed = per(a, 10, "k").select("k", "n", minute=col("window_start").dt.truncate("minute"))
    return of_windows(timed, 120, on="minute")


def hops_and_their_most(a: DataStream, b: DataStream) -> DataStream:
    """Nexmark's query 5: the keys with the most rows of each window."""
    hops = a.key_by("k").window(sliding(15, every=5), on="t", lateness=DISORDER).aggregate(n=count())
    most = hops.key_by().window(tumbling(5), on="window_start").aggregate(n=max_("n"))
    on = {"window_start": "window_start", "n": "n"}
    pairs = hops.join(most, on=on, within="0s", time=("window_start", "window_start"), columns=["n"], suffix="_most")
    return pairs.select("window_start", "k", "n")


def sessions_of_minutes(a: DataStream, b: DataStream) -> DataStream:
    visits = a.key_by("k").window(session(7), on="t", lateness=DISORDER).aggregate(n=count())
    return of_windows(visits, 60, on="window_end")


def windows_that_are_put_off(a: DataStream, b: DataStream) -> DataStream:
    tens = a.key_by("k").window(tumbling(10, offset=3), on="t", lateness=DISORDER).aggregate(n=count())
    return of_windows(tens, 20, "k", on="window_end")


def growing_windows(a: DataStream, b: DataStream) -> DataStream:
    parts = a.key_by("k").window(cumulative(20, step=5), on="t", lateness=DISORDER).aggregate(n=count())
    starts = parts.key_by("k").window(tumbling(20), on="window_start").aggregate(windows=count(), n=sum_("n"))
    ends = parts.key_by("k").window(tumbling(5), on="window_end").aggregate(windows=count(), n=sum_("n"))
    return starts.union(ends)


def days_and_years(a: DataStream, b: DataStream) -> DataStream:
    days = a.key_by("k").window(calendar("day"), on="t", lateness=DISORDER).aggregate(n=count())
    years = (days.key_by().window(calendar("year"), on=name) for name in ("window_start", "window_end"))
    starts, ends = (year.aggregate(windows=count(), n=sum_("n")) for year in years)
    return starts.union(ends)


def pairs_of_minutes(a: DataStream, b: DataStream) -> DataStream:
    pairs = a.join(b, on="k", within=("3s", "5s"), time="t", columns=["v"], suffix="_b", lateness=DISORDER)
    counted = pairs.key_by("k").window(tumbling(30), on="t").aggregate(n=count(), total=sum_(col("v") * col("v_b")))
    return counted.select("window_start", "k", "n", "total")


def series_of_minutes(a: DataStream, b: DataStream) -> DataStream:
    steps = a.key_by("k").series("t", lateness=DISORDER).with_columns(before=previous("v"))
    rows = steps.key_by("k").window(tumbling(30), on="t").aggregate(n=count(), total=sum_(col("v") - col("before")))
    return rows.select("window_start", "k", "n", "total")


def windows_of_two_streams(a: DataStream, b: DataStream) -> DataStream:
    return of_windows(per(a, 10, "k").union(per(b, 10, "k")), 60)


def windows_beside_rows(a: DataStream, b: DataStream) -> DataStream:
    rows = b.select("k", "t", n=col("v"))
    both = per(a, 10, "k").select("k", "n", t=col("window_start")).union(rows)
    window = both.key_by("k").window(tumbling(60), on="t", lateness=DISORDER)
    return window.aggregate(windows=count(), n=sum_("n")).select("window_start", "k", "windows", "n")


def different_windows(a: DataStream, b: DataStream) -> DataStream:
    return of_windows(per(a, 10, "k").deduplicate("window_start", "n"), 60)


def written_beside_rows(a: DataStream, b: DataStream) -> DataStream:
    return per(a, 10, "k").select("k", "n").union(b.select("k", n=col("v")))


CHAINS: dict[Callable[[DataStream, DataStream], DataStream], str] = {
    tumbling_twice: """select time_bucket(interval '60 seconds', start) s, s + interval '60 seconds', count(*),
        sum(n)::bigint from ten group by s""",
    by_an_end: """select time_bucket(interval '20 seconds', start + interval '6999999 microseconds') s,
        s + interval '20 seconds', k, count(*), sum(n)::bigint from seven group by s, k""",
    three_levels: """select time_bucket(interval '60 seconds', start) s, s + interval '60 seconds', count(*),
        sum(n)::bigint from five group by s""",
    by_a_truncated_time: """select time_bucket(interval '120 seconds', date_trunc('minute', start)) s,
        s + interval '120 seconds', count(*), sum(n)::bigint from ten group by s""",
    hops_and_their_most: """select start, k, n from hops
        where (start, n) in (select (start, max(n)) from hops group by start)""",
    sessions_of_minutes: """select time_bucket(interval '60 seconds', over) s, s + interval '60 seconds', count(*),
        sum(n)::bigint from visits group by s""",
    windows_that_are_put_off: """select time_bucket(interval '20 seconds', e) s, s + interval '20 seconds', k, count(*),
        sum(n)::bigint from (select time_bucket(interval '10 seconds', t, timestamp '1970-01-01 00:00:03')
            + interval '10 seconds' as e, k, count(*) n from a group by all) group by s, k""",
    growing_windows: """
        with parts as (select time_bucket(interval '20 seconds', t) as s, s + b.size * interval '1 second' as e, k,
            count(*) n from a, (values (5), (10), (15), (20)) b(size)
            where t < time_bucket(interval '20 seconds', t) + b.size * interval '1 second' group by all)
        select s, s + interval '20 seconds', k, count(*), sum(n)::bigint from parts group by s, k
        union all select e, e + interval '5 seconds', k, count(*), sum(n)::bigint from parts group by e, k""",
    days_and_years: """
        with days as (select date_trunc('day', t) as s, s + interval '1 day' as e, k, count(*) n from a group by all),
        parts as (select 's' as kind, date_trunc('year', s) as y, n from days
            union all select 'e', date_trunc('year', e), n from days)
        select y, y + interval '1 year', count(*), sum(n)::bigint from parts group by kind, y""",
    pairs_of_minutes: """select time_bucket(interval '30 seconds', a.t) s, a.k, count(*), sum(a.v * b.v)::bigint
        from a join b on a.k = b.k and b.t between a.t - interval '3 seconds' and a.t + interval '5 seconds'
        group by s, a.k""",
    series_of_minutes: """select time_bucket(interval '30 seconds', t) s, k, count(*), sum(v - p)::bigint from (
        select *, lag(v) over (partition by k order by t, v) p from a) group by s, k""",
    windows_of_two_streams: """select time_bucket(interval '60 seconds', start) s, s + interval '60 seconds', count(*),
        sum(n)::bigint from (from ten union all from ten_b) group by s""",
    windows_beside_rows: """select time_bucket(interval '60 seconds', t) s, k, count(*), sum(n)::bigint from (
        select k, start as t, n from ten union all select k, t, v from b) group by s, k""",
    different_windows: """select time_bucket(interval '60 seconds', start) s, s + interval '60 seconds', count(*),
        sum(n)::bigint from (select distinct start, n from ten) group by s""",
    written_beside_rows: "select k, n from ten union all select k, v from b",
}


def random_rows(draw: random.Random, rows: int) -> pa.Table:
    """Rows that come up to DISORDER late, no two at one time; with pauses, over which windows stay open."""
    at, times = 0.0, []
    for _ in range(rows):
        at += draw.choice([0, 0.5, 1, 3, 11 * (draw.random() < 0.2)])
        times.append(at)
    arrived = sorted(times, key=lambda time: time + draw.random() * DISORDER * 0.99)
    return pa.table(
        {
            "k": [draw.choice("abc") for _ in times],
            "v": [draw.randrange(9) for _ in times],
            "t": [START + timedelta(seconds=time, microseconds=number) for number, time in enumerate(arrived)],
        },
        pa.schema({"k": pa.string(), "v": pa.int64(), "t": pa.timestamp("us")}),
    )


def cut(draw: random.Random, table: pa.Table, folder: Path) -> FileSource:
    """Write the rows to files, each of which is an epoch."""
    folder.mkdir()
    places = sorted({0, len(table), *(draw.randrange(len(table)) for _ in range(draw.randrange(1, 9)))})
    for number, (first, end) in enumerate(pairwise(places)):
        pq.write_table(table.slice(first, end - first), folder / f"{number}.parquet")
    return FileSource(str(folder), format="parquet", max_files_per_epoch=1)


def sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(4, 60))])
def test_levels_equal_a_query_over_all_rows(
    chain: Callable[[DataStream, DataStream], DataStream], seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    tables = {name: random_rows(draw, draw.randrange(5, 150)) for name in "ab"}
    environment = Environment()
    a, b = (environment.from_source(cut(draw, table, tmp_path / name)) for name, table in tables.items())
    rows = chain(a, b).to_arrow()
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        views = {"five": (5, "a"), "seven": (7, "a"), "ten": (10, "a"), "ten_b": (10, "b")}
        for name, (size, source) in views.items():
            connection.sql(f"create temp view {name} as {TUMBLED.format(size=size, rows=source)}")
        connection.sql(f"create temp view visits as {SESSIONS}")
        connection.sql(f"create temp view hops as {HOPS}")
        expected = connection.sql(CHAINS[chain]).to_arrow_table()
    assert sorted_rows(rows) == sorted_rows(expected.rename_columns(rows.column_names))


def test_the_end_of_a_window_may_be_further_ahead_of_the_clock_than_a_row() -> None:
    rows = [{"k": "a", "v": 1, "t": datetime.now()}]
    days = per(Environment().from_source(MemorySource(rows)), 100 * 24 * 3600, "k")
    window = days.key_by().window(tumbling("365d"), on="window_end", max_ahead="1s")
    assert window.aggregate(n=sum_("n")).to_arrow()["n"].to_pylist() == [1]


def windows() -> DataStream:
    return per(Environment().from_source(MemorySource([{"k": "a", "v": 1, "t": START}])), 10, "k")


def updates() -> DataStream:
    rows = Environment().from_source(MemorySource([{"k": "a", "v": 1, "t": START}]))
    return rows.key_by("k").window(tumbling(10), on="t", emit="updates").aggregate(n=count())


def visits() -> DataStream:
    rows = Environment().from_source(MemorySource([{"k": "a", "v": 1, "t": START}]))
    return rows.key_by("k").window(session(10), on="t").aggregate(n=count())


def mixed() -> DataStream:
    rows = Environment().from_source(MemorySource([{"window_start": START, "n": 1}]))
    return windows().select("window_start", "n").union(rows).deduplicate("n")


UNKNOWN = "how late that can be behind {}.* is not known"


def beside_a_table_with_windows(rows: DataStream) -> DataStream:
    """Windows by the start of other windows than the rows': those of a table that is joined."""
    return of_windows(rows.join(MemorySource([{"k": "a", "window_start": START}]), on="k"), 60)


REFUSED: dict[str, tuple[Callable[[], DataStream], str]] = {
    "sessions of rows that change": (
        lambda: updates().key_by().window(session(60), on="window_start").aggregate(n=sum_("n")),
        "a session would fall apart",
    ),
    "an aggregate that can't take rows back": (
        lambda: updates().key_by("k").window(tumbling(60), on="window_start").aggregate(n=last("n")),
        "can't take back rows",
    ),
    "a function that takes rows that change": (
        lambda: updates().map(dict).key_by("k").window(tumbling(60), on="window_start").aggregate(n=sum_("n")),
        "can't take rows that replace earlier ones",
    ),
    "their first rows": (lambda: updates().deduplicate("k"), "whose rows replace earlier ones"),
    "the start of sessions": (lambda: of_windows(visits(), 60), UNKNOWN.format("aggregate")),
    "a function": (lambda: of_windows(windows().map(dict), 60), UNKNOWN.format("map")),
    "a time that goes back": (
        lambda: of_windows(windows().with_column("on", col("window_start").dt.from_zone("Europe/Berlin")), 60, on="on"),
        UNKNOWN.format("with_column"),
    ),
    "another time": (
        lambda: of_windows(windows().with_column("other", col("window_start")).key_by("other").window(
            tumbling(60), on="window_start").aggregate(n=sum_("n")), 60, on="other"),
        UNKNOWN.format("aggregate"),
    ),
    "a time that is not selected": (
        lambda: beside_a_table_with_windows(windows().select("k", "n")), UNKNOWN.format("select")),
    "a time that is dropped": (
        lambda: beside_a_table_with_windows(windows().drop("window_start")), UNKNOWN.format("drop")),
    "a time that has another name": (
        lambda: beside_a_table_with_windows(windows().rename({"window_start": "first"})), UNKNOWN.format("rename")),
    "a time that a series replaces": (
        lambda: of_windows(windows().key_by("k").series("window_start").with_columns(
            window_start=previous("window_start")), 60),
        UNKNOWN.format("series")),
    "windows behind others, and rows": (lambda: of_windows(mixed(), 60), "has rows of windows or joins and others"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_follow_is_refused_by_name(case: str) -> None:
    draw, message = REFUSED[case]
    with pytest.raises(PlanError, match=message) as caught:
        draw().to_arrow()
    assert caught.value.hint


def test_explain_shows_the_levels(capsys: pytest.CaptureFixture[str]) -> None:
    of_windows(windows(), 60).explain()
    levels = [line for line in capsys.readouterr().out.splitlines() if line.startswith("level")]
    assert [line.partition(" by ")[0] for line in levels] == [
        "level 1: aggregate n=count(), total=sum_(col('v'))",
        "level 2: aggregate windows=count(), n=sum_(col('n'))",
    ]
    windows().explain()
    assert "level" not in capsys.readouterr().out


def test_an_aggregate_of_all_rows_behind_one_that_has_none() -> None:
    none = Environment().from_source(MemorySource([{"k": "a", "v": 1}])).filter_expr(col("v") > 1)
    first = none.key_by().aggregate(n=count())
    assert first.to_arrow().to_pylist() == [{"n": 0}]
    assert none.deduplicate("k").key_by().aggregate(n=count(), most=max_("v")).to_arrow().to_pylist() == [
        {"n": 0, "most": None}
    ]
    with pytest.raises(PlanError, match=r"no row has come to aggregate n=count\(\), which a step that keeps state"):
        first.key_by().aggregate(n=max_("n")).to_arrow()

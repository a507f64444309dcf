"""Queries over streams: joins within a bound of time, windows of windows, equal to DuckDB over all rows."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import Environment, ExpressionError, FileSource, MemorySink, MemorySource

START = datetime(2026, 1, 1)
LATENESS = 20

QUERIES: dict[str, tuple[str, str]] = {
    "the hottest items (Nexmark 5)": (
        """
        with counts as (select auction, window.start as start, window.end as over, count(*) as num
            from bids group by auction, window(at, '10 seconds', '2 seconds')),
        most as (select start, max(num) as top from counts group by start)
        select c.auction as auction, c.start as start, c.num as num
        from counts as c join most as m on c.start = m.start and c.num = m.top
        """,
        """
        with starts as (select unnest(range(timestamp '2025-12-31 23:00:00', timestamp '2026-01-01 02:00:00',
            interval '2 seconds')) as start),
        counts as (select auction, start, count(*) as num from bids, starts
            where "at" >= start and "at" < start + interval '10 seconds' group by all)
        select auction, start, num from counts
        where (start, num) in (select (start, max(num)) from counts group by start)
        """,
    ),
    "the highest bids (Nexmark 7)": (
        """
        select b.auction as auction, b.price as price, b.at as at from bids as b
        join (select max(price) as price, window.end as over from bids group by window(at, '10 seconds')) as m
        on b.price = m.price
        where b.at between m.over - interval '10' second and m.over and b.at < m.over
        """,
        """
        with m as (select max(price) as price, time_bucket(interval '10 seconds', "at") as s from bids group by s)
        select auction, bids.price, "at" from bids join m on bids.price = m.price
            and "at" >= s and "at" < s + interval '10 seconds'
        """,
    ),
    "sellers that are new (Nexmark 8)": (
        """
        select p.id as id, p.start as start from
        (select id, window.start as start from persons group by id, window(at, '10 seconds')) as p
        join (select seller, window.start as start from auctions group by seller, window(at, '10 seconds')) as a
        on p.id = a.seller and p.start = a.start
        """,
        """
        select distinct p.id, time_bucket(interval '10 seconds', p."at") from persons p, auctions a
        where p.id = a.seller
            and time_bucket(interval '10 seconds', p."at") = time_bucket(interval '10 seconds', a."at")
        """,
    ),
    "a left join": (
        """
        select p.id as id, a.seller as seller from persons as p left join auctions as a
        on p.id = a.seller and a.at >= p.at and a.at <= p.at + interval '5' second
        """,
        """
        select p.id, a.seller from persons as p left join auctions as a
        on p.id = a.seller and a."at" >= p."at" and a."at" <= p."at" + interval '5' second
        """,
    ),
    "a full join": (
        """
        select p.id as id, p.at as at, a.seller as seller, a.at as then from persons as p full join auctions as a
        on p.id = a.seller and a.at between p.at - interval '1' second and p.at + interval '5' second
        """,
        """
        select p.id, p."at", a.seller, a."at" from persons as p full join auctions as a
        on p.id = a.seller and a."at" between p."at" - interval '1 second' and p."at" + interval '5 seconds'
        """,
    ),
    "windows of a right join": (
        """
        select window.start as start, count(*) as n, count(id) as matched from
        (select p.id as id, a.at as at from persons as p right join auctions as a
            on p.id = a.seller and a.at between p.at - interval '1' second and p.at + interval '5' second)
        group by window(at, '10 seconds')
        """,
        """
        select time_bucket(interval '10 seconds', a."at") as start, count(*), count(p.id)
        from persons as p right join auctions as a
        on p.id = a.seller and a."at" between p."at" - interval '1 second' and p."at" + interval '5 seconds'
        group by start
        """,
    ),
    "rows with a match": (
        """
        select p.id as id, p.at as at from persons as p left semi join auctions as a
        on p.id = a.seller and a.at between p.at and p.at + interval '5' second and a.price > 9 and p.price > 5
        """,
        """
        select id, "at" from persons as p where price > 5 and exists (select 1 from auctions as a
            where p.id = a.seller and a.price > 9 and a."at" between p."at" and p."at" + interval '5' second)
        """,
    ),
    "rows without a match": (
        """
        select p.id as id, p.at as at from persons as p left anti join auctions as a
        on p.id = a.seller and a.at between p.at - interval '2' second and p.at + interval '5' second and a.price > 9
        """,
        """
        select id, "at" from persons as p where not exists (select 1 from auctions as a where p.id = a.seller
            and a.price > 9 and a."at" between p."at" - interval '2 seconds' and p."at" + interval '5 seconds')
        """,
    ),
    "an earlier row": (
        """
        select p.id as id, a.at as at from persons as p, auctions as a
        where p.id = a.seller and p.at > a.at and p.at - interval '4' second < a.at
        """,
        """
        select p.id, a."at" from persons as p, auctions as a
        where p.id = a.seller and p."at" > a."at" and p."at" - interval '4' second < a."at"
        """,
    ),
    "a minute's key": (
        """
        select start, count(*) as items, max(n) as n from (select window.start as start, auction, count(*) as n
            from bids group by auction, window(at, '10 seconds')) as t where auction < 5
        group by window(start, '10 seconds'), start
        """,
        """
        select s, count(*), max(n) from (select time_bucket(interval '10 seconds', "at") as s, count(*) as n from bids
            where auction < 5 group by s, auction) group by s
        """,
    ),
    "minutes of tens": (
        """
        select window.start as minute, sum(n) as n, count(*) as tens from
        (select window.start as start, count(*) as n from bids group by window(at, '10 seconds')) as t
        group by window(start, '1 minute')
        """,
        """
        select time_bucket(interval '1 minute', s) as minute, sum(n)::bigint, count(*) from
        (select time_bucket(interval '10 seconds', "at") as s, count(*) as n from bids group by s) group by minute
        """,
    ),
}


def random_rows(draw: random.Random) -> pa.Table:
    seconds, at = [], 0
    for _ in range(draw.randrange(10, 120)):
        at += draw.choice([0, 0, 1, 2])
        seconds.append(at)
    seconds.sort(key=lambda second: second + draw.random() * (LATENESS - 1))
    columns: dict[str, Any] = {name: [draw.randrange(6) for _ in seconds] for name in ("id", "seller", "auction")}
    columns["price"] = [draw.randrange(40) for _ in seconds]
    columns["at"] = [START + timedelta(seconds=second) for second in seconds]
    return pa.table(columns).cast(pa.schema([*((name, pa.int64()) for name in ("id", "seller", "auction", "price")),
                                             ("at", pa.timestamp("us"))]))  # fmt: skip


def stream(draw: random.Random, table: pa.Table, folder: Path) -> FileSource:
    """Write the rows to files, each of which may be an epoch of a stream without an end."""
    folder.mkdir()
    places = sorted({0, len(table), *(draw.randrange(len(table)) for _ in range(4))})
    for number, (first, end) in enumerate(pairwise(places)):
        pq.write_table(table.slice(first, end - first), folder / f"{number}.parquet")
    return FileSource(str(folder), format="parquet", bounded=False)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 30))])
def test_a_query_over_streams_has_the_rows_of_one_over_all_rows(name: str, seed: int, tmp_path: Path) -> None:
    draw, (text, expected) = random.Random(seed), QUERIES[name]
    tables = {table: random_rows(draw) for table in ("bids", "persons", "auctions") if table in expected}
    environment = Environment()
    sources = {name: environment.from_source(stream(draw, rows, tmp_path / name)) for name, rows in tables.items()}
    rows = environment.sql(text, lateness=LATENESS, ttl=None, **sources).to_arrow()
    with duckdb.connect() as connection:
        for table, values in tables.items():
            connection.register(table, values)
        found = connection.sql(expected).to_arrow_table()
    assert sorted(rows.to_pylist(), key=repr) == sorted(found.rename_columns(rows.column_names).to_pylist(), key=repr)


@pytest.mark.parametrize(
    "condition",
    [
        "a.id = b.id",
        "a.id = b.id and a.at > b.at",
        "a.id = b.id and a.at between b.at - interval '1' month and b.at",
        "a.id = b.id and a.at - b.at < interval '1' hour",
    ],
)
def test_streams_are_joined_within_a_bound_of_time(condition: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    a, b = (Environment().from_source(stream(draw, random_rows(draw), tmp_path / name)) for name in "ab")
    with pytest.raises(ExpressionError, match="which has no end") as caught:
        Environment().sql(f"select a.id as i from a join b on {condition}", a=a, b=b)
    assert "between a.at - interval" in str(caught.value.hint)


@pytest.mark.parametrize(
    "condition", ["anti join b on a.id = b.id and a.price > 1", "semi join b on a.id = b.id and a.price > b.price"]
)
def test_a_semi_join_takes_no_more_than_the_bound(condition: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    a, b = (Environment().from_source(stream(draw, random_rows(draw), tmp_path / name)) for name in "ab")
    text = f"select a.id as i from a left {condition} and b.at between a.at and a.at + interval '1' hour"
    with pytest.raises(ExpressionError, match="a semi or anti join of streams with another condition"):
        Environment().sql(text, a=a, b=b)


def test_sets_of_streams_are_not_cut(tmp_path: Path) -> None:
    """There null is equal to null."""
    draw = random.Random(0)
    a, b = (Environment().from_source(stream(draw, random_rows(draw), tmp_path / name)) for name in "ab")
    with pytest.raises(ExpressionError, match="in which null is equal to null"):
        Environment().sql("select id from a intersect select id from b", ttl="1d", a=a, b=b)


@pytest.mark.parametrize("side", ["left", "right", "full"])
def test_an_outer_join_takes_no_more_than_the_bound(side: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    a, b = (Environment().from_source(stream(draw, random_rows(draw), tmp_path / name)) for name in "ab")
    for condition in ("b.at < a.at + interval '5' second", "b.at between a.at and a.at and a.price > b.price"):
        query = f"select a.id as i, b.price as p from a {side} join b on a.id = b.id and b.at >= a.at and {condition}"
        with pytest.raises(ExpressionError, match=f"a {side} join of streams with another condition"):
            Environment().sql(query, a=a, b=b)


@pytest.mark.usefixtures("spark")
def test_a_query_of_windows_behind_windows_runs_as_a_job(tmp_path: Path) -> None:
    """In two runs, over the files that are new."""
    draw, (text, expected) = random.Random(3), QUERIES["the hottest items (Nexmark 5)"]
    rows = random_rows(draw).sort_by("at")
    later = rows.set_column(4, "at", pa.array([at + timedelta(hours=1) for at in rows["at"].to_pylist()]))
    environment = Environment("local[2]", checkpoint_dir=str(tmp_path / "checkpoints"))
    sink, folder = MemorySink("hottest"), tmp_path / "in"
    folder.mkdir()
    source = environment.from_source(FileSource(str(folder), format="parquet", schema=rows.schema))
    for number, table in enumerate((rows, later)):
        pq.write_table(table, folder / f"{number}.parquet")
        environment.sql(text, bids=source).to_sink(sink).execute("hottest")
    with duckdb.connect() as connection:
        connection.register("bids", pa.concat_tables([rows, later]))
        found = connection.sql(expected).to_arrow_table()
    columns = ["auction", "start", "num"]
    assert sorted(map(repr, sink.to_arrow().to_pylist())) == sorted(
        map(repr, found.rename_columns(columns).to_pylist())
    )


def test_a_bound_of_time_is_taken_before_a_ttl() -> None:
    draw = random.Random(0)
    a, b = (Environment().from_source(MemorySource(random_rows(draw))) for _ in "ab")
    text = "select a.id as i from a join b on a.id = b.id"
    near = Environment().sql(f"{text} and b.at between a.at and a.at + interval '5' second", ttl="1d", a=a, b=b)
    assert "5s after 'at'" in repr(near)
    assert "5s after 'at'" not in repr(Environment().sql(text, ttl="1d", a=a, b=b))


def test_streams_are_filtered_before_they_wait_for_each_other() -> None:
    """A table as such is joined as each epoch finds it, so its rows are filtered behind the join."""
    draw = random.Random(0)
    a, b = (random_rows(draw) for _ in "ab")
    text = "select a.id as i, b.price as p from a join b on a.id = b.id where a.price > 5 and b.price > 9"
    first, second = (Environment().from_source(MemorySource(rows)) for rows in (a, b))
    before, after = repr(Environment().sql(text, ttl="1d", a=first, b=second)).split("join", 1)
    assert before.count("filter") == 0
    assert after.count("filter") == 2
    before, after = repr(Environment().sql(text, a=first, b=b)).split("join", 1)
    assert (before.count("filter"), after.count("filter")) == (1, 1)

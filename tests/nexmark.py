"""Nexmark in DuckDB's SQL, and its bids alone as changes: one each 100 microseconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.nexmark import QUERIES
from examples.nexmark.events import AUCTIONS, BEGIN, CYCLE, MICROSECONDS, bid_ids, side_input
from tests.duck import query

__all__ = ["BID_VERSIONS", "LAST_BIDS", "bids", "differences", "in_duckdb"]

LAST_BIDS = """
select auction, bidder, price, url, date_time from bids where true
qualify row_number() over (partition by auction, bidder order by date_time desc) = 1 and op <> 'd'
"""
"""The last bid of each bidder on each auction (query 18), of a view `bids`, unless it is taken back."""

BID_VERSIONS = """
with by_key as (
    select *, lag(op) over by_time as op_before, lag((price, url)) over by_time as values_before from bids
    window by_time as (partition by auction, bidder order by date_time)
),
changes as (
    select *, lead(date_time) over (partition by auction, bidder order by date_time) as valid_to from by_key
    where op is distinct from op_before or op <> 'd' and (price, url) <> values_before
)
select auction, bidder, price, url, date_time as valid_from, valid_to from changes where op <> 'd'
"""
"""The bids of each bidder on each auction, of a view `bids`, each until the next one or until it is taken back."""

_WINDOWS = {
    "q5": """
        with counts as (
            select auction, time_bucket(interval '2 seconds', date_time) - to_seconds(2 * n) as starttime,
                count(*) as num
            from bid, range(5) as hops(n) group by all
        )
        select auction, num, starttime from counts
        qualify num = max(num) over (partition by starttime)
    """,
    "q7": """
        with m as (
            select max(price) as price, time_bucket(interval '10 seconds', date_time) as begins from bid group by begins
        )
        select auction, b.price, bidder, date_time, extra from bid b join m on b.price = m.price
        where date_time between begins and begins + interval '10 seconds'
    """,
    "q8": """
        select distinct p.id, p.name, time_bucket(interval '10 seconds', p.date_time) as starttime
        from person p join auction a on p.id = a.seller
            and time_bucket(interval '10 seconds', a.date_time) = time_bucket(interval '10 seconds', p.date_time)
    """,
    "q11": """
        with gaps as (
            select *, date_time - lag(date_time) over w > interval '10 seconds' as begins from bid
            window w as (partition by bidder order by date_time)
        ),
        sessions as (
            select *, count(*) filter (where begins) over (partition by bidder order by date_time) as number from gaps
        )
        select bidder, count(*) as bid_count, min(date_time) as starttime,
            max(date_time) + interval '10 seconds' as endtime
        from sessions group by bidder, number
    """,
    "q12": """
        select bidder, count(*) as bid_count, time_bucket(interval '10 seconds', p_time) as starttime,
            starttime + interval '10 seconds' as endtime
        from bid group by all
    """,
}
_OTHERWISE = {
    "date_format(date_time, 'yyyy-MM-dd')": "strftime(date_time, '%Y-%m-%d')",
    "date_format(date_time, 'HH:mm')": "strftime(date_time, '%H:%M')",
}


def in_duckdb(name: str) -> str:
    """Return a query as DuckDB reads it."""
    text = _WINDOWS.get(name, QUERIES[name].text)
    for ours, theirs in _OTHERWISE.items():
        text = text.replace(ours, theirs)
    return text


def differences(name: str, found: pa.Table, **tables: pa.Table) -> int:
    """Return how many rows of a query DuckDB has not found in these tables, and how many only it has found.

    Args:
        found: The rows; doubles are compared to four places.
        tables: Those that the query names; of ``q12``, bids have the time at which they were processed, ``p_time``.
    """
    expected = query(in_duckdb(name), side_input=side_input(), **tables).to_arrow_table()
    both = {"found": found, "expected": expected.rename_columns(found.column_names)}
    rounded = ", ".join(
        f"round({field.name}, 4)" if pa.types.is_floating(field.type) else field.name for field in found.schema
    )
    one, other = (f"(select {rounded} from {name})" for name in both)
    (number,) = query(
        f"select (select count(*) from ({one} except all {other})) + (select count(*) from ({other} except all {one}))",
        **both,
    ).fetchone() or (-1,)
    return int(number)


def bids(events: int, late: int = 0, deleted: float = 0.0, seed: int = 18) -> pa.Table:
    """The bids among so many events, each with a time of its own.

    Args:
        late: Bids come in the order of their times after each of these has waited for up to so many events.
        deleted: The share of bids that are taken back: ``op`` is ``"d"``.
    """
    dice = np.random.default_rng(seed)
    number = np.arange(events)
    number = number[number % CYCLE > AUCTIONS]
    rows = len(number)
    auction, bidder = bid_ids(number, dice)
    columns = {
        "auction": auction,
        "bidder": bidder,
        "price": dice.integers(1, 10_000_000, rows),
        "url": pa.array(
            [f"https://www.nexmark.com/item.htm?query={query}" for query in dice.integers(0, 10_000, rows)]
        ),
        "date_time": pa.array(BEGIN + number * MICROSECONDS).cast(pa.timestamp("us", "UTC")),
        "op": pa.array(np.where(dice.random(rows) < deleted, "d", "u")),
    }
    order = np.argsort(number + dice.random(rows) * late, kind="stable")
    return pa.table(columns).take(pa.array(order))

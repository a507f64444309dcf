"""Kinds of jobs with series, filled gaps, the top rows of windows, windows behind windows and groups behind groups;
DuckDB says what their tables have to hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tests.chaos.inputs import KEYS, LATENESS, late_rows, on_time, with_late_rows
from tests.chaos.kind import Kind
from tests.duck import query
from tests.recovery.rows import SCHEMA, Row
from volley import (
    DataStream,
    Upsert,
    avg,
    col,
    count,
    ewm_mean,
    increase,
    last,
    lead,
    max_,
    previous,
    rate,
    rolling,
    row_number,
    session_start,
    sum_,
    top,
    tumbling,
)
from volley.task.failpoints import WINDOW_POINTS

__all__ = ["FILLED", "LEVELS", "PLACES", "SERIES", "UPDATES"]

_FUNCTIONS = {
    "total": rolling("15m", sum_("amount")),
    "rows": rolling("30s", count()),
    "mean": ewm_mean("amount", half_life="2m"),
    "grown": increase("amount"),
    "speed": rate("amount", per="1m"),
    "before": previous("id"),
    # A pause between two files is longer for some keys, and shorter for others.
    "begun": session_start("460s"),
}


def _series(stream: DataStream) -> DataStream:
    rows = stream.select("id", "at", "amount", key=col("id") % KEYS).key_by("key")
    return rows.series(on="at", lateness=LATENESS, late="dead_letter").with_columns(**_FUNCTIONS)


_SERIES = f"""
    with recursive counted as (select id, "at", amount, id % {KEYS} as key, place, epoch("at") as s,
        row_number() over (partition by id % {KEYS} order by "at", place) as n,
        row_number() over (partition by id % {KEYS}, amount is null order by "at", place) as m from events),
    means as (select key, m, s as t, amount::double as mean from counted where m = 1 and amount is not null
        union all select next.key, next.m, next.s, mean + (1 - 0.5 ** ((next.s - t) / 120)) * (next.amount - mean)
        from means join counted next on next.key = means.key and next.m = means.m + 1 and next.amount is not null),
    steps as (select *, last_value(amount ignore nulls) over before as last_amount,
        last_value(case when amount is not null then s end ignore nulls) over before as last_s,
        coalesce(s - lag(s) over w >= 460, true)::int as begins
        from counted window w as (partition by key order by n),
        before as (partition by key order by n rows between unbounded preceding and 1 preceding)),
    numbered as (select *, sum(begins) over (partition by key order by n) as session,
        case when amount < last_amount then amount else (amount - last_amount)::decimal(18, 4) end as grown from steps)
    select id, "at", amount, key,
        sum(amount) over (v range between interval '899.999999 seconds' preceding and current row) as total,
        count(*) over (v range between interval '29.999999 seconds' preceding and current row) as rows,
        case when amount is not null then mean end as mean, grown,
        case when s > last_s then grown::double * 60 / (s - last_s) end as speed,
        lag(id) over (partition by key order by n) as before, min("at") over (partition by key, session) as begun
    from numbered left join means using (key, m) window v as (partition by key order by "at")
"""


def _filled(stream: DataStream) -> DataStream:
    rows = stream.select("id", "at", "amount", key=col("id") % KEYS).key_by(id="key")
    # The gaps between two files are longer for some keys, and shorter for others.
    windows = rows.window(tumbling("1m"), on="at", lateness=LATENESS, late="dead_letter", fill_gaps="7m")
    return windows.aggregate(
        n=count(),
        highest=top("id", 3, by="amount"),
        latest=last("amount").forward_fill(),
        mean=avg("amount").interpolate(),
    ).select("window_start", "id", "n", "highest", "latest", "mean")


_FILLED = f"""
    with present as (select time_bucket(interval '1 minute', "at") as start, id % {KEYS} as id, count(*) as n,
        list(id order by amount desc, "at", place) filter (where amount is not null)[:3] as highest,
        arg_max(amount, ("at", place)) as latest, avg(amount)::double as mean from events group by all),
    pairs as (select *, lead(start) over w as next, lead(mean) over w as next_mean
        from present window w as (partition by id order by start)),
    gaps as (select * from pairs, lateral (select unnest(generate_series(start + interval '1 minute',
        next - interval '1 minute', interval '1 minute')) as minute) where next - start <= interval '8 minutes')
    select start as window_start, id, n, highest, latest, mean from present
    union all select minute, id, 0, null, latest,
        mean + (next_mean - mean) * epoch(minute - start) / epoch(next - start) from gaps
"""


def _busiest(stream: DataStream) -> DataStream:
    rows = stream.select("id", "at", "amount", key=col("id") % KEYS).key_by(id="key")
    minutes = rows.window(tumbling("1m"), on="at", lateness=LATENESS, late="dead_letter").aggregate(n=count())
    most = minutes.key_by().window(tumbling("1m"), on="window_start").aggregate(n=max_("n"))
    on, times = {"window_start": "window_start", "n": "n"}, ("window_start", "window_start")
    busiest = minutes.join(most, on=on, within="0s", time=times, columns=["window_end"], suffix="_most")
    tens = busiest.key_by("id").window(tumbling("10m"), on="window_start").aggregate(n=sum_("n"), minutes=count())
    return tens.select("window_start", "id", "n", "minutes")


_BUSIEST = f"""
    with minutes as (select time_bucket(interval '1 minute', "at") as start, id % {KEYS} as id, count(*) as n
        from events group by all)
    select time_bucket(interval '10 minutes', start) as window_start, id, sum(n)::bigint as n, count(*) as minutes
    from minutes where (start, n) in (select (start, max(n)) from minutes group by start) group by all
"""


def _totals(stream: DataStream) -> DataStream:
    rows = stream.select("id", "at", "amount", key=col("id") % KEYS)
    windows = rows.key_by("key").window(tumbling("1m"), on="at", lateness=LATENESS, late="dead_letter", emit="updates")
    minutes = windows.aggregate(n=count(), highest=max_("amount"))
    return minutes.key_by("key").aggregate(minutes=count(), n=sum_("n"), highest=max_("highest"))


def _sizes(stream: DataStream) -> DataStream:
    totals = _totals(stream)
    # Keys move from one size to the next, and the small ones end without a key.
    sizes = (
        totals.filter(col("n") > 7)
        .key_by(id="n")
        .aggregate(keys=count(), minutes=sum_("minutes"), highest=max_("highest"))
    )
    return sizes.select("id", "keys", "minutes", "highest")


_TOTALS = f"""
    with minutes as (select time_bucket(interval '1 minute', "at") as start, id % {KEYS} as key, count(*) as n,
        max(amount) as highest from events group by all),
    totals as (select key, count(*) as minutes, sum(n)::bigint as n, max(highest) as highest from minutes group by key)
"""
_SIZES = f"""
    {_TOTALS} select n as id, count(*) as keys, sum(minutes)::bigint as minutes, max(highest) as highest from totals
    where n > 7 group by n
"""


def _best(stream: DataStream) -> DataStream:
    """The first keys of each number of minutes: keys move from one to the next, and others move up."""
    ordered = _totals(stream).key_by("minutes").order_by("n desc", "highest", "key")
    places = ordered.with_columns(place=row_number(), behind=lead("key")).filter(col("place") <= 3)
    return places.select("key", "n", "behind", id=col("minutes") * 10 + col("place"))


_BEST = f"""
    {_TOTALS} select * exclude (place) from (select key, n, lead(key) over w as behind,
        minutes * 10 + row_number() over w as id, row_number() over w as place
        from totals window w as (partition by minutes order by n desc, highest, key)) where place <= 3
"""


def _of(sql: str, files: Sequence[list[Row]]) -> Iterator[Row]:
    """The rows of a query over those that are not late; `place` is the order in which they come."""
    rows = [{name: row[name] for name in ("id", "at", "amount")} for row in on_time(files)]
    events = pa.Table.from_pylist(rows, pa.schema([SCHEMA.field(name) for name in ("id", "at", "amount")]))
    found = query(sql, events=events.append_column("place", pa.array(range(len(rows))))).to_arrow_table()
    return iter(found.to_pylist())


SERIES = Kind(
    with_late_rows,
    _series,
    lambda files: _of(_SERIES, files),
    columns=("id", "at", "amount", "key", *_FUNCTIONS),
    bad=late_rows,
    points=WINDOW_POINTS,
)
FILLED = Kind(
    with_late_rows,
    _filled,
    lambda files: _of(_FILLED, files),
    columns=("window_start", "id", "n", "highest", "latest", "mean"),
    bad=late_rows,
    points=WINDOW_POINTS,
)
LEVELS = Kind(
    with_late_rows,
    _busiest,
    lambda files: _of(_BUSIEST, files),
    columns=("window_start", "id", "n", "minutes"),
    bad=late_rows,
    points=WINDOW_POINTS,
)
UPDATES = Kind(
    with_late_rows,
    _sizes,
    lambda files: _of(_SIZES, files),
    columns=("id", "keys", "minutes", "highest"),
    mode=Upsert("id"),
    bad=late_rows,
    points=WINDOW_POINTS,
)
PLACES = Kind(
    with_late_rows,
    _best,
    lambda files: _of(_BEST, files),
    columns=("key", "n", "behind", "id"),
    mode=Upsert("id"),
    bad=late_rows,
    points=WINDOW_POINTS,
)

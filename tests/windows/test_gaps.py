"""Windows that fill gaps equal a series of all windows in DuckDB, however rows fall into epochs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from tests.windows.local import LocalStep, row_count, windows
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    MemorySource,
    avg,
    count,
    count_distinct,
    last,
    max_,
    rolling,
    session,
    sliding,
    sum_,
    tumbling,
)

START = datetime(1969, 12, 31, 23, 50, tzinfo=UTC)
SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "at": pa.timestamp("us", "UTC")})
LONGEST = 5
AGGREGATES = {
    "rows": count(),
    "different": count_distinct("x"),
    "total": sum_("x"),
    "level": max_("x").forward_fill(),
    "between": avg("x").interpolate(),
}
FILLED = f"""
    with filled as (
        select k, epoch_us(time_bucket(interval '1 minute', "at")) // 60000000 as m, count(*) as rows,
            count(distinct x) as different, sum(x)::bigint as total, max(x) as level, avg(x) as between
        from events where "at" is not null group by all),
    gaps as (
        select *, lag(m) over w as before, lag(level) over w as level_before, lag(between) over w as between_before
        from filled window w as (partition by k order by m))
    select k, m, rows, different, total, level, between from filled
    union all
    select k, g.n, 0, 0, null, level_before,
        between_before + (between - between_before) * (g.n - before) / (m - before)
    from gaps, range(before + 1, m) g(n) where m - before - 1 <= {LONGEST}
"""


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    one = st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, "a", "b"]),
            "x": st.none() | st.integers(0, 9),
            "at": st.none() | st.integers(0, 1_800).map(lambda second: START + timedelta(seconds=second)),
        }
    )
    return draw(st.lists(one, min_size=1, max_size=25))


def run(rows: Sequence[dict[str, Any]], places: Sequence[int], **options: Any) -> tuple[pa.Table, LocalStep]:
    bounds = [0, *sorted(place % (len(rows) + 1) for place in places), len(rows)]
    source = Environment().from_source(MemorySource(SCHEMA.empty_table()))
    filled = source.key_by("k").window(tumbling("1m"), on="at", fill_gaps=f"{LONGEST}m", buckets=2, **options)
    with TemporaryDirectory() as folder:
        local = windows(filled.aggregate(**AGGREGATES), SCHEMA, Path(folder))
        out = [
            local.epoch(
                number,
                [(0, [pa.RecordBatch.from_pylist(list(rows[start:end]), SCHEMA)])] if end > start else [],
                ends=number == len(bounds) - 2,
            )
            for number, (start, end) in enumerate(pairwise(bounds))
        ]
    return pa.concat_tables(out), local


def texts(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(repr([f"{v:.9g}" if isinstance(v, float) else v for v in row.values()]) for row in rows)


@given(rows=events(), places=st.lists(st.integers(0, 25), max_size=4))
def test_gaps_are_filled_as_in_one_query(rows: list[dict[str, Any]], places: list[int]) -> None:
    check(rows, *run(rows, places, lateness="1h"))


@given(rows=events(), places=st.lists(st.integers(0, 25), max_size=6))
def test_gaps_are_filled_across_epochs(rows: list[dict[str, Any]], places: list[int]) -> None:
    """In the order of their times, each epoch closes windows: the two ends of a gap come out in different epochs."""
    ordered = sorted((row for row in rows if row["at"]), key=lambda row: row["at"])
    if ordered:
        check(ordered, *run(ordered, places))


def check(rows: Sequence[dict[str, Any]], found: pa.Table, local: LocalStep) -> None:
    mine = [
        {"k": row["k"], "m": int(row["window_start"].timestamp()) // 60} | {name: row[name] for name in AGGREGATES}
        for row in found.to_pylist()
    ]
    assert all(row["window_end"] - row["window_start"] == timedelta(minutes=1) for row in found.to_pylist())
    expected = query(FILLED, events=pa.Table.from_pylist(list(rows), SCHEMA)).to_arrow_table().to_pylist()
    assert texts(mine) == texts(expected)


def test_a_window_that_came_out_is_forgotten_when_its_gap_is_too_long(tmp_path: Path) -> None:
    source = Environment().from_source(MemorySource(SCHEMA.empty_table()))
    filled = source.key_by("k").window(tumbling("1m"), on="at", fill_gaps="5m")
    local = windows(filled.aggregate(n=count()), SCHEMA, tmp_path)

    def epoch(number: int, key: str, minute: int) -> int:
        row = {"k": key, "x": 1, "at": START + timedelta(minutes=minute)}
        return len(local.epoch(number, [(0, [pa.RecordBatch.from_pylist([row], SCHEMA)])]))

    assert [epoch(0, "a", 0), epoch(1, "b", 1), epoch(2, "b", 30), epoch(3, "b", 60)] == [0, 1, 1, 1]
    states = sum(row_count(str(path)) for path in (tmp_path / "3").glob("state-*.arrow"))
    # The last window of b that came out can't begin a gap any more, either.
    assert states == 1


def test_what_can_t_be_filled_is_refused() -> None:
    keyed = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by("k")
    for window in (sliding("2m", every="1m"), session("1m")):
        with pytest.raises(ConfigError, match="can't fill gaps"):
            keyed.window(window, on="at", fill_gaps="1h")
    with pytest.raises(ConfigError, match="can't fill gaps"):
        keyed.window(tumbling("1m"), on="at", fill_gaps="1h", emit="updates")
    with pytest.raises(ExpressionError, match="without windows that fill gaps"):
        keyed.window(tumbling("1m"), on="at").aggregate(x=last("x").forward_fill())
    with pytest.raises(ExpressionError, match="not numbers"):
        assert keyed.window(tumbling("1m"), on="at", fill_gaps="1h").aggregate(x=last("k").interpolate()).columns
    with pytest.raises(ExpressionError, match="no gaps to fill") as caught:
        rolling("5m", avg("x").interpolate())
    assert str(caught.value.hint).startswith("avg(col('x')); windows can")

"""Windows equal a batch query over the same rows: random rows, cuts into epochs and splits, and lateness."""

from __future__ import annotations

import math
import random
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
from tests.windows.local import windows
from volley import (
    Aggregation,
    DataStream,
    Environment,
    MemorySource,
    approx_distinct,
    avg,
    calendar,
    col,
    count,
    count_distinct,
    cumulative,
    first,
    last,
    list_,
    max_,
    min_,
    quantile,
    session,
    sliding,
    struct,
    sum_,
    top,
    tumbling,
    variance,
)
from volley.plan.windows import Calendar, Cumulative, Session, Spans, Window

START = datetime(1969, 12, 31, 23, 58, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "d": pa.float64(),
        "x": pa.float64(),
        "i": pa.int64(),
        "n": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
    }
)
AGGREGATES: dict[str, tuple[Aggregation, str]] = {
    "rows": (count(), "count(*)"),
    "some": (count("x"), "count(x)"),
    "total": (sum_("i"), "sum(i)::bigint"),
    "float": (sum_("x"), "sum(x)"),
    "low": (min_("x"), "min(x)"),
    "top": (max_("x"), "max(x)"),
    "low_key": (min_("k"), "min(k)"),
    "mean": (avg("i"), "avg(i)"),
    "first": (first("i"), "arg_min(i, (t, n)) filter (i is not null)"),
    "last": (last("i"), "arg_max(i, (t, n)) filter (i is not null)"),
    "different": (count_distinct("x"), "count(distinct x + 0.0)"),
    "about": (approx_distinct("i"), "count(distinct i)"),
    "middle": (quantile("i", 0.5), "quantile_cont(i, 0.5)::double"),
    "spread": (variance("i"), "var_samp(i)"),
    "few": (list_("i", 3), "list(i order by t, n) filter (i is not null)[:3]"),
    "best": (top("i", 2, by="x"), "list(i order by x desc, t, n) filter (i is not null and x is not null)[:2]"),
    "rows_of": (
        top(struct(n=col("n"), k=col("k")), 2, by=col("i") * 2),
        "list({n: n, k: k} order by i desc, t, n) filter (i is not null)[:2]",
    ),
}
SPANS: list[Window] = [
    *(tumbling("1 minute"), sliding("90s", every="1m"), sliding("2m", every="30s"), tumbling("1 minute", offset="10s")),
    *(sliding("90s", every="1m", offset="7s"), cumulative("2m", step="30s"), calendar("day"), calendar("year")),
]
NUMBERS = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5, -2.0, 1e9])


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    one = st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, "", "a", "b"]),
            "d": NUMBERS,
            "x": NUMBERS,
            "i": st.none() | st.integers(-5, 5),
            "at": st.none() | st.integers(0, 400).map(lambda second: START + timedelta(seconds=second)),
        }
    )
    return [{**row, "n": number} for number, row in enumerate(draw(st.lists(one, min_size=1, max_size=40)))]


def cut(rows: Sequence[Any], places: Sequence[int]) -> list[Sequence[Any]]:
    """The rows in pieces, some of which may be empty."""
    bounds = [0, *sorted(place % (len(rows) + 1) for place in places), len(rows)]
    return [rows[start:end] for start, end in pairwise(bounds)]


def stream(window: Window, keys: Sequence[str], **options: Any) -> DataStream:
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by(*keys)
    aggregates = {name: aggregation for name, (aggregation, _) in AGGREGATES.items()}
    return rows.window(window, on="at", buckets=3, **options).aggregate(**aggregates)


def batches(rows: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
    half = len(rows) // 2
    return [pa.RecordBatch.from_pylist(list(part), SCHEMA) for part in (rows[:half], rows[half:]) if part]


def expected(rows: Sequence[dict[str, Any]], window: Window, keys: Sequence[str]) -> list[str]:
    """What DuckDB says of the same windows."""
    return rounded(from_duckdb(rows, window, keys, [f"{sql} as {name}" for name, (_, sql) in AGGREGATES.items()]))


def from_duckdb(rows: Sequence[dict[str, Any]], window: Window, keys: Sequence[str], values: Sequence[str]) -> pa.Table:
    """The groups of the same windows, with values of each."""
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    groups = ["s", "e", *({"k": "k", "d": "d + 0.0"}[key] for key in keys)]
    names = ", ".join(f"{sql} as {name}" for sql, name in zip(groups, ["s", "e", *keys], strict=True))
    if isinstance(window, Session):
        by = f"partition by {', '.join(groups[2:])}" if keys else ""
        gap = int(window.gap.total_seconds())
        windowed = f"""
            with timed as (select *, epoch_us("at") as t from events where "at" is not null),
            begun as (select *, coalesce(t - lag(t) over ({by} order by t) >= {gap}e6, true)::int as new from timed),
            numbered as (select *, sum(new) over ({by} order by t rows unbounded preceding) as w from begun)
            select *, min(t) over ({f"{by}, w" if by else "partition by w"}) as s,
                max(t) over ({f"{by}, w" if by else "partition by w"}) + {gap}e6::bigint as e from numbered"""
    else:
        spans = ", ".join(f"({start}000000, {end}000000)" for start, end in _bounds(window))
        windowed = f"""
            select e.*, w.s as s, w.e as e from (select *, epoch_us("at") as t from events) e,
            (values {spans}) as w (s, e) where w.s <= e.t and e.t < w.e"""
    chosen = ", ".join([names, *values])
    return query(f"select {chosen} from ({windowed}) group by {', '.join(groups)}", events=table).to_arrow_table()


def _bounds(window: Window) -> list[tuple[int, int]]:
    """The starts and ends of windows around 1970, in seconds from it."""
    match window:
        case Calendar(unit="day"):
            return [(-86_400, 0), (0, 86_400)]
        case Calendar():
            return [(-365 * 86_400, 0), (0, 365 * 86_400)]
        case Cumulative():
            size, step = (int(span.total_seconds()) for span in (window.size, window.step))
            return [(n * size, n * size + end) for n in range(-20, 20) for end in range(step, size + 1, step)]
    assert isinstance(window, Spans)
    size, every, offset = (int(span.total_seconds()) for span in (window.size, window.every, window.offset))
    return [(n * every + offset, n * every + offset + size) for n in range(-20, 20)]


def rounded(table: pa.Table) -> list[str]:
    """The rows as text, in any order; sums of floats to nine digits."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return sorted(repr([_text(value) for value in row]) for row in zip(*(c.to_pylist() for c in columns), strict=True))


def _text(value: Any) -> Any:
    # -0.0 and 0.0 are equal: either is the larger one.
    return f"{value + 0.0:.9g}" if isinstance(value, float) else value


@pytest.mark.parametrize("window", [*SPANS, session("20s")], ids=repr)
@given(rows=events(), places=st.lists(st.integers(0, 40), max_size=4), keys=st.sampled_from([(), ("k",), ("k", "d")]))
def test_results_do_not_depend_on_epochs(
    window: Window, rows: list[dict[str, Any]], places: list[int], keys: tuple[str, ...]
) -> None:
    """Nothing is late: all windows are as in one query, however rows fall into epochs and splits."""
    pieces = cut(rows, places)
    with TemporaryDirectory() as folder:
        local = windows(stream(window, keys, lateness="1h"), SCHEMA, Path(folder))
        out = [
            local.epoch(number, [(0, [batch]) for batch in batches(piece)], ends=number == len(pieces) - 1)
            for number, piece in enumerate(pieces)
        ]
        assert local.rejected.untimed == sum(row["at"] is None for row in rows)
        assert (local.rejected.late, local.rejected.early) == (0, 0)
    assert rounded(pa.concat_tables(out)) == expected(rows, window, keys)


@pytest.mark.parametrize("window", SPANS, ids=repr)
@pytest.mark.parametrize("column", ["x", "i"])
def test_many_rows_of_few_groups(window: Window, column: str, tmp_path: Path) -> None:
    dice = random.Random(5)
    rows = [
        {
            "k": dice.choice([None, "", "a", "b"]),
            "x": dice.choice([None, 0.0, 1.5, -2.0, 1e9, math.inf]),
            "i": dice.choice([None, *range(-5, 6)]),
            "n": number,
            "at": START + timedelta(seconds=dice.randrange(400)),
        }
        for number in range(3_000)
    ]
    # No value of one group is known, and each of another is below or above 0.
    for row in rows:
        row |= {"": {"x": None, "i": None}, "a": {"x": abs(row["x"] or 1), "i": abs(row["i"] or 1)}}.get(row["k"], {})
    plain = {"rows": count(), "some": count(column), "total": sum_("i"), "low": min_(column), "top": max_(column)}
    events = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by("k")
    local = windows(events.window(window, on="at", buckets=3).aggregate(**plain), SCHEMA, tmp_path)
    # Texts that repeat come as dictionaries, as Parquet has them.
    encoded = [batch.set_column(0, "k", batch["k"].dictionary_encode()) for batch in batches(rows)]
    out = local.epoch(0, [(0, [batch]) for batch in encoded], ends=True)
    sql = [f"{text.replace('(x)', f'({column})')} as {name}" for name, (_, text) in AGGREGATES.items() if name in plain]
    assert rounded(out) == rounded(from_duckdb(rows, window, ("k",), sql))


@pytest.mark.parametrize(
    "window",
    [tumbling("1 minute"), sliding("2m", every="30s"), cumulative("2m", step="30s"), calendar("day"), session("20s")],
    ids=repr,
)
@given(rows=events(), places=st.lists(st.integers(0, 40), max_size=4), lateness=st.sampled_from([0, 20]))
def test_late_rows_are_counted(window: Window, rows: list[dict[str, Any]], places: list[int], lateness: int) -> None:
    """A row is late if its last window is closed at its epoch's start; the others give what a batch query does."""
    watermark: datetime | None = None
    on_time: list[dict[str, Any]] = []
    out: list[pa.Table] = []
    pieces = cut(rows, places)
    with TemporaryDirectory() as folder:
        local = windows(stream(window, ("k",), lateness=lateness), SCHEMA, Path(folder))
        for number, piece in enumerate(pieces):
            parts = [(0, [batch]) for batch in batches(piece)]
            out.append(local.epoch(number, parts, ends=number == len(pieces) - 1))
            timed = [row for row in piece if row["at"] is not None]
            on_time += [row for row in timed if watermark is None or _last_end(window, row["at"]) > watermark]
            if times := [row["at"] for row in on_time]:
                watermark = max(times) - timedelta(seconds=lateness)
    assert local.rejected.late == sum(row["at"] is not None for row in rows) - len(on_time)
    # A row may be late for some of its sliding windows only.
    if not (isinstance(window, Cumulative) or (isinstance(window, Spans) and window.overlaps)):
        assert rounded(pa.concat_tables(out)) == expected(on_time, window, ("k",))


def _last_end(window: Window, at: datetime) -> datetime:
    if isinstance(window, Session):
        return at + window.gap
    second = (at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    last = max(end for start, end in _bounds(window) if start <= second < end)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=last)

"""Series functions equal DuckDB's window functions and polars' means, however rows fall into epochs and splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from tests.windows.local import LocalStep, windows
from volley import (
    Environment,
    ExpressionError,
    MemorySource,
    SeriesFunction,
    avg,
    count,
    ewm_mean,
    increase,
    last,
    list_,
    max_,
    previous,
    rate,
    rolling,
    session_start,
    sum_,
)
from volley.task.partials import RejectedRows

START = datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    {"k": pa.string(), "x": pa.float64(), "c": pa.int64(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")}
)
_SPAN = "range between interval '19.999999 seconds' preceding and current row"
FUNCTIONS: dict[str, tuple[SeriesFunction, str]] = {
    "rows": (rolling("20s", count()), f"count(*) over (w {_SPAN})"),
    "total": (rolling("20s", sum_("c")), f"sum(c) over (w {_SPAN})::bigint"),
    "mean": (rolling("20s", avg("c")), f"avg(c) over (w {_SPAN})"),
    "top": (rolling("20s", max_("x")), f"max(x) over (w {_SPAN})"),
    "latest": (rolling("20s", last("n")), f"arg_max(n, (t, n)) over (w {_SPAN})"),
    "few": (rolling("20s", list_("n", 3)), f"list(n order by t, n) over (w {_SPAN})[:3]"),
    "before": (previous("x"), "lag(x) over v"),
    "grown": (increase("c"), "grown"),
    "speed": (rate("c", per="1m"), "case when elapsed > 0 then grown::double * 60e6 / elapsed end"),
    "begun": (session_start("15s"), "min(t) over (partition by k, s)"),
}
ORDERED = """
    with timed as (select *, epoch_us("at") as t from events where "at" is not null),
    filled as (select *, last_value(c ignore nulls) over u as c0,
        last_value(case when c is not null then t end ignore nulls) over u as t0,
        coalesce(t - lag(t) over (partition by k order by t, n) >= 15000000, true)::int as begins
        from timed window u as (partition by k order by t, n rows between unbounded preceding and 1 preceding)),
    counted as (select *, case when c < c0 then c else c - c0 end as grown, t - t0 as elapsed,
        sum(begins) over (partition by k order by t, n rows unbounded preceding) as s from filled)
"""


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    one = st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, "a", "b"]),
            "x": st.sampled_from([None, 0.0, math.nan, 1.5, -2.0]),
            "c": st.none() | st.integers(0, 9),
            "at": st.none() | st.integers(0, 120).map(lambda second: START + timedelta(seconds=second)),
        }
    )
    return [{**row, "n": number} for number, row in enumerate(draw(st.lists(one, min_size=1, max_size=30)))]


def local(folder: str, functions: dict[str, SeriesFunction], **options: Any) -> LocalStep:
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by("k")
    stream = rows.series(on="at", buckets=3, **options).with_columns(**functions)
    return windows(stream, SCHEMA, Path(folder), now=NOW.timestamp)


def run(rows: Sequence[dict[str, Any]], places: Sequence[int], functions: dict[str, SeriesFunction]) -> pa.Table:
    """All rows, cut into epochs and each epoch into two splits."""
    bounds = [0, *sorted(place % (len(rows) + 1) for place in places), len(rows)]
    with TemporaryDirectory() as folder:
        steps = local(folder, functions, lateness="1h")
        out = []
        for number, (start, end) in enumerate(pairwise(bounds)):
            half = (start + end) // 2
            splits = [rows[start:half], rows[half:end]]
            batches = [(0, [pa.RecordBatch.from_pylist(list(split), SCHEMA)]) for split in splits if split]
            out.append(steps.epoch(number, batches, ends=number == len(bounds) - 2))
        assert (steps.rejected.late, steps.rejected.untimed) == (0, sum(row["at"] is None for row in rows))
    return pa.concat_tables(out)


def texts(table: pa.Table) -> list[str]:
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(repr([f"{value:.9g}" if isinstance(value, float) else value for value in row]) for row in rows)


@given(rows=events(), places=st.lists(st.integers(0, 30), max_size=4))
def test_functions_equal_those_of_duckdb(rows: list[dict[str, Any]], places: list[int]) -> None:
    values = ", ".join(f"{sql} as {name}" for name, (_, sql) in FUNCTIONS.items())
    found = query(
        f'{ORDERED} select k, x, c, n, "at", {values} from counted '
        'window w as (partition by k order by "at"), v as (partition by k order by t, n)',
        events=pa.Table.from_pylist(rows, SCHEMA),
    )
    assert texts(run(rows, places, {name: function for name, (function, _) in FUNCTIONS.items()})) == texts(
        found.to_arrow_table()
    )


@given(rows=events(), places=st.lists(st.integers(0, 30), max_size=4))
def test_weighted_means_equal_those_of_polars(rows: list[dict[str, Any]], places: list[int]) -> None:
    mine = run(rows, places, {"mean": ewm_mean("c", half_life="10s")}).select(["n", "mean"])
    timed = polars.DataFrame([row for row in rows if row["at"]], schema=_POLARS).sort("at", "n", maintain_order=True)
    means = polars.col("c").cast(float).ewm_mean_by("at", half_life="10s").over("k").alias("mean")
    assert texts(mine) == texts(timed.select("n", means).to_arrow())


_POLARS: dict[str, Any] = {
    "k": polars.String,
    "x": polars.Float64,
    "c": polars.Int64,
    "at": polars.Datetime("us", "UTC"),
    "n": polars.Int64,
}


def test_times_at_the_end_of_their_range(tmp_path: Path) -> None:
    """Rows far out of the calendar come out or are counted."""

    def epoch(folder: str, *times: int) -> tuple[list[int], RejectedRows]:
        steps = local(str(tmp_path / folder), {"seen": rolling("1m", count())}, max_ahead=None)
        rows = pa.RecordBatch.from_pylist([{"k": "a", "n": 1}] * len(times), SCHEMA)
        place = SCHEMA.get_field_index("at")
        rows = rows.set_column(place, SCHEMA.field("at"), pa.array(times, SCHEMA.field("at").type))
        out = steps.epoch(0, [(0, [rows])], ends=True)
        return out["at"].cast(pa.int64()).to_pylist(), steps.rejected

    assert epoch("in", -(2**62), 2**62) == ([-(2**62), 2**62], RejectedRows())
    assert epoch("out", -(2**63), 2**63 - 1) == ([], RejectedRows(late=1, early=1))


@pytest.mark.parametrize(
    ("data_type", "values", "grown"),
    [
        (pa.decimal128(38, 18), ["1.5", "99999999999999999999", "0.25"], ["99999999999999999997.5", "0.25"]),
        (pa.decimal128(10, 2), ["-1.5", "2", "99999999.99"], ["3.5", "99999997.99"]),
        (pa.int32(), [-5, 2**31 - 6, 3], [2**31 - 1, 3]),
        (pa.int32(), [-2_000_000_000, 2_000_000_000], None),
        (pa.int64(), [-(2**63), 2**63 - 1], None),
        (pa.decimal128(38, 0), [-9 * 10**37, 9 * 10**37], None),
    ],
)
def test_a_counter_grows_exactly_or_raises(
    data_type: pa.DataType, values: list[Any], grown: list[Any] | None, tmp_path: Path
) -> None:
    schema = pa.schema({"k": pa.string(), "c": data_type, "at": pa.timestamp("us", "UTC")})
    numbers = [Decimal(each) for each in values] if pa.types.is_decimal(data_type) else values
    rows = [{"k": "a", "c": c, "at": START + timedelta(seconds=second)} for second, c in enumerate(numbers)]
    keyed = Environment().from_source(MemorySource(schema.empty_table())).key_by("k")
    series = keyed.series(on="at").with_columns(grown=increase("c"), speed=rate("c", per="1s"))
    job = windows(series, schema, tmp_path, now=NOW.timestamp)
    if grown is None:
        with pytest.raises(ExpressionError, match="has grown by more than"):
            job.epoch(0, [(0, [pa.RecordBatch.from_pylist(rows, schema)])], ends=True)
        return
    out = job.epoch(0, [(0, [pa.RecordBatch.from_pylist(rows, schema)])], ends=True).sort_by("at").to_pylist()
    assert [row["grown"] for row in out] == [None, *map(type(numbers[0]), grown)]
    assert [row["speed"] for row in out[1:]] == [float(row["grown"]) for row in out[1:]]

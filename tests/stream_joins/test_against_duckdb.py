"""A join of streams equals a batch query over the same rows: random rows, cuts into epochs and splits, and lateness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.stream_joins.reference import Row, batch_join, on_time
from tests.windows.local import joined
from tests.windows.test_against_duckdb import cut, rounded
from volley import DataStream, Environment, MemorySource
from volley.plan.joins import How

START = datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"k": pa.string(), "d": pa.float64(), "n": pa.int64(), "at": TIME})
RIGHT = pa.schema({"k": pa.string(), "other": pa.float32(), "m": pa.int32(), "paid": TIME, "more": pa.list_(pa.int8())})
NUMBERS = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5])


@st.composite
def sides(draw: st.DrawFn) -> list[list[Row]]:
    """Rows of both sides, in the order in which they come."""
    sides = []
    for number, time, count in (("d", "at", "n"), ("other", "paid", "m")):
        one = st.fixed_dictionaries(
            {
                "k": st.sampled_from([None, "", "a", "b"]),
                number: NUMBERS,
                time: st.none() | st.integers(0, 100).map(lambda second: START + timedelta(seconds=second)),
            }
        )
        rows = draw(st.lists(one, max_size=25))
        sides.append([{**row, count: place, "more": [place]} for place, row in enumerate(rows)])
    return sides


def stream(keys: Sequence[str], how: How, within: tuple[int, int], lateness: int) -> DataStream:
    left, right = (Environment().from_source(MemorySource(schema.empty_table())) for schema in (LEFT, RIGHT))
    on = {key: {"k": "k", "d": "other"}[key] for key in keys}
    columns = None if how in ("semi", "anti") else ["m", "paid", "more"]
    return left.join(right, on, how, within=within, time=("at", "paid"), lateness=lateness, columns=columns, buckets=3)


def batches(rows: Sequence[Row], schema: pa.Schema) -> list[pa.RecordBatch]:
    half = len(rows) // 2
    return [pa.RecordBatch.from_pylist(list(part), schema) for part in (rows[:half], rows[half:]) if part]


def expected(rows: Sequence[Sequence[Row]], keys: Sequence[str], how: How, within: tuple[int, int]) -> list[str]:
    """What DuckDB says of the same join."""
    equal = [{"k": "l.k = r.k", "d": "l.d = r.other"}[key] for key in keys]
    near = f"""r.paid between l."at" - interval {within[0]} second and l."at" + interval {within[1]} second"""
    # A row that only the right side has has its keys.
    shared = {"k": "coalesce(l.k, r.k) as k", "d": "coalesce(l.d, r.other) as d"}
    own = [shared[name] if name in keys and how in ("right", "full") else f"l.{name}" for name in ("k", "d", "n", "at")]
    columns = "*" if how in ("semi", "anti") else f"{', '.join(own)}, m, paid, more"
    return rounded(batch_join(rows, (LEFT, RIGHT), how, " and ".join([*equal, near]), columns))


@given(
    rows=sides(),
    places=st.lists(st.integers(0, 25), max_size=3),
    keys=st.sampled_from([("k",), ("k", "d"), ("d",)]),
    how=st.sampled_from(get_args(How)),
    within=st.sampled_from([(0, 0), (10, 10), (0, 30), (40, 0)]),
    lateness=st.sampled_from([0, 20, 3600]),
)
def test_results_are_those_of_a_batch(
    rows: list[list[Row]], places: list[int], keys: tuple[str, ...], how: How, within: tuple[int, int], lateness: int
) -> None:
    """All rows that are not late are joined as in one query, however they fall into epochs and splits."""
    pieces = [cut(side, places) for side in rows]
    with TemporaryDirectory() as folder:
        local = joined(stream(keys, how, within, lateness), LEFT, RIGHT, Path(folder))
        out = [
            local.epoch(
                number,
                [(0, batches(left, LEFT)), *((1, [batch]) for batch in batches(right, RIGHT))],
                ends=number == len(places),
            )
            for number, (left, right) in enumerate(zip(*pieces, strict=True))
        ]
    kept, late = on_time(pieces, ("at", "paid"), timedelta(seconds=lateness))
    untimed = sum(row["at"] is None for row in rows[0]) + sum(row["paid"] is None for row in rows[1])
    assert (local.rejected.late, local.rejected.untimed) == (late, untimed)
    assert rounded(pa.concat_tables(out)) == expected(kept, keys, how, within)

"""Functions of ordered rows and first rows in views: what a refresh reads, and that it has DuckDB's rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.views.tables import Known, Query, checked, view_of
from volley import DataStream, Environment, col, lag, rank, row_number, rows_between, sum_

SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64(), "x": pa.float64()})


def _rows(chance: random.Random, first: int, number: int, key: int) -> list[dict[str, Any]]:
    """Rows of ten keys, whose sums depend on the order in which they are added."""
    return [
        {"id": first + place, "k": key + chance.randrange(10), "x": chance.random() * 10 ** chance.randrange(-8, 8)}
        for place in range(number)
    ]


@pytest.fixture
def known(tmp_path: Path) -> Known:
    """A table of two files, with ten keys each."""
    table = Known(tmp_path / "t", SCHEMA)
    for part in range(2):
        table.change(_rows(random.Random(part), part * 10_000, 2_000, part * 10))
    return table


QUERIES: dict[str, tuple[Callable[[DataStream], DataStream], str]] = {
    "places": (
        lambda t: t.key_by("k").order_by("x desc").with_columns(n=row_number(), last=lag("x")),
        "select *, row_number() over (partition by k order by x desc) n, "
        "lag(x) over (partition by k order by x desc) as last from t",
    ),
    "first places": (
        lambda t: t.key_by("k").order_by("x").with_columns(n=rank()).filter(col("n") <= 3).select("id", "n"),
        "select id, rank() over (partition by k order by x) n from t qualify n <= 3",
    ),
    "sums of rows": (
        lambda t: (
            t.key_by("k")
            .order_by("id")
            .with_columns(s=rows_between(sum_(col("x") * 0 + col("id")), before=100, after=None))
        ),
        "select *, sum(x * 0 + id) over (partition by k order by id rows between 100 preceding and unbounded "
        "following) s from t",
    ),
    "a key that a place replaces": (
        lambda t: t.key_by("k").order_by("id desc").with_columns(k=row_number()).filter(col("k") == 2),
        "select id, n k, x from (select *, row_number() over (partition by k order by id desc) n from t) where n = 2",
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_only_the_keys_that_have_changed_rows_are_read(name: str, known: Known) -> None:
    stream, sql = QUERIES[name]
    query, sources = Query(lambda t: stream(t), sql), {"t": known}
    view = view_of(query, sources, mode="incremental")
    assert checked(view, query, sources).rows_read == 4_000
    for number in range(3):
        # The first file has the keys 0 to 9.
        known.change(_rows(random.Random(9 + number), 50_000 + number * 10, 3, 0), {7 * number, 900 + number})
        done = checked(view, query, sources)
        assert done.mode == "incremental"
        assert done.rows_read < 4_100, "the file of changes and of their keys, and the new rows"
    assert "the keys with changed rows" in str(view.explain())


def test_a_sum_of_doubles_is_the_same_whichever_keys_are_computed(known: Known) -> None:
    """The view finds its rows by their values: the last digit of one that is computed again is the same."""
    stream = known.stream.key_by("k").order_by("id").with_columns(s=sum_("x"), m=rows_between(sum_("x"), before=200))
    query = Query(lambda t: stream, "select id from t")
    view = view_of(query, {"t": known}, mode="incremental")
    view.refresh()
    for number in range(4):
        known.change(_rows(random.Random(number), 50_000 + number * 10, 1, number), {500 * number})
        assert view.refresh().mode == "incremental"
    rows = Environment().from_source(view.to_source()).to_arrow()
    anew = stream.to_arrow()
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, anew.to_pylist()))


def test_first_rows_follow_from_those_in_the_table_until_too_few_are_left(known: Known) -> None:
    sources, sql = {"t": known}, "select id, k, x from t order by id desc, k, x limit 5"
    query = Query(lambda t: Environment().sql(sql, t=t), sql)
    view = view_of(query, sources, mode="incremental")
    checked(view, query, sources)
    last = [row["id"] for row in known.rows].index(11_999)
    known.change(_rows(random.Random(3), 20_000, 2, 0), {0})
    # The file of the lost row, and that of the new ones.
    assert checked(view, query, sources).rows_read <= 2_002
    # As many rows have come as have gone.
    known.change(_rows(random.Random(4), 30_000, 1, 0), {last - 1})
    assert checked(view, query, sources).rows_read <= 2_003
    places = sorted(range(len(known.rows)), key=lambda place: -known.rows[place]["id"])
    known.change([], set(places[:2]))
    done = checked(view, query, sources)
    assert (done.mode, done.rows_read >= 4_000) == ("incremental", True)

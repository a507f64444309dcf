"""After any changes of its sources, a view is what DuckDB computes from their rows."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.views.tables import Known, Query, Row, checked, view_of
from volley import avg, col, count, max_, min_, sum_

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "key": pa.float64(),
        "price": pa.float64(),
        "cents": pa.int32(),
        "amount": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
        "place": pa.struct({"x": pa.int32(), "tags": pa.list_(pa.int64())}),
        "labels": pa.map_(pa.string(), pa.int64()),
        "uid": pa.uuid(),
    }
)
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5),
        "name": st.sampled_from(["a", "b", None]),
        "key": st.sampled_from([0.0, -0.0, float("nan"), 1.0, None]),
        # Sums of these are exact in any order, but for those of the large ones.
        "price": st.sampled_from([1.5, -2.25, 0.0, -0.0, None, 1e16, -1e16, float("inf"), float("nan")]),
        "cents": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "amount": st.one_of(st.none(), st.integers(-(10**9), 10**9).map(lambda n: Decimal(n) / 100)),
        "tags": st.sampled_from([None, [], ["a"], ["a", None]]),
        "place": st.sampled_from([None, {"x": 1, "tags": None}, {"x": None, "tags": [1, 2]}]),
        "labels": st.sampled_from([None, [], [("a", 1), ("b", None)]]),
        "uid": st.sampled_from([None, bytes(16), b"\xff" * 16]),
    }
)

QUERIES = {
    "aggregates": Query(
        lambda orders: (
            orders.filter(col("id") > 0)
            .key_by("name")
            .aggregate(
                n=count(),
                known=count("price"),
                cents=sum_("cents"),
                amount=sum_("amount"),
                low=min_("price"),
                high=max_("price"),
                least=min_("name"),
                mean=avg("cents"),
            )
        ),
        "select name, count(*) n, count(price) known, sum(cents)::bigint cents, sum(amount) amount, min(price) low, "
        "max(price) high, min(name) least, avg(cents) mean from orders where id > 0 group by name",
    ),
    "computed keys": Query(
        lambda orders: orders.key_by("key", half=col("id") % 2).aggregate(amount=sum_(col("amount") * 2)),
        "select key + 0.0 as key, id % 2 as half, sum(amount * 2) amount from orders group by all",
    ),
    "all in one group": Query(
        lambda orders: orders.key_by().aggregate(n=count(), low=min_("cents"), total=sum_("cents")),
        "select count(*) n, min(cents) low, sum(cents)::bigint total from orders",
    ),
    "rows": Query(
        lambda orders: orders.filter(col("id") > 1).select(
            "name", "key", (col("id") + 1).alias("next"), "tags", "place", "labels", "uid"
        ),
        "select name, key, id + 1 as next, tags, place, labels, uid from orders where id > 1",
    ),
    "distinct": Query(
        lambda orders: orders.select("name", "cents").deduplicate("name", "cents"),
        "select distinct name, cents from orders",
    ),
    "union": Query(
        lambda orders: (
            orders.select("name", "cents")
            .union(orders.filter(col("id") > 2).select("cents", "name"))
            .key_by("name")
            .aggregate(n=count(), low=min_("cents"))
        ),
        "select name, count(*) n, min(cents) low from (select name, cents from orders union all "
        "select name, cents from orders where id > 2) group by name",
    ),
    "groups of groups": Query(
        lambda orders: (
            orders.key_by("name", "id")
            .aggregate(n=count(), high=max_("cents"))
            .filter(col("n") > 1)
            .key_by("name")
            .aggregate(ids=count(), high=max_("high"))
        ),
        "select name, count(*) ids, max(high) high from (select name, id, count(*) n, max(cents) high from orders "
        "group by all) where n > 1 group by name",
    ),
}


@st.composite
def changes(draw: st.DrawFn, live: int) -> tuple[list[Row], set[int]]:
    removed = draw(st.sets(st.integers(0, live - 1), max_size=4)) if live else set()
    return draw(st.lists(ROWS, max_size=4)), removed


@pytest.mark.parametrize("version", [2, 3])
@given(data=st.data(), name=st.sampled_from(sorted(QUERIES)))
def test_a_view_is_what_duckdb_computes(version: int, data: st.DataObject, name: str) -> None:
    query = QUERIES[name]
    with tempfile.TemporaryDirectory() as folder:
        orders = Known(Path(folder), SCHEMA, version)
        sources = {"orders": orders}
        view = view_of(query, sources, mode="incremental")
        checked(view, query, sources)
        for _ in range(data.draw(st.integers(1, 4))):
            for _ in range(data.draw(st.integers(0, 2))):
                if data.draw(st.booleans()):
                    orders.change(*data.draw(changes(len(orders.rows))))
                elif orders.rows:
                    orders.rewrite()
            done = checked(view, query, sources)
            assert done.mode in ("incremental", "none")
        orders.files.close()

"""Views over joins: whichever side changes, a view is what DuckDB computes from both sides' rows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import nightly
from tests.views.tables import Known, Query, Row, checked, view_of
from volley import MaterializedView, MemorySource, PlanError, col, count, max_, sum_
from volley.iceberg import IcebergSinkConfig
from volley.iceberg.views.costs import COSTS, Measured, Measures

ORDERS = pa.schema(
    {"id": pa.int32(), "customer": pa.int32(), "cents": pa.int64(), "time": pa.int64(), "owner": pa.uuid()}
)
CUSTOMERS = pa.schema(
    {
        **{"customer": pa.int64(), "country": pa.string(), "since": pa.int64(), "uid": pa.uuid()},
        **{"tags": pa.list_(pa.string()), "labels": pa.map_(pa.string(), pa.int64())},
    }
)
KEYS = st.one_of(st.none(), st.integers(0, 3))
UIDS = st.one_of(st.none(), st.integers(0, 3).map(lambda number: bytes(15) + bytes([number])))
ORDER: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9),
        "customer": KEYS,
        "cents": st.integers(0, 99),
        "time": st.one_of(st.none(), st.integers(0, 9)),
        "owner": UIDS,
    }
)
CUSTOMER: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "customer": KEYS,
        "country": st.sampled_from(["NO", "SE", None]),
        "since": st.integers(0, 9),
        "uid": UIDS,
        "tags": st.sampled_from([None, [], ["a", None]]),
        "labels": st.sampled_from([None, [], [("a", None)]]),
    }
)
QUERIES = {
    "inner": Query(
        lambda orders, customers: orders.join(customers, on="customer"),
        "select id, customer, cents, time, country, since, uid, tags, labels from orders join customers "
        "using (customer)",
    ),
    "by a uuid": Query(
        lambda orders, customers: orders.join(customers, on={"owner": "uid"}, how="left", columns=["country", "tags"]),
        "select id, cents, owner, country, tags from orders left join customers on owner::text = uid::text",
    ),
    "left": Query(
        lambda orders, customers: orders.filter(col("cents") > 20).join(customers, "customer", "left", suffix="_2"),
        "select id, orders.customer, cents, time, country country_2, since since_2 from orders left join customers "
        "using (customer) where cents > 20",
    ),
    "groups by a column of the table": Query(
        lambda orders, customers: (
            orders.join(customers, on="customer", columns=["country"])
            .key_by("country")
            .aggregate(n=count(), cents=sum_("cents"), largest=max_("cents"))
        ),
        "select country, count(*) n, sum(cents)::bigint cents, max(cents) largest from orders join customers "
        "using (customer) group by country",
    ),
    "groups of a left join": Query(
        lambda orders, customers: (
            orders.join(customers, on="customer", how="left").key_by("country", "id").aggregate(largest=max_("cents"))
        ),
        "select country, id, max(cents) largest from orders left join customers using (customer) group by all",
    ),
    "as of": Query(
        lambda orders, customers: orders.join(
            customers, "customer", "left", as_of=("time", "since"), columns=["since"]
        ),
        "select o.id, o.customer, o.cents, o.time, max(since) since "
        "from (select *, row_number() over () r from orders) o "
        "left join customers c on o.customer = c.customer and c.since <= o.time "
        "group by o.r, o.id, o.customer, o.cents, o.time",
    ),
}


def changes(data: st.DataObject, table: Known, rows: st.SearchStrategy[Row]) -> None:
    if table.rows and data.draw(st.integers(0, 4)) == 0:
        table.rewrite()
        return
    live = len(table.rows)
    removed = data.draw(st.sets(st.integers(0, live - 1), max_size=3)) if live else set()
    table.change(data.draw(st.lists(rows, max_size=3)), removed)


@pytest.mark.parametrize("version", [2, nightly(3)])
@given(data=st.data(), name=st.sampled_from(sorted(QUERIES)))
def test_a_view_of_a_join_is_what_duckdb_computes(version: int, data: st.DataObject, name: str) -> None:
    query = QUERIES[name]
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"orders": ORDERS, "customers": CUSTOMERS}
        sources = {name: Known(Path(folder, name), schema, version) for name, schema in kinds.items()}
        made = MaterializedView(
            "view",
            query.stream(sources["orders"].stream, sources["customers"].files.ref),
            IcebergSinkConfig.from_table(sources["orders"].files.ref.beside("view")),
            mode="incremental",
        )
        checked(made, query, sources)
        for _ in range(data.draw(st.integers(1, 4))):
            for table, rows in ((sources["orders"], ORDER), (sources["customers"], CUSTOMER)):
                if data.draw(st.booleans()):
                    changes(data, table, rows)
            assert checked(made, query, sources).mode in ("incremental", "none")
        for source in sources.values():
            source.files.close()


def test_uuids_are_keys_of_a_join(tmp_path: Path) -> None:
    ids = [UUID(int=1), UUID(int=2**100), None]
    orders = Known(tmp_path / "a", pa.schema({"id": pa.uuid(), "n": pa.int64()}))
    names = Known(tmp_path / "b", pa.schema({"id": pa.uuid(), "name": pa.string()}))
    orders.change([{"id": id, "n": n} for n, id in enumerate(ids)])
    names.change([{"id": id, "name": "old"} for id in ids])
    sources = {"orders": orders, "names": names}
    query = Query(
        lambda orders, names: orders.join(names, "id", "left").key_by("id").aggregate(n=max_("n"), name=max_("name")),
        # DuckDB can't join Arrow tables by UUIDs.
        "select orders.id, max(n) n, max(name) as name from orders left join names on orders.id::text = names.id::text "
        "group by orders.id",
    )
    into = IcebergSinkConfig.from_table(orders.files.ref.beside("view"))
    view = MaterializedView("view", query.stream(orders.stream, names.files.ref), into, mode="incremental")
    checked(view, query, sources)
    names.change([{"id": ids[0], "name": "new"}], [0])
    orders.change([{"id": ids[1], "n": 9}], [1])
    assert checked(view, query, sources).mode == "incremental"
    for table in sources.values():
        table.files.close()


def test_a_table_that_is_not_iceberg(tmp_path: Path) -> None:
    orders = Known(tmp_path, ORDERS)
    query = Query(lambda orders: orders.join(MemorySource([{"customer": 1, "name": "a"}]), on="customer"), "")
    with pytest.raises(PlanError, match="join it with an Iceberg table"):
        view_of(query, {"orders": orders})
    table = orders.files.ref
    for joined, message in (
        (lambda orders: orders.join(table, on="customer", as_of="at"), "snapshots that expire"),
        (lambda orders: orders.join(orders, on="customer", within=1, time="at"), "step inner join of streams"),
    ):
        with pytest.raises(PlanError, match=message):
            view_of(Query(joined, ""), {"orders": orders})
    orders.files.close()


def test_the_plan_of_a_join(tmp_path: Path) -> None:
    orders, customers = Known(tmp_path / "a", ORDERS), Known(tmp_path / "b", CUSTOMERS)
    query = Query(lambda orders: orders.join(customers.files.ref, on="customer"), "")
    plan = view_of(query, {"orders": orders}).explain()
    assert [step.depth for step in plan.steps] == [0, 1, 1]
    assert "both read by these keys" in plan.steps[0].how
    for table in (orders, customers):
        table.files.close()


@pytest.mark.parametrize(("how", "reads"), [("inner", 40 + 3), ("left", 40 + 3 + 40 + 40)])
def test_changed_rows_of_an_inner_joins_table_are_not_read_again(tmp_path: Path, how: str, reads: int) -> None:
    """Only where orders without a customer are kept, all customers of a changed key matter."""
    orders, customers = Known(tmp_path / "a", ORDERS), Known(tmp_path / "b", CUSTOMERS)
    sources = {"orders": orders, "customers": customers}
    orders.change([{"id": id, "customer": 1, "cents": id, "time": 1, "owner": None} for id in range(3)])
    plain = {"country": "NO", "since": 0, "uid": None, "tags": None, "labels": None}
    customers.change([{"customer": number % 20, **plain} for number in range(40)])
    query = Query(
        lambda orders, customers: orders.join(customers, "customer", how, columns=["country"]),
        f"select orders.*, country from orders {how} join customers using (customer)",
    )
    into = IcebergSinkConfig.from_table(orders.files.ref.beside("view"))
    view = MaterializedView("view", query.stream(orders.stream, customers.files.ref), into, mode="incremental")
    checked(view, query, sources)
    customers.change([], [21])
    done = checked(view, query, sources)
    assert (done.mode, done.rows_read) == ("incremental", reads)
    for table in sources.values():
        table.files.close()


def test_a_refresh_by_changes_that_reads_too_many_rows_is_given_up(tmp_path: Path) -> None:
    orders, customers = Known(tmp_path / "a", ORDERS), Known(tmp_path / "b", CUSTOMERS)
    sources = {"orders": orders, "customers": customers}
    order = {"customer": 1, "cents": 5, "time": 1, "owner": None}
    orders.change([{"id": id, **order} for id in range(50)])
    customers.change([{"customer": 1, "country": "NO", "since": 0, "uid": None, "tags": None, "labels": None}])
    query = Query(
        lambda orders, customers: (
            orders.join(customers, "customer", columns=["country"])
            .key_by("country")
            .aggregate(n=count())
            .key_by("n")
            .aggregate(countries=count())
        ),
        "select n, count(*) countries from (select country, count(*) n from orders join customers using (customer) "
        "group by all) group by all",
    )
    into = IcebergSinkConfig.from_table(orders.files.ref.beside("view"))
    view = MaterializedView("view", query.stream(orders.stream, customers.files.ref), into, mode="auto")
    checked(view, query, sources)
    # Computing it anew was slow, and a refresh by changes was never tried.
    slow = Measures({"full": Measured(60.0, 51, 1e6)}, "full")
    with into.ref.load().transaction() as transaction:
        transaction.set_properties({COSTS: slow.to_json()})
    customers.change([{**customers.rows[0], "country": "SE"}], [0])
    given_up = checked(view, query, sources)
    assert given_up.mode == "full"
    assert given_up.reason == "by changes it would read at least 52 rows, computed anew 51"
    # The next refresh knows what the changes took, and the rows of the full one are its own.
    known = Measures.of(into.ref.load())
    assert {kind: measured.rows for kind, measured in known.kinds.items()} == {"full": 52, "incremental": 52}
    assert known.again
    for table in sources.values():
        table.files.close()

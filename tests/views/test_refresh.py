"""What a refresh does when its sources, its table or its query are not as it left them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from tests.duck import query
from tests.iceberg.snapshots import disturb
from tests.tiers import some
from tests.views.tables import Known, Query, Row, checked, same, view_of
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    MaterializedView,
    MemorySource,
    PlanError,
    SnapshotExpiredError,
    SnapshotRolledBackError,
    TableReplacedError,
    VolleyError,
    approx_distinct,
    avg,
    col,
    count,
    max_,
    min_,
    now,
    row_number,
    sum_,
    tumbling,
)
from volley.iceberg import (
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    SnapshotManager,
    Upsert,
    orphan_files,
)

SCHEMA = pa.schema({"id": pa.int64(), "customer": pa.string(), "price": pa.int64(), "weight": pa.float64()})
PER_CUSTOMER = Query(
    lambda orders: orders.key_by("customer").aggregate(n=count(), total=sum_("price"), low=min_("price")),
    "select customer, count(*) n, sum(price)::bigint total, min(price) low from orders group by customer",
)

BY_CUSTOMER = Query(
    lambda orders: orders.key_by("customer").aggregate(
        n=count(), total=sum_("price"), mean=avg("price"), low=min_("price"), high=max_("weight")
    ),
    "select customer, count(*) n, sum(price)::bigint total, avg(price) mean, min(price) low, max(weight) high "
    "from orders group by customer",
)

BY_NUMBER = Query(
    lambda orders: orders.key_by(key=col("id") % 12_000).aggregate(
        n=count(), total=sum_("price"), low=min_("price"), high=max_("price")
    ),
    "select id % 12_000 as key, count(*) n, sum(price)::bigint total, min(price) low, max(price) high "
    "from orders group by id % 12_000",
)


def order(number: int, customer: str = "a", price: int = 1, weight: float = 1.0) -> Row:
    return {"id": number, "customer": customer, "price": price, "weight": weight}


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Known]:
    table = Known(tmp_path, SCHEMA)
    table.change([order(n, "ab"[n % 2], n) for n in range(10)])
    yield table
    table.files.close()


@pytest.fixture
def view(orders: Known) -> MaterializedView:
    made = view_of(PER_CUSTOMER, {"orders": orders})
    checked(made, PER_CUSTOMER, {"orders": orders})
    return made


def snapshots(view: MaterializedView) -> list[int]:
    return [snapshot.snapshot_id for snapshot in view.into.ref.load().snapshots()]


def strict(view: MaterializedView) -> MaterializedView:
    return MaterializedView(view.name, view.query, view.into, strict=True)


def test_rows_that_are_only_copied_do_not_change_the_view(orders: Known, view: MaterializedView) -> None:
    before = snapshots(view)
    orders.rewrite()
    done = checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    assert (done.mode, done.snapshot_id, snapshots(view)) == ("incremental", None, before)
    IcebergTable(orders.files.ref).compact(rewrite_all=True)
    assert view.refresh("incremental").rows_read == 0
    # The cursor has moved on: nothing is left to do, and older snapshots may expire.
    assert view.refresh().mode == "none"
    assert view.status().is_current


@pytest.mark.parametrize(
    "query",
    [
        Query(
            lambda t: t.key_by("k").aggregate(n=count(), low=min_("u"), high=max_("u"), some=count("u")),
            'select k, count(*) n, min(u) low, max(u) high, count(u) "some" from t group by k',
        ),
        Query(lambda t: t.key_by("k", "u").aggregate(n=count()), "select k, u, count(*) n from t group by k, u"),
        Query(lambda t: t.select("u").deduplicate("u"), "select distinct u from t"),
        Query(lambda t: t.key_by().aggregate(low=min_("u"), high=max_("u")), "select min(u) low, max(u) high from t"),
    ],
    ids=["extremes", "keys", "distinct", "one group"],
)
def test_uuids_are_keys_and_extremes(query: Query, tmp_path: Path) -> None:
    rng = random.Random(1)
    ids = [None, *(UUID(int=rng.getrandbits(128)) for _ in range(12))]
    table = Known(tmp_path, pa.schema({"k": pa.uuid(), "u": pa.uuid()}))
    table.change([{"k": rng.choice(ids[:4]), "u": rng.choice(ids)} for _ in range(60)])
    view = view_of(query, {"t": table})
    checked(view, query, {"t": table})
    for _ in range(4):
        table.change([{"k": rng.choice(ids[:5]), "u": rng.choice(ids)} for _ in range(3)], rng.sample(range(50), 12))
        assert checked(view, query, {"t": table}, "incremental").mode == "incremental"
    table.files.close()


def test_changes_of_other_columns_do_not_change_the_view(orders: Known, view: MaterializedView) -> None:
    orders.change([{**row, "weight": 9.0} for row in orders.rows[:3]], range(3))
    assert checked(view, PER_CUSTOMER, {"orders": orders}, "incremental").snapshot_id is None


def test_each_refresh_is_one_snapshot_that_says_what_it_stands_for(orders: Known, view: MaterializedView) -> None:
    orders.change([order(10, "c")])
    orders.change([order(11, "c")], [0])
    done = checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    head = view.into.ref.load().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert len(snapshots(view)) == 2
    assert done.snapshot_id == head.snapshot_id
    assert str(done.sources["db.t"]) in (head.summary["volley.view.cursor"] or "")
    assert head.summary["volley.view"] == "view"


def rolled_back(orders: Known) -> None:
    orders.files.table.refresh()
    first = orders.files.table.snapshots()[0].snapshot_id
    SnapshotManager(orders.files.ref).rollback_to(first)


def test_a_source_that_was_rolled_back(orders: Known, view: MaterializedView) -> None:
    before = list(orders.rows)
    orders.change([order(10)], [1])
    view.refresh()
    rolled_back(orders)
    with pytest.raises(SnapshotRolledBackError):
        strict(view).refresh()
    assert view.explain().mode == "full"
    done = view.refresh()
    assert done.mode == "full"
    assert "rolled back" in done.reason or "is before" in done.reason
    assert sum(row["n"] for row in view.into.ref.load().scan().to_arrow().to_pylist()) == len(before)


def test_a_source_whose_snapshots_have_expired(orders: Known, view: MaterializedView) -> None:
    orders.change([order(10)])
    orders.change([order(11)])
    SnapshotManager(orders.files.ref).expire_snapshots(retain_last=1, older_than="2100-01-01")
    orders.files.table.refresh()
    with pytest.raises(SnapshotExpiredError):
        strict(view).refresh()
    done = checked(view, PER_CUSTOMER, {"orders": orders})
    assert done.mode == "full"
    assert "expired" in done.reason


def test_an_expiry_keeps_what_the_next_refresh_needs(orders: Known) -> None:
    """The tag follows the view; without it, as in the test above, the same expiry costs a full refresh."""
    held = IcebergSource(IcebergSourceConfig(orders.files.ref).with_hold())
    into = IcebergSinkConfig.from_table(orders.files.ref.beside("view"))
    view = MaterializedView("view", PER_CUSTOMER.stream(Environment().from_source(held)), into, strict=True)
    checked(view, PER_CUSTOMER, {"orders": orders})
    manager = SnapshotManager(orders.files.ref)
    for number in range(10, 14):
        for change in range(2):
            orders.change([order(10 * number + change, "ab"[change], number)], [number - 10])
        manager.expire_snapshots(retain_last=1, older_than="2100-01-01")
        orders.files.table.refresh()
        # What the view has read before is gone.
        assert len(manager.list_snapshots()) == 3
        assert checked(view, PER_CUSTOMER, {"orders": orders}).mode == "incremental"
        assert view.refresh().mode == "none"
        orders.files.table.refresh()


@pytest.mark.parametrize(("added", "expected"), [(11, 4), (2, 2), (-1, -1)], ids=["beyond", "between", "before"])
def test_a_group_that_loses_all_extremes_that_are_known(added: int, expected: int, tmp_path: Path) -> None:
    """A view keeps four of them; the least of the ten that a group has had are gone, and what is added is no less."""
    orders = Known(tmp_path, SCHEMA)
    orders.change([order(n, "a", n) for n in range(10)])
    made = view_of(PER_CUSTOMER, {"orders": orders}, mode="incremental")
    checked(made, PER_CUSTOMER, {"orders": orders})
    orders.change([order(10, "a", added)], [0, 1, 2, 3])
    checked(made, PER_CUSTOMER, {"orders": orders})
    assert made.into.ref.to_arrow()["low"].to_pylist() == [expected]
    orders.files.close()


@pytest.mark.parametrize("refreshes", some([15, 50]))
def test_many_refreshes_are_each_equal_to_the_recomputation(orders: Known, refreshes: int) -> None:
    """Inserts, updates and deletes in turn, of rows that are in many files; extremes and whole groups go, too."""
    dice = random.Random(50)
    view = view_of(BY_CUSTOMER, {"orders": orders}, mode="incremental", strict=True)
    checked(view, BY_CUSTOMER, {"orders": orders})
    for number in range(refreshes):
        live = len(orders.rows)
        removed = set(dice.sample(range(live), min(live, dice.choice([0, 1, 5, 12]))))
        updated = [{**orders.rows[place], "price": dice.randrange(100)} for place in removed if dice.random() < 0.5]
        added = [
            order(100 * number + place, dice.choice("abcdefg"), dice.randrange(100), dice.randrange(8) / 4)
            for place in range(dice.choice([0, 1, 10]))
        ]
        orders.change([*updated, *added], removed)
        assert checked(view, BY_CUSTOMER, {"orders": orders}).mode in ("incremental", "none")


def test_a_source_that_was_made_anew(orders: Known, view: MaterializedView, tmp_path: Path) -> None:
    schema = orders.files.table.schema()
    orders.files.catalog.drop_table("db.t")
    orders.files.table = orders.files.catalog.create_table("db.t", schema)
    orders._places = []
    orders.change([order(1, "z", 5)])
    with pytest.raises(TableReplacedError):
        strict(view).refresh()
    assert checked(view, PER_CUSTOMER, {"orders": orders}).mode == "full"


def test_a_column_of_a_source_that_was_renamed_or_is_another_one(orders: Known, view: MaterializedView) -> None:
    with orders.files.ref.load().update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("price", "cost")
    with pytest.raises(ExpressionError, match="price"):
        view.refresh()
    with orders.files.ref.load().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("price", LongType())
    with pytest.raises(PlanError, match="another one"):
        strict(view).refresh()
    assert view.refresh().mode == "full"
    assert {row["total"] for row in view.into.ref.load().scan().to_arrow().to_pylist()} == {None}


def test_another_writer_changes_the_view(orders: Known, view: MaterializedView) -> None:
    table = view.into.ref.load()
    table.append(table.scan().to_arrow().slice(0, 1))
    orders.change([order(10)])
    with pytest.raises(PlanError, match="another writer"):
        view.refresh()
    assert checked(view, PER_CUSTOMER, {"orders": orders}, "full").mode == "full"
    orders.change([order(11)])
    assert checked(view, PER_CUSTOMER, {"orders": orders}, "incremental").mode == "incremental"


def test_a_table_with_rows_of_its_own_is_not_overwritten(orders: Known, view: MaterializedView) -> None:
    other = MaterializedView("other", view.query, IcebergSinkConfig.from_table(orders.files.ref))
    with pytest.raises(VolleyError):
        other.refresh("full")
    with pytest.raises(PlanError, match="of view 'view'"):
        MaterializedView("other", view.query, view.into).refresh("full")


def test_maintenance_of_the_views_table(orders: Known, view: MaterializedView) -> None:
    for number in range(3):
        orders.change([order(10 + number, "abc"[number], -number)])
        checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    IcebergTable(view.into.ref).compact(rewrite_all=True)
    SnapshotManager(view.into.ref).expire_snapshots(retain_last=1, older_than="2100-01-01")
    orders.change([], [0])
    assert checked(view, PER_CUSTOMER, {"orders": orders}, "incremental").mode == "incremental"


def test_a_changed_query_is_computed_anew(orders: Known, view: MaterializedView) -> None:
    changed = Query(
        lambda orders: (
            orders.filter(col("id") > 2)
            .key_by("customer")
            .aggregate(n=count(), total=sum_("price"), low=min_("price"), high=max_("price"))
        ),
        "select customer, count(*) n, sum(price)::bigint total, min(price) low, max(price) high from orders "
        "where id > 2 group by customer",
    )
    with pytest.raises(PlanError, match="query of view 'view' has changed"):
        view_of(changed, {"orders": orders}, strict=True).refresh()
    done = checked(view_of(changed, {"orders": orders}), changed, {"orders": orders})
    assert (done.mode, "has changed" in done.reason) == ("full", True)
    with pytest.raises(PlanError, match=r"columns that the view's query has not: .*high"):
        view.refresh()


def test_a_refresh_that_is_interrupted_after_its_commit(
    orders: Known, view: MaterializedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(commit: Callable[[], Any]) -> Any:
        commit()
        raise KeyboardInterrupt

    orders.change([order(10, "c")], [0, 1])
    disturb(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        view.refresh()
    assert len(snapshots(view)) == 2
    same(view, PER_CUSTOMER, {"orders": orders})


def test_two_refreshes_at_once(orders: Known, view: MaterializedView, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.change([order(10, "c")], [0, 1])
    others = [view]

    def overtaken(point: str, number: int) -> None:
        if point == "before-view-commit" and others:
            others.pop().refresh("incremental")

    monkeypatch.setattr("volley.iceberg.views.refresh.reach", overtaken)
    done = checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    assert (done.mode, len(snapshots(view))) == ("none", 2)
    assert orphan_files(view.into, 0) == []


def test_a_view_of_a_view(orders: Known, view: MaterializedView) -> None:
    large = Environment().from_source(view.to_source()).filter(col("n") > 4).select("customer", "total")
    second = MaterializedView("large", large, IcebergSinkConfig.from_table(orders.files.ref.beside("large")))
    query = Query(
        lambda orders: large,
        "select customer, sum(price)::bigint total from orders group by customer having count(*) > 4",
    )
    checked(second, query, {"orders": orders})
    for change in (([order(10, "c")] * 5, []), ([], [0, 2]), ([order(11, "a", 3)], [1])):
        orders.change(*change)
        view.refresh("incremental")
        assert checked(second, query, {"orders": orders}, "incremental").mode == "incremental"


def test_a_lost_extreme_has_a_successor_until_all_that_are_kept_are_gone(tmp_path: Path) -> None:
    table = Known(tmp_path, SCHEMA)
    made = view_of(BY_CUSTOMER, {"orders": table})
    table.change([order(n, price=n, weight=float(n)) for n in range(12)])
    checked(made, BY_CUSTOMER, {"orders": table})
    recomputed = []
    for _ in range(5):
        table.change([], [0, len(table.rows) - 1])  # the least price and the greatest weight
        recomputed.append(checked(made, BY_CUSTOMER, {"orders": table}, "incremental").groups_recomputed)
    assert recomputed == [0, 0, 0, 1, 0]
    # What was added is among them: a new least value, and one beyond those that are known.
    table.change([order(20, price=-1, weight=50.0), order(21, price=30, weight=-50.0)], [0])
    assert checked(made, BY_CUSTOMER, {"orders": table}, "incremental").groups_recomputed == 0


def test_groups_that_are_scattered_over_a_large_file(tmp_path: Path) -> None:
    """Their values are looked up in pages of plain numbers; those of groups with fewer extremes than are kept, not."""
    table, number = Known(tmp_path, SCHEMA), 12_000
    made = view_of(BY_NUMBER, {"orders": table})
    table.change([order(n, "", n % number * 7919 % 20_011, n / 4) for n in range(3 * number + 100)])
    checked(made, BY_NUMBER, {"orders": table})
    for step in range(3):
        table.change([order(n, "", -n, 0.5) for n in range(step, 200, 3)], range(step, 3 * number, 4_001))
        assert checked(made, BY_NUMBER, {"orders": table}, "incremental").mode == "incremental"


def test_floating_sums_are_exact_after_deletes(tmp_path: Path) -> None:
    query = Query(
        lambda orders: orders.key_by("customer").aggregate(total=sum_("weight")),
        "select customer, sum(weight) total from orders group by customer",
    )
    table = Known(tmp_path, SCHEMA)
    made = view_of(query, {"orders": table})
    table.change([order(1, weight=1e16), order(2, weight=1.0)])
    checked(made, query, {"orders": table})
    table.change([order(3, weight=float("inf"))], [0])
    checked(made, query, {"orders": table}, "incremental")
    table.change([], [1])
    assert checked(made, query, {"orders": table}, "incremental").groups_recomputed == 1
    table.files.close()


def test_rows_with_nested_columns_and_uuids_are_removed(tmp_path: Path) -> None:
    types = {"tags": pa.list_(pa.string()), "labels": pa.map_(pa.string(), pa.int64()), "uid": pa.uuid()}
    table = Known(tmp_path, pa.schema({"id": pa.int64(), "place": pa.struct({"x": pa.int32()}), **types}))
    query = Query(lambda orders: orders, "select * from orders")
    made = view_of(query, {"orders": table})
    row: Row = {"id": 1, "place": {"x": 1}, "tags": ["a", None], "labels": [("a", None)], "uid": bytes(16)}
    empty: Row = {"id": 2, "place": None, "tags": None, "labels": None, "uid": None}
    table.change([row, row, empty, {**row, "tags": None}])
    checked(made, query, {"orders": table})
    for removed in ({0, 2}, {0, 1}):
        table.change([], removed)
        checked(made, query, {"orders": table}, "incremental")
    table.change([empty, row])
    checked(made, query, {"orders": table}, "incremental")
    table.change([], {0})
    checked(made, query, {"orders": table}, "incremental")
    table.files.close()


def test_a_union_of_an_int_and_a_long_column(orders: Known) -> None:
    query = Query(
        lambda orders: orders.select(n=col("price").cast("int")).union(orders.select(n=col("id"))),
        "select price n from orders union all select id from orders",
    )
    made = view_of(query, {"orders": orders})
    checked(made, query, {"orders": orders})
    orders.change([order(20, price=7)], [0])
    checked(made, query, {"orders": orders}, "incremental")


def test_a_sum_beyond_64_bits(orders: Known, view: MaterializedView) -> None:
    orders.change([order(10, "a", 2**62), order(11, "a", 2**62)])
    with pytest.raises(ExpressionError, match="beyond 64 bits"):
        view.refresh("incremental")
    orders.change([], [10])
    checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")


def test_a_sum_of_decimals_beyond_38_digits(tmp_path: Path) -> None:
    schema = pa.schema({"customer": pa.string(), "cost": pa.decimal128(38, 18)})
    table = Known(tmp_path, schema)
    query = Query(
        lambda orders: orders.key_by("customer").aggregate(total=sum_("cost"), mean=avg("cost")),
        "select customer, sum(cost) total, avg(cost) mean from orders group by customer",
    )
    made = view_of(query, {"orders": table})
    table.change([{"customer": "a", "cost": Decimal("0.57")}])
    checked(made, query, {"orders": table})
    # In 128 bits the sum of these is a small negative number.
    table.change([{"customer": "a", "cost": Decimal("6e19")}] * 5)
    with pytest.raises(ExpressionError, match=r"more digits than decimal\(38, 18\)"):
        made.refresh("incremental")
    table.change([], [1, 2, 3, 4])
    checked(made, query, {"orders": table}, "incremental")
    table.files.close()


def test_the_least_number_of_64_bits_is_taken_away_from_a_sum(orders: Known, view: MaterializedView) -> None:
    least, greatest = -(2**63), 2**63 - 1
    orders.change([order(10, "c", least), order(11, "c", 5), order(12, "d", least), order(13, "d", greatest)])
    checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    orders.change([order(14, "d", -1)], [10, 12])
    checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")


def test_many_refreshes_leave_few_files(orders: Known, view: MaterializedView) -> None:
    for number in range(12):
        orders.change([order(100 + number, f"c{number}")], [0])
        checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    table = view.into.ref.load()
    assert len(list(table.scan().plan_files())) == 1


def test_what_a_view_can_not_have(orders: Known) -> None:
    into = IcebergSinkConfig.from_table(orders.files.ref.beside("view"))
    refused: list[tuple[Callable[[], Any], type[VolleyError], str]] = [
        (lambda: Environment().from_source(MemorySource([order(1)])), PlanError, "only an Iceberg table"),
        (lambda: orders.stream.key_by("id").aggregate(n=approx_distinct("price")), PlanError, "approx_distinct"),
        (lambda: orders.stream.limit(3), PlanError, "limit 3"),
        (
            lambda: orders.stream.key_by("id").window(tumbling("1m"), on="at").aggregate(n=count()),
            PlanError,
            "windows of event time",
        ),
        (lambda: orders.stream.filter(col("at") > now() - timedelta(days=1)), PlanError, "change with the time"),
        (lambda: orders.stream.key_by("id").aggregate(latest=max_(now())), PlanError, "change with the time"),
        (lambda: orders.stream.with_processing_time("seen"), PlanError, "change with the time"),
        (
            lambda: orders.stream.key_by("id").order_by("price", ttl="1d").with_columns(n=row_number()),
            PlanError,
            "it has all rows",
        ),
    ]
    for build, error, text in refused:
        with pytest.raises(error, match=text):
            MaterializedView("view", build(), into)
    with pytest.raises(PlanError, match="first is not determined"):
        MaterializedView("view", orders.stream.deduplicate("id"), into).refresh()
    with pytest.raises(PlanError, match="other rows for the same ones"):
        MaterializedView("view", orders.stream.map(dict), into, strict=True)
    with pytest.raises(ConfigError, match="commit_mode"):
        MaterializedView("view", orders.stream, into.with_commit_mode(Upsert(["id"])))
    with pytest.raises(ConfigError, match="mode"):
        MaterializedView("view", orders.stream, into, mode="often")  # type: ignore[arg-type]


def test_steps_in_python_are_computed_anew(orders: Known) -> None:
    query = Query(lambda orders: orders.map(dict).select("id"), "select id from orders")
    made = view_of(query, {"orders": orders})
    checked(made, query, {"orders": orders})
    orders.change([order(10)])
    done = checked(made, query, {"orders": orders})
    assert (done.mode, "Python function" in done.reason) == ("full", True)
    assert not made.explain().steps[1].incremental


def test_a_followed_view(orders: Known, view: MaterializedView) -> None:
    with view.follow(interval=0.05) as following:
        orders.change([order(10, "c")])
        while not view.status().is_current:
            assert not following.wait(0.05)
    assert not following.is_running
    status = following.status()
    assert (status.view, status.state, status.reason) == (view.name, "stopped", None)
    assert status.refreshes[0]["mode"] == "full"
    assert following.last is not None
    assert json.loads(json.dumps(status.to_dict()))["refreshes"][-1]["ended"] <= following.last.ended.isoformat()
    same(view, PER_CUSTOMER, {"orders": orders})
    failing = MaterializedView(view.name, view.query, IcebergSinkConfig.from_table(orders.files.ref))
    follower = failing.follow(interval=0.05)
    with pytest.raises(VolleyError):
        follower.wait(120)
    assert isinstance(follower.exception, VolleyError)
    status = follower.status()
    assert (status.state, status.reason) == ("failed", follower.exception.message)


def set_property(view: MaterializedView, name: str, value: str) -> None:
    with view.into.ref.load().transaction() as transaction:
        transaction.set_properties({name: value})


def set_costs(view: MaterializedView, incremental: float, full: float, last: str) -> None:
    kinds = {
        kind: {"seconds": factor, "rows": 7, "factor": factor, "start": factor}
        for kind, factor in (("incremental", incremental), ("full", full))
    }
    set_property(view, "volley.view.costs", json.dumps({"kinds": kinds, "last": last}))


def costs(view: MaterializedView) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(view.into.ref.load().properties["volley.view.costs"])
    return known


def test_what_refreshes_took_is_kept(orders: Known, view: MaterializedView) -> None:
    assert costs(view)["kinds"].keys() == {"full"}
    orders.change([order(10, "c")])
    done = checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    known = costs(view)
    assert (known["last"], known["kinds"]["incremental"]["rows"]) == ("incremental", done.rows_read)
    assert 0 < known["kinds"]["incremental"]["seconds"] < done.seconds
    head = view.into.ref.load().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert json.loads(head.summary["volley.view.costs"] or "") == known


def test_rows_to_read_for_deleted_ones_are_those_of_their_pages(tmp_path: Path) -> None:
    table = Known(tmp_path, SCHEMA)
    made = view_of(PER_CUSTOMER, {"orders": table})
    table.change([order(n) for n in range(100_000)])
    made.refresh()
    table.change([], [*range(500), *range(45_000, 45_500)])
    plan = made.explain()
    assert (plan.changed_rows, plan.all_rows) == (40_000, 99_000)
    # They are counted from the last refresh on: a later one has none of them.
    checked(made, PER_CUSTOMER, {"orders": table})
    table.change([], [98_999])
    assert made.explain().changed_rows == 20_000
    table.files.close()


@pytest.mark.parametrize("dear", ["incremental", "full"])
def test_the_cheaper_refresh_by_what_earlier_ones_took(orders: Known, view: MaterializedView, dear: str) -> None:
    """Estimated without them, either takes a few milliseconds, so the factors decide."""
    cheap = "full" if dear == "incremental" else "incremental"
    set_costs(view, **{"incremental": 1.0, "full": 1.0, dear: 100.0}, last=dear)
    orders.change([order(10, "c")], [0])
    plan = view.explain()
    assert plan.mode == cheap
    assert {estimate.mode: estimate.last_seconds for estimate in plan.estimates} == {dear: 100.0, cheap: 1.0}
    assert f"{dear} refresh: about" in str(plan)
    assert "(the last one: 1e+02 s, 7 rows)" in str(plan)
    done = checked(view, PER_CUSTOMER, {"orders": orders})
    assert done.mode == cheap
    assert ("it is cheaper, about" in done.reason) == (cheap == "full")
    assert costs(view)["last"] == cheap
    # The old measurement fades, so that its kind is tried again some day.
    assert 1 < costs(view)["kinds"][dear]["factor"] < 100


def test_damaged_costs_are_none(orders: Known, view: MaterializedView) -> None:
    orders.change([order(10, "c")])
    measured = '{{"kinds": {{"full": {{"seconds": 1.0, "rows": 1, "factor": {}}}}}, "last": "full"}}'
    for damaged in (
        *("", "{", "[]", "null", '{"kinds": {}, "last": "often"}', '{"kinds": {"often": {}}, "last": null}'),
        *(measured.format(factor) for factor in ("-1.0", "0.0", "NaN", "1e999", '"much"', "null")),
    ):
        set_property(view, "volley.view.costs", damaged)
        assert {estimate.last_seconds for estimate in view.explain().estimates} == {None}, damaged
    done = checked(view, PER_CUSTOMER, {"orders": orders}, "incremental")
    assert costs(view)["kinds"].keys() == {done.mode}


def test_a_damaged_cursor_is_named(orders: Known, view: MaterializedView) -> None:
    for damaged in ("", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "sources": 3}'):
        set_property(view, "volley.view.cursor", damaged)
        for fails in (view.refresh, view.explain, view.status):
            with pytest.raises(PlanError, match=r"property 'volley.view.cursor' of table db.view.* is damaged"):
                fails()
    view.into.ref.load_catalog().drop_table("db.view")
    checked(view, PER_CUSTOMER, {"orders": orders})


def test_how_far_a_view_is(orders: Known, view: MaterializedView) -> None:
    assert view.status().is_current
    orders.change([order(10)])
    orders.change([order(11)])
    (source,) = view.status().sources
    assert (source.table, source.snapshots_behind) == ("db.t", 2)
    assert source.behind.total_seconds() > 0
    plan = str(view.explain())
    assert "groups with changed rows" in plan
    assert "read IcebergSource('db.t')" in plan


def test_groups_keep_the_ids_of_their_rows(orders: Known) -> None:
    tables = {"orders": orders}
    view = view_of(PER_CUSTOMER, tables)
    view = replace(view, into=view.into.with_table_properties({"format-version": "3"}))
    before, given = dict[str, int](), dict[int, str]()
    for changed in ([], [order(20, "a", 3)], [order(21, "c")], [order(22, "b", -5), order(23, "d")]):
        orders.change(changed)
        checked(view, PER_CUSTOMER, tables, "incremental" if before else None)
        location = view.into.ref.load().metadata_location
        now = dict(query(f"select customer, _row_id from iceberg_scan('{location}')").fetchall())
        assert before.items() <= now.items()
        assert all(given.setdefault(row_id, customer) == customer for customer, row_id in now.items())
        before = now
    assert before.keys() == {*"abcd"}

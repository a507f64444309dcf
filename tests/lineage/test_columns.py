"""From which columns of its sources each column comes, for every kind of step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from volley import (
    Environment,
    MemorySource,
    avg,
    col,
    count,
    lag,
    lit,
    rolling,
    row_number,
    session_start,
    sql,
    sum_,
    tumbling,
    when,
)
from volley.lineage.columns import Columns, columns_of
from volley.plan.keyed_nodes import Keyed
from volley.plan.nodes import Apply, Join, Node, Read

SCHEMA = "id long, price double, name string, at timestamp, tags array<string>"
ORDERS = MemorySource([], SCHEMA, name="orders")
ITEMS = MemorySource([], "id long, label string, made timestamp", name="items")
orders = Environment().from_source(ORDERS)
items = Environment().from_source(ITEMS)


def names(node: Node) -> Sequence[str]:
    """What a job's compiled plan tells."""
    match node:
        case Read():
            return [part.split()[0] for part in str(node.source.schema).split(", ")]  # type: ignore[attr-defined]
        case Apply():
            return ["made_up"]
        case Join():
            return [name + node.join.suffix for name in node.join.added(["id", "label", "made"])]
    raise AssertionError(node)


def lineage(stream: Any) -> tuple[dict[str, set[str]], set[str]]:
    """For each column what it comes from, and what all rows depend on: source.column, how, and ``!`` if masked."""
    columns: Columns = columns_of(stream._node, names)
    sources = {id(ORDERS): "orders", id(ITEMS): "items"}

    def texts(origins: Any) -> set[str]:
        return {
            f"{sources.get(origin.source, 'table')}.{origin.column} {origin.how}{'!' if origin.masking else ''}"
            for origin in origins
        }

    return {name: texts(origins) for name, origins in columns.values.items()}, texts(columns.rows)


def test_an_expression() -> None:
    stream = orders.select(
        "id",
        (col("price") * 2 + col("id")).alias("sum"),
        col("name").sha256().alias("hash"),
        when(col("price") > 1).then(col("name")).otherwise(lit("none")).alias("label"),
        lit(1).alias("one"),
        sql("upper(name)").alias("upper"),
    )
    assert lineage(stream) == (
        {
            "id": {"orders.id IDENTITY"},
            "sum": {"orders.price TRANSFORMATION", "orders.id TRANSFORMATION"},
            "hash": {"orders.name TRANSFORMATION!"},
            "label": {"orders.price CONDITIONAL", "orders.name TRANSFORMATION"},
            "one": set(),
            "upper": {"orders.name TRANSFORMATION"},
        },
        set(),
    )


def test_steps_one_after_the_other() -> None:
    stream = (
        orders.filter(col("price") > 0)
        .with_column("twice", col("price") * 2)
        .rename({"name": "label"})
        .drop("tags", "at", "price")
        .with_column("label", col("label").str.upper())
        .filter(col("twice") > 1)
    )
    assert lineage(stream) == (
        {
            "id": {"orders.id IDENTITY"},
            "label": {"orders.name TRANSFORMATION"},
            "twice": {"orders.price TRANSFORMATION"},
        },
        {"orders.price FILTER"},
    )


def test_what_only_python_knows_may_use_every_column() -> None:
    everything = {f"orders.{name} TRANSFORMATION" for name in ("id", "price", "name", "at", "tags")}
    assert lineage(orders.map(lambda row: row, schema="made_up long"))[0] == {"made_up": everything}


def test_items_of_a_list() -> None:
    assert lineage(orders.explode("tags").select("id", "tags"))[0] == {
        "id": {"orders.id IDENTITY"},
        "tags": {"orders.tags TRANSFORMATION"},
    }


def test_a_union_has_what_each_of_its_streams_has() -> None:
    both = orders.select("id").union(items.select((col("id") + 1).alias("id")))
    assert lineage(both) == ({"id": {"orders.id IDENTITY", "items.id TRANSFORMATION"}}, set())


def test_a_join_with_a_table() -> None:
    joined = orders.select("id", "price").join(
        MemorySource([], "id long, label string", name="labels"), on="id", columns=["label"]
    )
    assert lineage(joined) == (
        {"id": {"orders.id IDENTITY"}, "price": {"orders.price IDENTITY"}, "label": {"table.label IDENTITY"}},
        {"orders.id JOIN", "table.id JOIN"},
    )


def test_a_join_of_streams() -> None:
    joined = orders.select("id", "at").join(
        items, on="id", within=("0s", "1h"), time=("at", "made"), lateness="1m", columns=["label"], suffix="_item"
    )
    assert lineage(joined) == (
        {"id": {"orders.id IDENTITY"}, "at": {"orders.at IDENTITY"}, "label_item": {"items.label IDENTITY"}},
        {"orders.id JOIN", "orders.at JOIN", "items.id JOIN", "items.made JOIN"},
    )


def test_the_keys_of_a_full_join_are_of_both_streams() -> None:
    joined = orders.select("id", "at").join(
        items, {"id": "label"}, "full", within="1h", time=("at", "made"), columns=["id"], suffix="_item"
    )
    values, _ = lineage(joined)
    assert values == {
        "id": {"orders.id IDENTITY", "items.label IDENTITY"},
        "at": {"orders.at IDENTITY"},
        "id_item": {"items.id IDENTITY"},
    }


def test_windows_of_aggregates() -> None:
    windows = (
        orders.with_column("cents", col("price") * 100)
        .key_by("name")
        .window(tumbling("1m"), on="at", lateness="0s")
        .aggregate(total=col("cents").sum(), n=count(), people=col("id").count_distinct())
    )
    assert lineage(windows) == (
        {
            "window_start": {"orders.at TRANSFORMATION"},
            "window_end": {"orders.at TRANSFORMATION"},
            "name": {"orders.name IDENTITY"},
            "total": {"orders.price AGGREGATION"},
            "n": set(),
            "people": {"orders.id AGGREGATION!"},
        },
        {"orders.name GROUP_BY", "orders.at WINDOW"},
    )


def test_series() -> None:
    ordered = orders.select("id", "price", "at").key_by("id").series(on="at")
    found, _ = lineage(ordered.with_columns(mean=rolling("5m", avg("price")), start=session_start("1h")))
    window = {"orders.id WINDOW", "orders.at WINDOW"}
    assert found["mean"] == {"orders.price AGGREGATION", *window}
    assert found["start"] == {"orders.at TRANSFORMATION", *window}
    assert found["price"] == {"orders.price IDENTITY"}


def test_places_and_neighbours() -> None:
    ordered = orders.select("id", "price", "at").key_by("id").order_by("at desc")
    found, _ = lineage(ordered.with_columns(place=row_number(), before=lag("price"), total=sum_("price")))
    window = {"orders.id WINDOW", "orders.at WINDOW"}
    assert found["place"] == window
    assert found["before"] == {"orders.price TRANSFORMATION", *window}
    assert found["total"] == {"orders.price AGGREGATION", *window}
    assert found["price"] == {"orders.price IDENTITY"}


def test_rows_that_are_left_out() -> None:
    assert lineage(orders.select("id").deduplicate("id"))[1] == {"orders.id GROUP_BY"}
    assert lineage(orders.select("id").limit(5)) == ({"id": {"orders.id IDENTITY"}}, set())


def test_processing_time_is_of_no_column() -> None:
    values, rows = lineage(orders.select("id", "price").with_processing_time("price"))
    assert (values, rows) == ({"id": {"orders.id IDENTITY"}, "price": set()}, set())


def test_changes_from_snapshots() -> None:
    compared = Environment().changes_from_snapshots(ORDERS, "id")
    source = compared._node.input.source  # type: ignore[attr-defined]
    columns = columns_of(compared._node, lambda node: ["id", "price", *(["_change"] if node.inputs else [])])
    values, rows = columns.values, columns.rows
    assert {(origin.source, origin.column, origin.how) for origin in values["price"]} == {
        (id(source), "price", "IDENTITY")
    }
    assert values["_change"] == frozenset()
    assert {(origin.column, origin.how) for origin in rows} == {("id", "GROUP_BY")}
    assert source.datasets() == ORDERS.datasets()


def test_every_kind_of_step_is_known() -> None:
    """A step that is added needs a line here, and its lineage in `columns_of`."""
    known = {
        *(
            "Read",
            "Filter",
            "Expect",
            "Rest",
            "Select",
            "WithColumns",
            "ProcessingTime",
            "Drop",
            "Rename",
            "Apply",
            "Map",
            "FlatMap",
            "MapBatches",
        ),
        *(
            "Explode",
            "Repartition",
            "SortWithinEpoch",
            "Ordered",
            "Join",
            "Union",
            "Write",
            "Step",
            "Keyed",
            "Changing",
            "Aggregate",
            "Side",
        ),
        *("JoinStreams", "Series", "Over", "Deduplicate", "CompareExtracts", "Limit", "Expect"),
    }

    def below(kind: Any) -> set[str]:
        children: list[type] = kind.__subclasses__()
        return {name for child in children for name in (child.__name__, *below(child))}

    assert {name for name in below(Node) if not name.startswith("_")} <= known
    assert issubclass(Keyed, Node)


def test_the_order_of_rows() -> None:
    assert lineage(orders.sort_within_epoch("price desc"))[1] == {"orders.price SORT"}
    assert lineage(orders.repartition(2))[1] == set()


def test_expectations() -> None:
    """One that only warns, or fails the job, leaves no row out."""
    warned = orders.select("id", "price").expect("price", col("price") > 0)
    assert lineage(warned)[1] == set()
    assert lineage(warned.expect("id", col("id") > 0, on_fail="drop"))[1] == {"orders.id FILTER"}


class Letters(MemorySource):
    """Dead letters that are read again."""

    reads_letters = True


def test_rows_of_dead_letters_come_from_their_payload() -> None:
    letters = Letters([], SCHEMA)
    columns = columns_of(Environment().from_source(letters).select("id", "price")._node, names)
    (origin,) = columns.values["price"]
    assert (origin.column, origin.how) == ("payload", "TRANSFORMATION")

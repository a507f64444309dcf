"""Places and neighbours of rows in the order of their key: after random epochs, tables have what DuckDB computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.duck import query
from tests.end_to_end.test_updates import (
    DISORDER,
    START,
    TOTALS,
    WINDOWS,
    Chains,
    check,
    check_chains,
    random_rows,
    totals,
    upserted,
    windows,
)
from tests.recovery.runs import load
from tests.sinks import sink_of
from volley import (
    ConfigError,
    DataStream,
    Environment,
    ExpressionError,
    MemorySink,
    MemorySource,
    PlanError,
    avg,
    col,
    count,
    count_distinct,
    dense_rank,
    lag,
    last,
    lead,
    max_,
    rank,
    row_number,
    rows_between,
    sum_,
    tumbling,
)


def first_places(rows: DataStream) -> DataStream:
    """No more rows are kept than come out."""
    places = rows.key_by("k").order_by("v desc", "t").with_columns(place=row_number(), before=lag("v"))
    return places.select("k", "v", "t", "before", p="place").filter((col("p") <= 2) & col("k").is_in(["a", "b"]))


def shared_places(rows: DataStream) -> DataStream:
    return rows.key_by("k").order_by("v").with_columns(place=rank()).filter(col("place") < 3)


def everything(rows: DataStream) -> DataStream:
    return rows.key_by("k").order_by("v desc", "t desc").with_columns(
        n=row_number(), r=rank(), s=dense_rank(), before=lag("d"), behind=lead("v", 2), total=sum_("v"),
        five=rows_between(count_distinct("v"), before=3, after=1), so_far=rows_between(max_("t")),
        rest=rows_between(last("m"), before=0, after=None),
    )  # fmt: skip


def beside_all(rows: DataStream) -> DataStream:
    """Each row has what all of its key have."""
    return rows.key_by("k").order_by().with_columns(rows=count(), mean=avg("v")).filter(col("v") > col("mean"))


def best_groups(rows: DataStream) -> DataStream:
    """Rows behind a place move up as groups shrink."""
    counted = totals(rows).filter(col("n") < 4)
    places = counted.key_by("k").order_by("n desc", "v").with_columns(place=row_number())
    return places.filter(col("place") <= 3)


def groups_of_places(rows: DataStream) -> DataStream:
    places = rows.key_by("k").order_by("v", "t").with_columns(place=dense_rank(), before=lag("v"))
    return places.key_by("place").aggregate(n=count(), total=sum_("before"))


def places_of_places(rows: DataStream) -> DataStream:
    first = rows.key_by("k").order_by("v desc", "t").with_columns(place=row_number()).filter(col("place") <= 4)
    return first.key_by("place").order_by("v", "t").with_columns(again=row_number(), total=sum_("v"))


def best_of_windows(rows: DataStream) -> DataStream:
    """Rows come out once, with their windows."""
    ten = rows.key_by("k").window(tumbling(10), on="t", lateness=DISORDER).aggregate(n=count(), total=sum_("v"))
    by_window = ten.key_by("window_start").order_by("n desc", "k", on="window_start")
    return by_window.with_columns(place=row_number()).filter(col("place") <= 2)


def best_of_changing_windows(rows: DataStream) -> DataStream:
    places = windows(rows).key_by("window_start").order_by("total desc", "k").with_columns(place=row_number())
    return places.filter(col("place") <= 2)


def best_of_all(rows: DataStream) -> DataStream:
    return rows.key_by().order_by("d desc", "t").with_columns(place=row_number()).filter(col("place") <= 3)


ORDER = "over (partition by k order by v desc nulls last, t desc"
CHAINS: Chains = {
    first_places: ([], """select k, v, t, before, place from (select *,
        row_number() over (partition by k order by v desc nulls last, t) as place,
        lag(v) over (partition by k order by v desc nulls last, t) as before from rows)
        where place <= 2 and k in ('a', 'b')"""),
    shared_places: (["t"], """select * from (select *, rank() over (partition by k order by v nulls first) as place
        from rows) where place < 3"""),
    everything: (["t"], f"""select *, row_number() {ORDER}), rank() {ORDER}), dense_rank() {ORDER}), lag(d) {ORDER}),
        lead(v, 2) {ORDER}), sum(v) {ORDER})::bigint,
        count(distinct v) {ORDER} rows between 3 preceding and 1 following),
        max(t) {ORDER} rows unbounded preceding),
        last(m ignore nulls) {ORDER} rows between current row and unbounded following) from rows"""),
    beside_all: (["t"], """select * from (select *, count(*) over (partition by k), avg(v) over (partition by k) as mean
        from rows) where v > mean"""),
    best_groups: ([], f"""select * from (select *, row_number() over (partition by k order by n desc, v nulls first)
        as place from {TOTALS} where n < 4) where place <= 3"""),
    groups_of_places: (["place"], """select place, count(*), sum(before)::bigint from (select
        dense_rank() over (partition by k order by v nulls first, t) as place,
        lag(v) over (partition by k order by v nulls first, t) as before from rows) group by place"""),
    places_of_places: (["t"], """select *, row_number() over (partition by place order by v nulls first, t),
        sum(v) over (partition by place order by v nulls first, t)::bigint from (select *,
        row_number() over (partition by k order by v desc nulls last, t) as place from rows) where place <= 4"""),
    best_of_windows: (["window_start", "place"], f"""select s, s + interval '10 seconds', k, n, total, place from (
        select *, row_number() over (partition by s order by n desc, k) as place from {WINDOWS}) where place <= 2"""),
    best_of_changing_windows: ([], f"""select s, s + interval '10 seconds', k, n, total, place from (
        select *, row_number() over (partition by s order by total desc nulls last, k) as place from {WINDOWS})
        where place <= 2"""),
    best_of_all: ([], """select * from (select *, row_number() over (order by d desc nulls last, t) as place
        from rows) where place <= 3"""),
}  # fmt: skip


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 60))])
def test_tables_have_what_a_query_computes_of_all_rows(native: Environment, seed: int, tmp_path: Path) -> None:
    check_chains(native, CHAINS, seed, tmp_path)


@pytest.mark.parametrize("chain", CHAINS)
def test_rows_are_read_at_once_as_jobs_have_them(
    native: Environment, chain: Callable[[DataStream], DataStream]
) -> None:
    rows = random_rows(random.Random(7))
    found = chain(native.from_source(MemorySource(rows))).to_arrow()
    expected = query(CHAINS[chain][1], rows=rows).to_arrow_table().rename_columns(found.column_names)
    both = [[[_plain(value) for value in row.values()] for row in table.to_pylist()] for table in (found, expected)]
    assert sorted(map(repr, both[0])) == sorted(map(repr, both[1]))


def _plain(value: object) -> object:
    return f"{round(value, 6) + 0.0:.6g}" if isinstance(value, float) else value


def test_a_sink_that_appends_gets_the_changes_of_places(native: Environment) -> None:
    rows = native.from_source(MemorySource([{"v": 3}, {"v": 9}, {"v": 1}], rows_per_epoch=1))
    sink = MemorySink("places")
    places = rows.key_by().order_by("v desc").with_columns(place=row_number())
    native.execute("log", places.filter(col("place") <= 2).to_sink(sink))
    assert [(row["v"], row["place"], row["_change"]) for row in sink.rows()] == [
        *((3, 1, "update_after"), (3, 1, "delete"), (9, 1, "update_after"), (3, 2, "update_after")),
    ]


def test_final_places_are_appended(native: Environment, tmp_path: Path) -> None:
    rows = random_rows(random.Random(3))
    best = best_of_windows(native.from_source(MemorySource(rows, rows_per_epoch=9)))
    native.execute("best", best.to_sink(sink_of(tmp_path, "best")))
    check(tmp_path, "best", query(CHAINS[best_of_windows][1], rows=rows))
    assert len(load(tmp_path, "db.best").scan().to_arrow()) > 3


NEXMARK = {
    # The last bid of each bidder at each auction.
    "q18": """select auction, bidder, v, t from bids
        qualify row_number() over (partition by bidder, auction order by t desc) = 1""",
    # The ten best bids of each auction.
    "q19": """select * from (select *, row_number() over (partition by auction order by v desc, t) as place
        from bids) q where place <= 10""",
}


def test_queries_18_and_19_of_nexmark_are_jobs(native: Environment, tmp_path: Path) -> None:
    text = "select k as auction, v as bidder, t, hash(t) % 50 as v from r where v is not null"
    rows = query(text, r=random_rows(random.Random(11))).to_arrow_table()
    rows = rows.set_column(3, "v", rows["v"].cast(pa.int64()))
    bids = native.from_source(MemorySource(rows, rows_per_epoch=7))
    keys = {"q18": ["bidder", "auction"], "q19": []}
    sinks = {name: upserted(tmp_path, name, *keys[name]) for name in NEXMARK}
    native.execute("nexmark", *(native.sql(text, bids=bids).to_sink(sinks[name]) for name, text in NEXMARK.items()))
    for name, text in NEXMARK.items():
        check(tmp_path, name, query(text, bids=rows))


def test_the_first_rows_of_an_order_are_kept_up_to_date(native: Environment, tmp_path: Path) -> None:
    rows = random_rows(random.Random(13))
    stream = native.from_source(MemorySource(rows, rows_per_epoch=7))
    texts = {
        "first": "select t, k, v from r order by v desc nulls last, t limit 5",
        "groups": "select k, count(*) as n from r group by k order by n desc, k limit 2",
        "inner": """select v, count(*) as n from (
            select v from r where v > -4 order by d desc nulls last, t limit 9) q group by v""",
    }
    keys = {"first": "t", "groups": "k", "inner": "v"}
    jobs = (native.sql(text, r=stream).to_sink(upserted(tmp_path, name, keys[name])) for name, text in texts.items())
    native.execute("first", *jobs)
    for name, text in texts.items():
        check(tmp_path, name, query(text, r=rows))


def test_places_in_sql_come_out_with_their_windows(native: Environment, tmp_path: Path) -> None:
    """They are final: a sink that appends takes them."""
    rows = random_rows(random.Random(12))
    stream = native.from_source(MemorySource(rows, rows_per_epoch=9))
    places = "select *, rank() over (partition by start order by n desc) as place from ({}) q qualify place <= 2"
    windows = "select window.start as start, k, count(*) as n from r group by window(t, '10 seconds'), k"
    best = native.sql(places.format(windows), r=stream, lateness=DISORDER)
    native.execute("best", best.to_sink(sink_of(tmp_path, "best")))
    groups = "select time_bucket(interval '10 seconds', t) as start, k, count(*) as n from r group by all"
    check(tmp_path, "best", query(places.format(groups), r=rows))


def test_rows_of_one_place_have_the_same_numbers_however_they_are_read(native: Environment, tmp_path: Path) -> None:
    values = [{"g": 1, "h": n % 2, "id": n} for n in range(9)]
    rows = native.from_source(MemorySource(values, rows_per_epoch=2))
    places = rows.key_by("g").order_by("h").with_columns(n=row_number()).filter(col("n") <= 3)
    native.execute("alike", places.to_sink(upserted(tmp_path, "alike")))
    found, shown = load(tmp_path, "db.alike").scan().to_arrow(), places.to_arrow()
    assert found.sort_by("n").to_pylist() == shown.sort_by("n").to_pylist()


def test_no_name_of_a_column_is_taken(native: Environment, tmp_path: Path) -> None:
    names = ["_volley_place", "_over_0_0", "_over_0_by_0", "price desc"]
    rows = pa.table({"id": [1, 2, 3], **{name: [30, 10, 20] for name in names}, "price": [5, 6, 7]})
    text = "select *, row_number() over (order by price desc, id + 1 desc) as n from r order by price desc limit 2"
    first = native.sql(text, r=native.from_source(MemorySource(rows, rows_per_epoch=1)))
    native.execute("names", first.to_sink(upserted(tmp_path, "names", "id")))
    expected = [{"id": key, **dict.fromkeys(names, other), "price": price, "n": n}
                for key, other, price, n in ((3, 20, 7, 1), (2, 10, 6, 2))]  # fmt: skip
    for found in (load(tmp_path, "db.names").scan().to_arrow(), first.to_arrow()):
        assert found.sort_by("n").to_pylist() == expected
    own = native.from_source(MemorySource([{"_volley_time": 1}])).key_by().order_by("_volley_time")
    with pytest.raises(PlanError, match="which is Volley's own"):
        own.with_columns(n=row_number()).to_arrow()


@pytest.mark.parametrize("far", [2**62, 2**63 - 1, 2**70])
def test_rows_far_away_are_those_at_the_end(native: Environment, far: int) -> None:
    rows = native.from_source(MemorySource([{"v": 1}, {"v": 2}])).key_by().order_by("v")
    found = rows.with_columns(
        a=lag("v", far), b=lead("v", far), c=rows_between(sum_("v"), before=far, after=0),
        d=rows_between(sum_("v"), before=0, after=far),
    )  # fmt: skip
    values = [tuple(row.values()) for row in found.to_arrow().to_pylist()]
    assert values == [(1, None, None, 1, 3), (2, None, None, 3, 2)]


def test_a_wrong_direction_is_named(native: Environment) -> None:
    rows = native.from_source(MemorySource([{"v": 1}])).key_by()
    with pytest.raises(ExpressionError, match=r"'v up' is not an order of rows\n.*asc or desc"):
        rows.order_by("v up").with_columns(n=row_number()).to_arrow()
    with pytest.raises(ExpressionError, match=r"there is no column 'w' to sort by\n.*known: 'v'$"):
        rows.order_by("w").with_columns(n=row_number()).to_arrow()


def test_a_place_can_replace_a_column(native: Environment, tmp_path: Path) -> None:
    """Then the stream tells no keys."""
    rows = native.from_source(MemorySource([{"k": 7, "v": v} for v in (3, 9, 1)], rows_per_epoch=1))
    places = rows.key_by("k").order_by("v desc").with_columns(k=row_number())
    native.execute("replaced", places.to_sink(upserted(tmp_path, "replaced", "k")))
    found = load(tmp_path, "db.replaced").scan().to_arrow().sort_by("k").to_pylist()
    assert found == [{"k": 1, "v": 9}, {"k": 2, "v": 3}, {"k": 3, "v": 1}]
    with pytest.raises(ConfigError, match="names no keys, and the stream tells none"):
        native.execute("none", places.to_sink(upserted(tmp_path, "none")))


def test_identical_rows_have_places_of_their_own(native: Environment, tmp_path: Path) -> None:
    rows = native.from_source(MemorySource([{"v": 1}] * 5, rows_per_epoch=2))
    places = rows.key_by().order_by("v").with_columns(place=row_number(), shared=rank())
    native.execute("same", places.to_sink(upserted(tmp_path, "same", "place")))
    found = load(tmp_path, "db.same").scan().to_arrow().sort_by("place").to_pylist()
    assert found == [{"v": 1, "place": place, "shared": 1} for place in range(1, 6)]


def test_a_function_behind_changing_places_is_refused(native: Environment) -> None:
    rows = native.from_source(MemorySource([{"v": 1, "t": START}]))
    places = rows.key_by().order_by("v").with_columns(place=row_number())
    with pytest.raises(PlanError, match="can't take rows that replace earlier ones"):
        native.execute("refused", places.map(lambda row: row).to_sink(MemorySink("out")))
    with pytest.raises(PlanError, match="follows a step whose rows replace earlier ones"):
        native.execute("refused", places.deduplicate("v").to_sink(MemorySink("out")))


def test_a_changed_order_does_not_go_on_with_the_state(native: Environment, tmp_path: Path) -> None:
    def run(*order: str) -> None:
        rows = native.from_source(MemorySource(pa.table({"v": [1, 2]})))
        places = rows.key_by().order_by(*order).with_columns(place=row_number())
        native.execute("changed", places.to_sink(upserted(tmp_path, "changed", "place")))

    run("v")
    with pytest.raises(PlanError, match="order"):
        run("v desc")

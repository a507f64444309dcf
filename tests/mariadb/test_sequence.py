"""Rows with their place in the server's log: in whatever order and from however many jobs, the table is the same."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import Drivers
from tests.mariadb.jobs import mirror, mirror_all
from tests.mariadb.shops import Shop
from tests.postgres.jobs import config
from tests.postgres.runs import running
from tests.tiers import some
from volley import Environment, IcebergSink, MariaDbSource, SourceError, VolleyError
from volley.iceberg import History


def difference(shop: Shop, folder: Path, table: str = "orders") -> list[Any]:
    """Rows that only MariaDB or only the Iceberg table has."""
    theirs = shop.rows(f"select * from {table}")
    columns = [column for (column, *_) in shop.rows(f"show columns from {table}")]
    rows = IcebergSink(replace(config(folder), table=table)).table().scan().to_arrow()
    ours = [tuple(each.values()) for each in rows.select(columns).to_pylist()]
    assert len(set(ours)) == len(ours), "rows are doubled"
    return sorted(set(ours) ^ set(theirs), key=repr)


@pytest.mark.usefixtures("spark")
def test_several_tables(shop: Shop, tmp_path: Path) -> None:
    """Each has the places of its own rows; one that joins later is loaded before them."""
    shop.run("create table notes (id int primary key, n int, text text)", "insert into notes values (1, 1, 'x')")
    source = shop.source("*", sequence=True)
    mirror_all(tmp_path, source)
    shop.run("update notes set n = 2", "update orders set total = 0 where id < 9", "delete from orders where id > 90")
    shop.run("create table pages (id int primary key, text text)", "insert into pages values (1, 'a'), (2, 'b')")
    mirror_all(tmp_path, source)
    shop.run("update pages set text = 'c' where id = 2", "update notes set n = 3")
    mirror_all(tmp_path, source)
    names = ("notes", "orders", "pages")
    assert {name: rows for name in names if (rows := difference(shop, tmp_path, name))} == {}


def other(shop: Shop) -> MariaDbSource:
    """A second job's source of the same table."""
    return shop.source(sequence=True, server_id=shop.source().server_id + 1_000_000)


def test_a_row_has_its_place_in_its_transaction(shop: Shop, tmp_path: Path) -> None:
    """Rows of one statement share an event, and differ in place all the same."""
    source = shop.source(sequence=True)
    with running(source, tmp_path) as run:
        loaded = run.epoch()
    shop.run(
        "update orders set total = 0 where id <= 3",
        "update orders set total = 1 where id <= 3",
        "update orders set id = -id where id <= 2",
        "delete from orders where id = 3",
    )
    shop.run("insert into orders values (3, 'again', 1, null)")
    with running(source, tmp_path, run.start) as run:
        rows = run.epoch()
    places = [(row["_lsn"], row["_change"]) for row in rows]
    assert len(set(places)) == len(places)
    assert {(row["_change"], row["_lsn"] <= min(places)[0]) for row in loaded} == {(0, True)}
    ordered = sorted(rows, key=lambda row: (row["_lsn"], row["_change"]))
    assert [(row["_op"], row["id"], row["total"]) for row in ordered if row["_op"] != "d"] == [
        *(("u", id, Decimal(0)) for id in (1, 2, 3)),
        *(("u", id, Decimal(1)) for id in (1, 2, 3)),
        *(("u", id, Decimal(1)) for id in (-1, -2)),
        ("i", 3, Decimal(1)),
    ]
    assert [row["id"] for row in ordered if row["_op"] == "d"] == [1, 2, 3]
    transactions = [lsn for lsn, _ in sorted(places)]
    assert [transactions.count(lsn) for lsn in sorted(set(transactions))] == [11, 1]


def test_what_has_no_place_in_the_log_is_refused(shop: Shop, tmp_path: Path) -> None:
    source = shop.source(sequence=True)
    with running(source, tmp_path) as run:
        start = run.start
    shop.run_with("set binlog_row_image = minimal", "update orders set id = -1 where id = 1")
    with running(source, tmp_path, start) as run, pytest.raises(SourceError, match="has got another key") as error:
        run.epoch()
    assert "binlog_row_image = FULL" in str(error.value.hint)
    with running(source, tmp_path / "2") as run:
        start = run.start
    shop.run("truncate orders")
    with running(source, tmp_path / "2", start) as run, pytest.raises(SourceError, match="it was truncated"):
        run.epoch()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("image", some(["noblob", "full", "minimal"]))
def test_a_mirror_and_a_second_job_beside_it(image: str, shop: Shop, tmp_path: Path) -> None:
    """The second one loads what the first one has followed, and the first one goes on behind it."""
    first, second = shop.source(sequence=True), other(shop)
    settings = f"set binlog_row_image = {image}"
    mirror(tmp_path, first)
    assert difference(shop, tmp_path) == []
    shop.run_with(
        settings, "update orders set total = total + 1 where id % 3 = 0", "delete from orders where id % 10 = 5"
    )
    mirror(tmp_path, second, "second")
    # What the first job has not read yet is older than what the second one has loaded, or a deletion.
    mirror(tmp_path, first)
    assert difference(shop, tmp_path) == []
    shop.run_with(settings, "update orders set customer = 'new' where id % 7 = 0")
    shop.run_with(settings, "update orders set note = repeat('x', 9000) where id = 8")
    shop.run_with("set @nothing = 0", "update orders set id = id + 5000 where id < 4 and id % 2 = 1")
    shop.run_with(settings, "insert into orders values (5, 'again', 1.25, null)")
    mirror(tmp_path, second, "second")
    mirror(tmp_path, first)
    assert difference(shop, tmp_path) == []
    mirror(tmp_path, second, "second")
    assert difference(shop, tmp_path) == []


@pytest.mark.usefixtures("spark")
def test_a_history(drivers: Drivers, shop: Shop, tmp_path: Path) -> None:
    """The versions of rows are in the order of the log, though drivers die between."""
    shop.run("delete from orders where id > 3")
    source = shop.source(sequence=True)
    keep(tmp_path, source)
    shop.run("update orders set customer = 'x' where id = 1", "delete from orders where id = 2")
    shop.run("update orders set customer = 'y' where id = 1", "update orders set customer = 'z' where id = 1")
    drivers.die("after-commit@1", keep, tmp_path, source)
    shop.run("insert into orders values (2, 'again', 5, null)", "update orders set id = 30 where id = 3")
    drivers.die("before-commit@2", keep, tmp_path, source)
    keep(tmp_path, source)
    table = IcebergSink(config(tmp_path)).table().scan().to_arrow().to_pylist()
    rows = sorted(table, key=lambda row: (row["id"], row["_lsn"], row["_change"]))
    note = "note {}".format
    assert [(row["id"], row["customer"], row["total"], row["note"], row["is_current"]) for row in rows] == [
        *((1, customer, Decimal(1), note(1), customer == "z") for customer in ("c1", "x", "y", "z")),
        *((2, "c2", Decimal(2), note(2), False), (2, "again", Decimal(5), None, True)),
        *((3, "c3", Decimal(3), None, False), (30, "c3", Decimal(3), None, True)),
    ]
    ends = {(row["id"], row["customer"]): row["valid_to"] for row in rows}
    begins = {(row["id"], row["customer"]): row["valid_from"] for row in rows}
    for former, later in (("c1", "x"), ("x", "y"), ("y", "z")):
        assert ends[1, former] == begins[1, later]
    assert {key for key, end in ends.items() if end is None} == {(1, "z"), (2, "again"), (30, "c3")}


def keep(folder: Path, source: MariaDbSource) -> None:
    """One run of a job that keeps the versions of rows."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    sink = IcebergSink(config(folder).with_commit_mode(History()))
    environment.from_source(source).to_sink(sink).execute("history")


@pytest.mark.usefixtures("spark")
def test_a_history_of_rows_that_are_not_whole_is_refused(shop: Shop, tmp_path: Path) -> None:
    source = shop.source(sequence=True)
    keep(tmp_path, source)
    shop.run_with("set binlog_row_image = minimal", "update orders set total = 0 where id = 1")
    with pytest.raises(VolleyError, match="unchanged"):
        keep(tmp_path, source)
    assert IcebergSink(config(tmp_path)).table().scan().to_arrow().num_rows == 1000


def changed(dice: random.Random, number: int) -> list[str]:
    """Some statements of one transaction: updates, deletions, keys that come again or change."""
    low = dice.randrange(60)
    return dice.sample(
        [
            f"update orders set total = {number} where id between {low} and {low + 9}",
            f"update orders set note = repeat('{number}', 900) where id = {low}",
            f"delete from orders where id between {low} and {low + 2}",
            f"insert into orders values ({1000 + number}, 'new', 1, 'note')",
            f"replace into orders values ({low + 3}, 'again', 2, null)",
            f"update orders set id = {2000 + number} where id = {low + 4}",
        ],
        3,
    )


@pytest.mark.usefixtures("spark")
def test_several_jobs_in_any_order(shop: Shop, tmp_path: Path) -> None:
    """One begins while the other is behind; in the end each has read all."""
    dice, sources = random.Random(3), [shop.source(sequence=True), other(shop)]
    shop.run("delete from orders where id > 100")
    for number in range(4):
        for step in range(3):
            shop.run(*changed(dice, 10 * number + step))
        source = dice.choice(sources)
        mirror(tmp_path, source, str(source.server_id))
    for source in reversed(sources):
        mirror(tmp_path, source, str(source.server_id))
    assert difference(shop, tmp_path) == []

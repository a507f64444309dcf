"""A changelog: every event of a table, in order, with the row before and after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.captured import Database
from tests.drivers import Drivers
from tests.postgres.jobs import append, config
from tests.postgres.runs import running
from volley import IcebergSink
from volley.capture.segments import Segments

LARGE = "repeat(md5(random()::text), 500)"


def short(event: dict[str, Any]) -> tuple[Any, ...]:
    """The operation, and the first two values of the rows before and after."""
    rows = (event["before"], event["after"])
    return (event["op"], *(None if row is None else tuple(row.values())[:2] for row in rows))


def events(shop: Database, folder: Path, *statements: str) -> list[dict[str, Any]]:
    """The events of statements, each in a transaction of its own."""
    with running(shop.source(changelog=True), folder) as run:
        run.epoch()
    for statement in statements:
        shop.run(statement)
    with running(shop.source(changelog=True), folder, run.start) as run:
        return run.epoch()


def test_the_load_is_read_first(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(changelog=True), tmp_path) as run:
        loaded = run.epoch()
    assert len(loaded) == 1000
    assert sorted(loaded, key=lambda event: event["after"]["id"])[1] == {
        **{"op": "r", "seq": 3, "lsn": None, "commit_time": None, "before": None, "unchanged": None},
        "after": {"id": 2, "customer": "c2", "total": Decimal(2), "note": "note 2"},
    }


@pytest.mark.parametrize("identity", ["default", "full"])
def test_every_event(shop: Database, tmp_path: Path, identity: str) -> None:
    shop.run(
        f"alter table orders replica identity {identity}", "alter table orders alter column note set storage external"
    )
    shop.run(f"update orders set note = {LARGE} where id = 3")
    (large,) = (note for (note,) in shop.rows("select note from orders where id = 3"))
    seen = events(
        shop,
        tmp_path,
        "insert into orders values (2001, 'new', 1.5, null); update orders set customer = 'x' where id = 2001",
        "savepoint here; insert into orders values (2002, 'undone', 1, null); rollback to here",
        "delete from orders where id = 1",
        "update orders set id = 3000 where id = 3",
        "truncate orders; insert into orders values (1, 'again', 0, null)",
    )
    full = identity == "full"
    assert [short(event) for event in seen] == [
        ("i", None, (2001, "new")),
        ("u", (2001, "new") if full else None, (2001, "x")),
        ("d", (1, "c1" if full else None), None),
        ("u", (3, "c3" if full else None), (3000, "c3")),
        ("t", None, None),
        ("i", None, (1, "again")),
    ]
    # A large value that has not changed: only a whole old row has it.
    assert seen[3]["after"]["note"] == (large if full else None)
    assert seen[3]["unchanged"] == (None if full else ["note"])
    assert [event["seq"] for event in seen] == sorted({event["seq"] for event in seen})
    transactions = [event["lsn"] for event in seen]
    assert transactions == sorted(transactions)
    assert [transactions.count(lsn) for lsn in sorted(set(transactions))] == [2, 1, 1, 2]
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=2) < event["commit_time"] < now for event in seen)


def test_a_column_that_comes_and_one_that_goes(shop: Database, tmp_path: Path) -> None:
    seen = events(
        shop,
        tmp_path,
        "alter table orders drop column note",
        "alter table orders add column level int",
        "update orders set level = 3 where id = 7",
    )
    assert [event["after"]["level"] for event in seen] == [3]


def test_another_key_does_not_matter(shop: Database, tmp_path: Path) -> None:
    seen = events(
        shop,
        tmp_path,
        "delete from orders where id = 1",
        "alter table orders drop constraint orders_pkey, add primary key (customer)",
        "delete from orders where id = 2",
        "alter table orders replica identity full",
        "delete from orders where id = 3",
    )
    assert [short(event) for event in seen] == [
        ("d", (1, None), None),
        ("d", (None, "c2"), None),
        ("d", (3, "c3"), None),
    ]


@pytest.mark.usefixtures("spark")
def test_exactly_once_in_a_table_though_drivers_die(drivers: Drivers, shop: Database, tmp_path: Path) -> None:
    append(tmp_path, shop.source(changelog=True))
    shop.run("update orders set total = 0 where id <= 10", "delete from orders where id = 11")
    drivers.die("after-commit@1", append, tmp_path, shop.source(changelog=True))
    shop.run("alter table orders add column level int", "insert into orders values (2001, 'new', 1, null, 5)")
    segments = Segments(f"{tmp_path}/checkpoints/changelog/volley/source-0/segments")
    drivers.die(f"after-segment@{segments.chain(0).next}", append, tmp_path, shop.source(changelog=True))
    shop.run("truncate orders")
    append(tmp_path, shop.source(changelog=True))
    rows = duckdb.from_arrow(IcebergSink(config(tmp_path)).table().scan().to_arrow())
    counts = rows.aggregate("op, count(*), count(distinct seq), count(before.id), count(after.id)", "op")
    assert sorted(counts.fetchall()) == [
        *(("d", 1, 1, 1, 0), ("i", 1, 1, 0, 1), ("r", 1000, 1, 0, 1000), ("t", 1, 1, 0, 0), ("u", 10, 10, 0, 10)),
    ]
    assert rows.filter("op = 'i'").select("after.level").fetchall() == [(5,)]

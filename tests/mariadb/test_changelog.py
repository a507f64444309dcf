"""A changelog: every event of a table, in order, with the row before and after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.drivers import Drivers
from tests.mariadb.jobs import append
from tests.mariadb.shops import Shop
from tests.postgres.jobs import config
from tests.postgres.runs import running
from tests.tiers import some
from volley import IcebergSink
from volley.capture.segments import Segments


def row(id: int, customer: Any, total: Any, note: Any) -> dict[str, Any]:
    return {"id": id, "customer": customer, "total": None if total is None else Decimal(total), "note": note}


def events(shop: Shop, folder: Path, *transactions: tuple[str, ...]) -> list[dict[str, Any]]:
    """The events of transactions, in sessions of their own."""
    with running(shop.source(changelog=True), folder) as run:
        run.epoch()
    for settings, *statements in transactions:
        shop.run_with(settings, *statements)
    with running(shop.source(changelog=True), folder, run.start) as run:
        return sorted(run.epoch(), key=lambda event: event["seq"])


def test_the_load_is_read_first(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(changelog=True), tmp_path) as run:
        loaded = run.epoch()
    assert [event["after"]["id"] for event in sorted(loaded, key=lambda event: event["after"]["id"])] == [
        *range(1, 1001)
    ]
    (second,) = (event for event in loaded if event["after"]["id"] == 2)
    assert {event["seq"] for event in loaded} == {second.pop("seq")}
    assert second == {
        **{"op": "r", "lsn": None, "commit_time": None, "before": None, "unchanged": None},
        "after": row(2, "c2", 2, "note 2"),
    }


@pytest.mark.parametrize("image", some(["noblob", "full", "minimal"]))
def test_every_event(shop: Shop, tmp_path: Path, image: str) -> None:
    settings = f"set autocommit = 0, binlog_row_image = {image}"
    seen = events(
        shop,
        tmp_path,
        (
            settings,
            "insert into orders values (2001, 'new', 1.5, null), (2002, 'two', 2, 'x')",
            "update orders set customer = 'x' where id = 2001",
        ),
        (settings, "savepoint s", "insert into orders values (2003, 'undone', 1, null)", "rollback to s"),
        (settings, "delete from orders where id in (1, 2)"),
        (settings, "update orders set id = 3000 where id = 4"),
        (settings, "truncate orders"),
        (settings, "insert into orders values (1, 'again', 0, null)"),
    )
    # What an image leaves out of a row before is null there; out of a row after, it is named.
    whole, blobs = image != "minimal", image == "full"

    def before(*values: Any) -> dict[str, Any]:
        id, customer, total, note = values
        return row(id, customer if whole else None, total if whole else None, note if blobs else None)

    unchanged = {"full": None, "noblob": ["note"], "minimal": ["total", "note"]}[image]
    moved = {"full": None, "noblob": ["note"], "minimal": ["customer", "total", "note"]}[image]
    assert [(event["op"], event["before"], event["after"], event["unchanged"]) for event in seen] == [
        ("i", None, row(2001, "new", "1.5", None), None),
        ("i", None, row(2002, "two", 2, "x"), None),
        ("u", before(2001, "new", "1.5", None), row(2001, "x", "1.5" if whole else None, None), unchanged),
        ("d", before(1, "c1", 1, "note 1"), None, None),
        ("d", before(2, "c2", 2, "note 2"), None, None),
        ("u", before(4, "c4", 4, "note 4"), {**before(4, "c4", 4, "note 4"), "id": 3000}, moved),
        ("t", None, None, None),
        ("i", None, row(1, "again", 0, None), None),
    ]
    assert [event["seq"] for event in seen] == sorted({event["seq"] for event in seen})
    places = [event["lsn"] for event in seen]
    assert places == sorted(places)
    assert [places.count(place) for place in sorted(set(places))] == [3, 2, 1, 1, 1]
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=5) < event["commit_time"] <= now for event in seen)


def test_a_column_that_comes_and_another_key(shop: Shop, tmp_path: Path) -> None:
    nothing = "set @nothing = 0"
    seen = events(
        shop,
        tmp_path,
        (nothing, "alter table orders drop column note, add column level int not null default 3"),
        (nothing, "update orders set level = 4 where id = 7"),
        (nothing, "alter table orders drop primary key, add primary key (customer)"),
        ("set binlog_row_image = minimal", "delete from orders where id = 8"),
    )
    assert [(event["op"], event["before"], event["after"]) for event in seen] == [
        (
            "u",
            {"id": 7, "customer": "c7", "total": Decimal(7), "level": 3},
            {"id": 7, "customer": "c7", "total": Decimal(7), "level": 4},
        ),
        ("d", {"id": None, "customer": "c8", "total": None, "level": None}, None),
    ]


@pytest.mark.usefixtures("spark")
def test_exactly_once_in_a_table_though_drivers_die(drivers: Drivers, shop: Shop, tmp_path: Path) -> None:
    source = shop.source(changelog=True)
    append(tmp_path, source)
    shop.run("update orders set total = 0 where id <= 10", "delete from orders where id = 11")
    drivers.die("after-commit@1", append, tmp_path, source)
    shop.run("alter table orders add column level int", "insert into orders values (2001, 'new', 1, null, 5)")
    segments = Segments(f"{tmp_path}/checkpoints/changelog/volley/source-0/segments")
    drivers.die(f"after-segment@{segments.chain(0).next}", append, tmp_path, source)
    shop.run("truncate orders")
    append(tmp_path, source)
    rows = duckdb.from_arrow(IcebergSink(config(tmp_path)).table().scan().to_arrow())
    counts = rows.aggregate("op, count(*), count(distinct seq), count(before.id), count(after.id)", "op")
    assert sorted(counts.fetchall()) == [
        *(("d", 1, 1, 1, 0), ("i", 1, 1, 0, 1), ("r", 1000, 1, 0, 1000), ("t", 1, 1, 0, 0), ("u", 10, 10, 10, 10)),
    ]
    assert rows.filter("op = 'i'").select("after.level").fetchall() == [(5,)]
    loaded = rows.filter("op = 'r'").select("after.id, after.customer, after.total, after.note").order("id").fetchall()
    assert loaded == [(n, f"c{n}", Decimal(n), f"note {n}" if n % 3 else None) for n in range(1, 1001)]
    changed = rows.filter("op = 'u'").select("before.id, before.total, after.id, after.total").fetchall()
    assert sorted(changed) == [(n, Decimal(n), n, Decimal(0)) for n in range(1, 11)]

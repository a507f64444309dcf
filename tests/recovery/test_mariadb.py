"""The driver of a capture of MariaDB or MySQL dies at every point: the mirror has the rows of the server, each once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.mariadb.jobs import differences, mirror, mirror_all
from tests.mariadb.shops import SERVERS, Shop
from volley.capture.segments import Segments
from volley.task.failpoints import LOAD_POINT

pytestmark = pytest.mark.usefixtures("spark")

# The driver's points of an epoch that matter to the source; its others are the same for every source.
EPOCH_POINTS = ("before-files", "after-commit", "before-checkpoint")
SEGMENT_POINTS = ("before-segment", "after-segment")


@pytest.fixture(params=SERVERS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    server = request.getfixturevalue(request.param)
    made = Shop(server, server.database())
    made.run(
        "create table orders (id int primary key, total int, note text)",
        f"insert into orders select seq, seq, concat('note ', seq) from {made.series(500)}",
    )
    yield made
    made.run(f"drop database {made.name}")


def change(shop: Shop, dice: random.Random, number: int) -> None:
    low = dice.randrange(400)
    shop.run_with(
        f"set binlog_row_image = {dice.choice(['full', 'noblob', 'minimal'])}",
        f"update orders set total = {number} where id between {low} and {low + 90}",
        f"delete from orders where id = {low + 1}",
        f"insert into orders values ({1000 + number}, 0, null)",
        f"update orders set id = -id where id = {low + 2}",
    )


def test_killed_at_every_point(drivers: Drivers, shop: Shop, tmp_path: Path) -> None:
    dice, epoch = random.Random(7), 0
    source = shop.source()
    drivers.die(f"{LOAD_POINT}@0", mirror, tmp_path, source)
    segments = Segments(f"{tmp_path}/checkpoints/mirror/volley/source-0/segments")
    for number, point in enumerate((*EPOCH_POINTS, *SEGMENT_POINTS, *EPOCH_POINTS)):
        change(shop, dice, number)
        at = dict.fromkeys(SEGMENT_POINTS, segments.chain(0).next) | dict.fromkeys(EPOCH_POINTS, epoch)
        drivers.die(f"{point}@{at[point]}", mirror, tmp_path, source)
        if point not in SEGMENT_POINTS and point != "before-files":
            epoch += 1
    change(shop, dice, 99)
    mirror(tmp_path, source)
    assert differences(shop, tmp_path) == {"orders": []}


def test_a_database_killed_between_its_tables(drivers: Drivers, shop: Shop, tmp_path: Path) -> None:
    """Tables are made, get columns and are emptied meanwhile; all columns are compared."""
    source = shop.source("*", on_rewrite="reload")
    shop.run("create table notes (id int primary key, body text)", "insert into notes select id, note from orders")
    drivers.die("after-route-1@0", mirror_all, tmp_path, source)
    shop.run("update notes set id = id + 900 where id < 10", "delete from notes where id = 11")
    shop.run("create table later (id int primary key, body text)", "insert into later values (1, 'x'), (2, 'y')")
    drivers.die("after-files@1", mirror_all, tmp_path, source)
    shop.run("alter table later add column level int", "update later set level = id", "truncate orders")
    shop.run("insert into orders values (1, 1, 'after')")
    drivers.die("after-route-2@2", mirror_all, tmp_path, source)
    shop.run("alter table notes add column stars int not null default 3", "update notes set stars = 5 where id = 20")
    drivers.die("before-checkpoint@3", mirror_all, tmp_path, source)
    shop.run("update later set id = id + 1000", "delete from notes where id < 30")
    mirror_all(tmp_path, source)
    assert differences(shop, tmp_path) == {"later": [], "notes": [], "orders": []}

"""The driver of a change capture dies at every point: the mirror has the rows of PostgreSQL, each once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captured import Database, database
from tests.drivers import Drivers
from tests.postgres.jobs import difference, differences, mirror, mirror_all
from tests.servers.postgres import Postgres
from volley.capture.segments import Segments
from volley.task.failpoints import SLOT_POINTS

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Database]:
    with database(postgres) as made:
        made.run(
            "create table orders (id int primary key, total int, note text)",
            "insert into orders select n, n, 'note ' || n from generate_series(1, 500) n",
        )
        yield made


def change(shop: Database, dice: random.Random, number: int) -> None:
    low = dice.randrange(400)
    shop.run(f"update orders set total = {number} where id between {low} and {low + 90}")
    shop.run(f"delete from orders where id = {low + 1}", f"insert into orders values ({1000 + number}, 0, null)")
    shop.run(f"update orders set id = -id where id = {low + 2}")


# The driver's points of an epoch that matter to the source; its others are the same for every source.
EPOCH_POINTS = ("before-files", "after-commit", "before-checkpoint")


def test_killed_at_every_point(drivers: Drivers, shop: Database, tmp_path: Path) -> None:
    dice, epoch = random.Random(7), 0
    segments = Segments(f"{tmp_path}/checkpoints/mirror/volley/source-0/segments")
    for number, point in enumerate((*EPOCH_POINTS, *SLOT_POINTS, *EPOCH_POINTS)):
        change(shop, dice, number)
        at = {"before-segment": segments.chain(0).next, "after-segment": segments.chain(0).next}
        at |= dict.fromkeys(EPOCH_POINTS, epoch)
        drivers.die(f"{point}@{at.get(point, 0)}", mirror, tmp_path, shop.source())
        if point not in SLOT_POINTS and point != "before-files":
            epoch += 1
    change(shop, dice, 99)
    mirror(tmp_path, shop.source())
    assert difference(shop, tmp_path) == []


@pytest.fixture
def market(shop: Database) -> Database:
    """A database with two more tables, of large values, which the stream leaves out if they do not change."""
    for name in ("notes", "pages"):
        shop.run(
            f"create table {name} (id int primary key, number int, body text)",
            f"alter table {name} alter column body set storage external",
            f"insert into {name} select n, n, repeat(md5(n::text), 200) from generate_series(1, 40) n",
        )
    return shop


def test_a_whole_database_killed_in_its_loads_and_between_its_tables(
    drivers: Drivers, market: Database, tmp_path: Path
) -> None:
    """Loads are repeated while keys change, one table is made and gets a column; all columns are compared."""
    source = market.source(None)
    # The load is in one table, or two.
    drivers.die("after-route-1@0", mirror_all, tmp_path, source)
    for table in ("notes", "pages"):
        market.run(f"update {table} set id = id + 900 where id < 10", f"delete from {table} where id = 11")
        market.run(f"update {table} set id = 11 where id = 12")
    # The repeated epoch loads nothing. The next one loads all tables anew, and dies before a table has its rows.
    drivers.die("after-files@1", mirror_all, tmp_path, source)
    market.run("update notes set number = 0 where id < 20", "delete from notes where id < 20")
    market.run("create table later (id int primary key, body text)", "insert into later values (1, 'x'), (2, 'y')")
    drivers.die("after-route-2@2", mirror_all, tmp_path, source)
    market.run("alter table later add column level int", "update later set level = id", "truncate orders")
    market.run("update pages set id = id + 100", "insert into orders values (1, 1, 'after')")
    drivers.die("before-checkpoint@3", mirror_all, tmp_path, source)
    # The loads are in all tables; now changes are in one, or two.
    for table in ("notes", "pages", "later"):
        market.run(f"update {table} set id = id + 1000")
    drivers.die("after-route-1@4", mirror_all, tmp_path, source)
    market.run("update notes set number = number + 1", "update later set id = 3 where id = 1002")
    mirror_all(tmp_path, source)
    assert differences(market, tmp_path) == {name: [] for name in ("later", "notes", "orders", "pages")}

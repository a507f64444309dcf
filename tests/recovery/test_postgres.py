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
from volley.connectors.postgres.segments import Segments
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


def evolve(shop: Database, number: int) -> None:
    """A table comes, columns come; one of them with a default, which the stream does not carry."""
    later = f"later{number}"
    shop.run(f"create table {later} (id int primary key, a text)", f"insert into {later} values (1, 'x'), (2, 'y')")
    shop.run(f"alter table orders add column c{number} int", f"update orders set c{number} = id where id < 50")
    shop.run(f"alter table {later} add column d int default {number}", f"delete from {later} where id = 1")
    shop.run("truncate emptied", f"insert into emptied values ({number})")


def test_a_whole_database_killed(drivers: Drivers, shop: Database, tmp_path: Path) -> None:
    dice, segments = random.Random(8), Segments(f"{tmp_path}/checkpoints/mirror/volley/source-0/segments")
    source = shop.source(None, on_rewrite="reload")
    shop.run("create table emptied (id int primary key)")
    mirror_all(tmp_path, source)
    # In the midst of the commits of epoch 1, which the next driver ends; then in each epoch after it.
    for number, (point, epoch) in enumerate(
        (("after-route-1", 1), ("before-checkpoint", 2), ("after-segment", None), ("before-files", 3))
    ):
        change(shop, dice, number)
        evolve(shop, number)
        drivers.die(f"{point}@{segments.chain(0).next if epoch is None else epoch}", mirror_all, tmp_path, source)
    mirror_all(tmp_path, source)
    assert {name: rows for name, rows in differences(shop, tmp_path).items() if rows} == {}

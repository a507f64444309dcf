"""The driver of a change capture dies at every point: the mirror has the rows of PostgreSQL, each once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captured import Database, database
from tests.drivers import Drivers
from tests.postgres.jobs import difference, mirror
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

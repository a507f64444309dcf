"""Chaos of a view: its refreshes are killed at every gated point and at any moment, and compared with DuckDB."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

from tests.drivers import Drivers
from tests.views.job import main, view_in
from tests.views.tables import Known, Query, Row, checked
from tests.views.test_refresh import SCHEMA
from volley.iceberg import orphan_files, remove_orphan_files
from volley.task.failpoints import VIEW_POINTS

__all__ = ["run"]

_QUERY = Query(
    lambda orders: view_in(Path()).query,
    "select customer, count(*) n, sum(price)::bigint total, min(price) low, max(weight) high from orders "
    "group by customer",
)
_MOMENTS = "at any moment"
_REWRITES = 0.1


def run(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kill refreshes after random changes of the orders; compare the view after each; return where they died.

    Args:
        folder: A folder of its own.
        kills: Processes to kill.
        seed: Repeats the schedule.

    Raises:
        AssertionError: If a row is not what it should be, or a file is left behind.
    """
    dice, drivers, died = random.Random(seed), Drivers(), Counter[str]()
    orders = Known(folder, SCHEMA)
    orders.change([_order(dice) for _ in range(300)])
    view = view_in(folder)
    sources = {"orders": orders}
    while died.total() < kills:
        for _ in range(dice.randrange(1, 4)):
            _change(dice, orders)
        mode = dice.choice(["incremental", "incremental", "full"])
        point = dice.choice([*VIEW_POINTS, _MOMENTS, _MOMENTS])
        if point == _MOMENTS:
            driver = drivers.start(main, folder, mode)
            driver.join(dice.uniform(0.05, 1.5))
            driver.kill()
            died[point] += drivers.wait(driver) == -signal.SIGKILL
        else:
            drivers.die(f"{point}@{view.status().refreshes + 1}", main, folder, mode)
            died[f"{point}, {mode}"] += 1
        checked(view, _QUERY, sources, mode)
    remove_orphan_files(view.into, 0)
    assert orphan_files(view.into, 0) == []
    checked(view, _QUERY, sources)
    orders.files.close()
    return died


def _change(dice: random.Random, orders: Known) -> None:
    if dice.random() < _REWRITES:
        orders.rewrite()
        return
    removed = dice.sample(range(len(orders.rows)), min(len(orders.rows), dice.randrange(15)))
    orders.change([_order(dice) for _ in range(dice.randrange(15))], removed)


def _order(dice: random.Random) -> Row:
    customer = dice.choice([None, *(f"c{number}" for number in range(40))])
    price = dice.choice([None, dice.randrange(1_000)])
    return {"id": dice.randrange(10_000), "customer": customer, "price": price, "weight": float(dice.randrange(100))}

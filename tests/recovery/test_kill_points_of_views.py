"""A process dies in the refresh of a view: the next one makes it what DuckDB computes, and leaves no file behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.tiers import deaths, nightly
from tests.views.job import main, view_in
from tests.views.tables import Known, Query, same
from tests.views.test_refresh import SCHEMA, order
from volley.iceberg import orphan_files, remove_orphan_files
from volley.task.failpoints import VIEW_POINTS

QUERY = Query(
    lambda orders: view_in(Path()).query,
    "select customer, count(*) n, sum(price)::bigint total, min(price) low, max(weight) high from orders "
    "group by customer",
)


@pytest.mark.parametrize("points", deaths(VIEW_POINTS, len(VIEW_POINTS) - 1))
@pytest.mark.parametrize("mode", ["incremental", nightly("full")])
def test_killed(mode: str, points: list[str], tmp_path: Path) -> None:
    drivers, orders = Drivers(), Known(tmp_path, SCHEMA)
    view, refreshes = view_in(tmp_path), 0
    for round_, point in enumerate(points):
        orders.change([order(10 * round_ + n, "abc"[n % 3], 10 - n) for n in range(6)], [0, 1] if round_ else [])
        drivers.die(f"{point}@{refreshes + 1}", main, tmp_path, mode)
        landed = point == "after-view-commit"
        assert view.status().refreshes == refreshes + landed
        done = view.refresh(mode)  # type: ignore[arg-type]
        assert (done.mode == "none") == (landed and mode == "incremental")
        same(view, QUERY, {"orders": orders})
        refreshes = view.status().refreshes
    remove_orphan_files(view.into, 0)
    assert orphan_files(view.into, 0) == []
    same(view, QUERY, {"orders": orders})
    orders.files.close()

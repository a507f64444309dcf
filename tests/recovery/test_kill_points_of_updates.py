"""A job with steps behind rows that change is killed at every point: all rows are those of one query in DuckDB; and an
epoch that is repeated has the processing time that it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.duck import query
from tests.recovery import updates_job
from tests.recovery.runs import load
from tests.recovery.test_kill_points_of_levels import KILLS, MASTER, write_input
from tests.tiers import deaths

pytestmark = pytest.mark.usefixtures("spark")

WINDOWS = """(select time_bucket(interval '10 seconds', "at") as window_start, "user", count(*) as n,
    sum(count)::bigint as total from events group by all)"""
SIZES = f"(select n, count(*) as windows, max(total) as most from {WINDOWS} where n > 3 group by n)"
TABLES = {
    "users": """select "user", count(*) as n, sum(count)::bigint as total from events group by "user" """,
    "windows": f"from {WINDOWS}",
    "sizes": f"from {SIZES}",
    "minutes": f"""select time_bucket(interval '1 minute', window_start) as window_start, "user",
        sum(n)::bigint as n, max(n) as most from {WINDOWS} group by all""",
    "growing": """select time_bucket(interval '1 minute', "at") as window_start, window_start + b.size as window_end,
        "user", count(*) as n
        from events, (values (interval '20 seconds'), (interval '40 seconds'), (interval '60 seconds')) b(size)
        where "at" < time_bucket(interval '1 minute', "at") + b.size group by all having count(*) < 9""",
    "pairs": """select a."user", count(*) as pairs, max(b."at") as latest from events a join events b
        on a."user" = b."user" and a.count = 8 and b.count = 8 group by a."user" """,
    "best": f"""select * from (select window_start, "user", n, total, row_number() over (
        partition by window_start order by total desc, "user") as place from {WINDOWS}) where place <= 2""",
    "kinds": f"select windows, count(*) as sizes, max(n) as most from {SIZES} group by windows",
}


@pytest.mark.parametrize("kills", deaths(KILLS, 2))
def test_killed_at_every_point(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    events = write_input(tmp_path)
    for points in kills:
        drivers.die(points, updates_job.main, tmp_path, MASTER)
    job = updates_job.main(tmp_path)
    assert job.metrics.rows_late == 0
    for table, expected in TABLES.items():
        rows = query(expected, events=events).to_arrow_table()
        found = load(tmp_path, f"db.{table}").scan().to_arrow().select(rows.column_names)
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, rows.to_pylist())), table
    rows, again, arrivals = (
        load(tmp_path, f"db.{name}").scan().to_arrow() for name in ("arrived", "again", "arrivals")
    )
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, again.to_pylist()))
    times = query(
        "select \"user\", date_trunc('second', arrived) as at, count(*) as n from rows group by all", rows=rows
    )
    found = arrivals.select(["user", "window_start", "n"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(times.fetchall())

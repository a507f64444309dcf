"""Jobs with series and filled gaps are killed at every point: all rows are those of one query in DuckDB."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.duck import query
from tests.recovery import series_job
from tests.recovery.rows import START, read_back
from tests.recovery.runs import load
from tests.tiers import deaths

pytestmark = pytest.mark.usefixtures("spark")

FILES, ROWS = 5, 200
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "user": pa.string(),
        "price": pa.float64(),
        "count": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
    }
)
MASTER = "local[2,4]"
Row = dict[str, Any]


def write_input(folder: Path) -> pa.Table:
    """Files of two minutes each, whose rows come in any order; a tenth is late. Returns the rows that are not."""
    dice = random.Random(3)
    (folder / "in").mkdir()
    on_time: list[Row] = []
    watermark: datetime | None = None
    for file in range(FILES):
        rows: list[Row] = []
        for place in range(ROWS):
            second = 120 * file + dice.randrange(120) - (200 if dice.random() < 0.1 else 0)
            at = START + timedelta(seconds=second, microseconds=file * ROWS + place)
            # A few users have rows rarely, so that they have gaps.
            user = dice.choice(["a", "b", None]) if dice.random() < 0.95 else str(dice.randrange(8))
            rows.append(
                {"id": file * ROWS + place, "user": user, "price": dice.randrange(100) / 4, "count": place, "at": at}
            )
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "in" / f"{file}.parquet")
        on_time += [row for row in rows if watermark is None or row["at"] >= watermark]
        watermark = max(row["at"] for row in on_time) - timedelta(seconds=series_job.LATENESS)
    return pa.Table.from_pylist(on_time, SCHEMA)


SERIES = """
    with paused as (select *, coalesce("at" - lag("at") over w >= interval '20 seconds', true)::int as begins
        from events window w as (partition by user order by "at")),
    numbered as (select *, sum(begins) over (partition by user order by "at") as session from paused)
    select id, user, sum(price) over (w range between interval '89.999999 seconds' preceding and current row) as total,
        lag(id) over w as before,
        case when count < lag(count) over w then count else count - lag(count) over w end as grown,
        min("at") over (partition by user, session) as begun
    from numbered window w as (partition by user order by "at")
"""


def check(folder: Path, on_time: pa.Table) -> None:
    """Compare the series with DuckDB's, and the minutes: no gap is left between two of a user."""
    expected = query(SERIES, events=on_time).to_arrow_table().to_pylist()
    found = read_back(load(folder, "db.series"), ["id", "user", *series_job.FUNCTIONS])
    assert sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, expected)))

    minutes = load(folder, "db.minutes").scan().to_arrow()
    counted = query("select user, window_start, n from minutes where n > 0", minutes=minutes)
    windows = """select user, time_bucket(interval '1 minute', "at") as window_start, count(*) as n
        from events group by all"""
    assert sorted(map(repr, counted.fetchall())) == sorted(map(repr, query(windows, events=_open(folder)).fetchall()))
    filled = query(
        """select count(*) from (select *, lag(window_end) over w as ended, lag(latest) over w as before from minutes
        window w as (partition by user order by window_start))
        where ended <> window_start or (n = 0 and (latest is distinct from before or mean is null))""",
        minutes=minutes,
    )
    assert filled.fetchone() == (0,)
    assert query("select count(*) > 5 from minutes where n = 0", minutes=minutes).fetchone() == (True,)


def _open(folder: Path) -> pa.Table:
    """The rows that are in a window: a window is open until the watermark has passed its end, not the row."""
    minute = timedelta(minutes=1)
    rows: list[Row] = []
    watermark: datetime | None = None
    for file in range(FILES):
        for row in pq.read_table(folder / "in" / f"{file}.parquet").to_pylist():
            end = START + ((row["at"] - START) // minute + 1) * minute
            if watermark is None or end > watermark:
                rows.append(row)
        watermark = max(row["at"] for row in rows) - timedelta(seconds=series_job.LATENESS)
    return pa.Table.from_pylist(rows, SCHEMA)


def _plain(row: Row) -> list[Any]:
    return [value.isoformat() if isinstance(value, datetime) else value for value in row.values()]


KILLS = ["in-task@0,after-partials@1", "after-merge@1", "after-state@2", "between-commits@3", "after-commit@4"]


@pytest.mark.parametrize("kills", deaths(KILLS, 2))
def test_killed_at_every_point(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    on_time = write_input(tmp_path)
    for points in kills:
        drivers.die(points, series_job.main, tmp_path, MASTER)
    series_job.main(tmp_path)
    check(tmp_path, on_time)

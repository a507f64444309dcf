"""Jobs that join streams are killed at every point of their state: no pair is lost, doubled or different."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.recovery import joined_streams
from tests.recovery.joined_streams import LATENESS, WITHIN
from tests.recovery.rows import START, read_back
from tests.recovery.runs import load
from tests.stream_joins.reference import Row, batch_join, on_time
from tests.tiers import deaths
from volley.plan.joins import FILTERS, How
from volley.task.failpoints import WINDOW_POINTS

pytestmark = pytest.mark.usefixtures("spark")

FILES, ROWS = 5, 200
TIME = pa.timestamp("us", "UTC")
ADS = pa.schema({"id": pa.int64(), "user": pa.string(), "at": TIME})
CLICKS = pa.schema({"visitor": pa.string(), "click": pa.int64(), "then": TIME})
MASTER = "local[2,4]"


def write_input(folder: Path) -> list[list[list[Row]]]:
    """For each side, files of a minute each, whose rows come in any order; some are up to three minutes late."""
    dice = random.Random(11)
    sides: list[list[list[Row]]] = []
    for name, schema in (("ads", ADS), ("clicks", CLICKS)):
        user, number, time = ("user", "id", "at") if name == "ads" else ("visitor", "click", "then")
        (folder / name).mkdir()
        sides.append([])
        for file in range(FILES):
            minutes = [file - (3 if dice.random() < 0.05 else 0) for _ in range(ROWS)]
            rows = [
                {
                    user: dice.choice([None, *map(str, range(40))]),
                    number: file * ROWS + place,
                    time: START + timedelta(minutes=minute, milliseconds=dice.randrange(60_000)),
                }
                for place, minute in enumerate(minutes)
            ]
            pq.write_table(pa.Table.from_pylist(rows, schema), folder / name / f"{file}.parquet")
            sides[-1].append(rows)
    return sides


def check(folder: Path, sides: list[list[list[Row]]]) -> None:
    """Compare the tables with DuckDB's joins of the rows that are on time."""
    rows, late = on_time(sides, ("at", "then"), LATENESS)
    assert late > 0
    seconds = WITHIN.total_seconds()
    on = f"""l.user = r.visitor and r."then" between l."at" and l."at" + interval {seconds:g} second"""
    for how in get_args(How):
        names = [*ADS.names, *([] if how in FILTERS else ["click", "then"])]
        columns = [f'"{name}"' for name in names]
        if how in ("right", "full"):
            columns[names.index("user")] = 'coalesce("user", visitor) as "user"'
        expected = batch_join(rows, (ADS, CLICKS), how, on, ", ".join(columns)).to_pylist()
        found = read_back(load(folder, f"db.{how}"), names)
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), how


KILLS = ["in-task@0,after-partials@0", "after-merge@1", "after-state@2", "between-commits@3", "after-commit@4"]


@pytest.mark.parametrize("kills", deaths(KILLS, 2))
def test_killed_at_every_point(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    sides = write_input(tmp_path)
    for points in kills:
        drivers.die(points, joined_streams.main, tmp_path, MASTER)
    joined_streams.main(tmp_path)
    check(tmp_path, sides)


def test_every_point_is_met() -> None:
    assert {each.partition("@")[0] for points in KILLS for each in points.split(",")} >= {*WINDOW_POINTS}

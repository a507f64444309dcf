"""A job that compares extracts is killed at every point: the table is the last extract, and no change is told twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery import compared
from tests.recovery.rows import SCHEMA, START, Row, compare, nested, read_back, write_file
from tests.recovery.runs import load
from tests.tiers import deaths

pytestmark = pytest.mark.usefixtures("spark")

EXTRACTS = 6
KILLS = [
    *("in-task@0,before-planning@1", "after-partials@1", "after-merge@1", "after-state@2", "after-files@2"),
    *("between-commits@3", "after-commit@3", "before-commit@4", "before-checkpoint@4"),
]


def extracts() -> list[dict[int, Row]]:
    """Of each extract some rows stay, some change, some go."""
    dice, rows, all_of_them = random.Random(5), dict[int, Row](), []
    for _ in range(EXTRACTS):
        rows = {id: row for id, row in rows.items() if dice.random() < 0.9}
        for id in dice.sample(range(600), 150):
            rows[id] = nested(dice, id, START)
        all_of_them.append(dict(rows))
    return all_of_them


def write_input(folder: Path) -> None:
    for day, rows in enumerate(extracts()):
        path = folder / "in" / f"day={day}"
        path.mkdir(parents=True)
        # Two files, read by different tasks.
        both = list(rows.values())
        for part in range(2):
            write_file(path / f"{part}.parquet", both[part::2])


def check(folder: Path) -> None:
    """Compare the upserted table with the last extract, and the log with the differences of all."""
    *_, last = extracts()
    found = compare(last.values(), read_back(load(folder, "db.last"), SCHEMA.names))
    assert (found.lost, found.doubled, found.changed) == (0, 0, 0)
    assert found.found == len(last)
    expected, before = list[Row](), dict[int, Row]()
    for day, rows in enumerate(extracts()):
        expected += [{"id": id, "day": day, "_change": "insert"} for id in rows.keys() - before.keys()]
        expected += [{"id": id, "day": day, "_change": "delete"} for id in before.keys() - rows.keys()]
        changed = [id for id in rows.keys() & before.keys() if repr(rows[id]) != repr(before[id])]
        expected += [{"id": id, "day": day, "_change": "update_after"} for id in changed]
        before = rows
    told = read_back(load(folder, "db.log"), ["id", "day", "_change"])
    assert sorted(map(repr, told)) == sorted(map(repr, expected))
    assert {row["_change"] for row in expected} == {"insert", "update_after", "delete"}


@pytest.mark.parametrize("kills", deaths(KILLS, 3))
def test_killed(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    write_input(tmp_path)
    for points in kills:
        drivers.die(points, compared.main, tmp_path, "local[2,4]")
    compared.main(tmp_path)
    check(tmp_path)

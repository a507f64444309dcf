"""A job with forks and joins is killed at every point: each of its tables holds each of its rows exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import Drivers
from tests.recovery import branching
from tests.recovery.runs import load
from tests.tiers import nightly
from volley.task.failpoints import POINTS, TASK_POINTS

pytestmark = pytest.mark.usefixtures("spark")

FILES = 5
ROWS_PER_FILE = 120

# A task may be done four times.
MASTER = "local[2,4]"
# First only some of the tables have epoch 1; later all have epoch 2, but Spark has not logged it as done.
BEFORE_COMMITS = ["in-task@0,before-planning@1", "after-task@1,before-files@1", "after-files@1"]
AT_COMMITS = ["between-commits@1", "before-commit@2", "after-commit@2", "before-checkpoint@2", "in-recovery@2"]


def rows_of(source: str) -> list[dict[str, Any]]:
    """Rows of which some have no price, or none above zero."""
    start = 0 if source == "left" else 10_000
    return [
        {"id": start + number, "price": None if number % 11 == 0 else number % 7 - 2}
        for number in range(FILES * ROWS_PER_FILE)
    ]


def is_bad(row: dict[str, Any]) -> bool:
    """True for the rows that are written in a form that can't be read."""
    return bool(row["id"] % 50 == 49)


def write_input(folder: Path) -> None:
    for source in branching.SOURCES:
        (folder / source).mkdir()
        rows = rows_of(source)
        for number in range(FILES):
            lines = [
                json.dumps({**row, "price": "free"} if is_bad(row) else row) + "\n"
                for row in rows[number * ROWS_PER_FILE : (number + 1) * ROWS_PER_FILE]
            ]
            (folder / source / f"{number}.json").write_text("".join(lines))


def check(folder: Path) -> None:
    """Compare each table with the input, row by row and value by value."""
    left, right = ([row for row in rows_of(source) if not is_bad(row)] for source in branching.SOURCES)
    paid = [row for row in left + right if row["price"] is not None and row["price"] > 0]
    assert read(folder, "paid") == [{**row, "twice": row["price"] * 2} for row in paid]
    assert read(folder, "rest") == [row for row in left + right if row not in paid]
    assert read(folder, "ids") == [{"id": row["id"]} for row in left]
    letters = load(folder, "db.bad").scan().to_arrow().to_pylist()
    bad = [row for source in branching.SOURCES for row in rows_of(source) if is_bad(row)]
    assert sorted(json.loads(letter["payload"])["id"] for letter in letters) == [row["id"] for row in bad]


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    return list(load(folder, f"db.{table}").scan().to_arrow().sort_by("id").to_pylist())


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(AT_COMMITS[2:3], id="one"),
        nightly(BEFORE_COMMITS, id="before commits"),
        nightly(AT_COMMITS, id="at commits"),
    ],
)
def test_killed(drivers: Drivers, points: list[str], tmp_path: Path) -> None:
    write_input(tmp_path)
    for each in points:
        # One takes its JVM along.
        (Drivers() if each == "after-commit@2" else drivers).die(each, branching.main, tmp_path, MASTER)
    branching.main(tmp_path)
    check(tmp_path)


@pytest.mark.nightly
def test_killed_in_tasks(drivers: Drivers, tmp_path: Path) -> None:
    write_input(tmp_path)
    for epoch, point in enumerate(TASK_POINTS):
        drivers.die(f"{point}@{epoch}", branching.main, tmp_path, MASTER, kill_driver=True)
    branching.main(tmp_path)
    check(tmp_path)


def test_every_point_is_met() -> None:
    met = {each.partition("@")[0] for points in (*BEFORE_COMMITS, *AT_COMMITS) for each in points.split(",")}
    assert met >= {*POINTS, "in-recovery"}

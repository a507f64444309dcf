"""Jobs that remember rows are killed at every point: what a dead run has seen is known to the next one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.kinds import KINDS
from tests.drivers import Drivers
from tests.recovery import stateful
from tests.recovery.rows import SCHEMA, Row, compare, read_back, write_file
from tests.recovery.runs import load
from tests.tiers import deaths
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS, WINDOW_POINTS

pytestmark = pytest.mark.usefixtures("spark")

FILES = 6
DEDUPLICATED = ("deduplicate", "deduplicate_within")
COLUMNS = (*SCHEMA.names, "kind")


def files_of(kind: str) -> list[list[Row]]:
    """Rows with duplicates in their own file and in those before."""
    return [KINDS[kind].rows(random.Random(f"{kind} {number}"), number) for number in range(FILES)]


def write_input(folder: Path, files: range = range(FILES)) -> None:
    for kind in DEDUPLICATED:
        (folder / kind).mkdir(exist_ok=True)
        for number in files:
            write_file(folder / kind / f"{number}.parquet", files_of(kind)[number])


def check(folder: Path) -> None:
    """Compare both tables with the input, row by row and value by value."""
    first = [row | {"kind": kind} for kind in DEDUPLICATED for row in KINDS[kind].expected(files_of(kind))]
    last = {(row["kind"], row["id"] % stateful.SLOTS): row for row in sorted(first, key=lambda row: row["id"])}
    for table, expected in (("first", first), ("last", list(last.values()))):
        found = compare(expected, read_back(load(folder, f"db.{table}"), COLUMNS))
        assert (found.lost, found.doubled, found.changed) == (0, 0, 0), table
        assert found.found == len(expected)


BEFORE_COMMITS = [
    "in-task@0,before-planning@1",
    "after-task@1,before-files@2",
    "in-task@2,after-partials@3",
    "after-merge@3",
    "after-state@3",
    "after-files@4",
]
# A task may be done four times.
MASTER = "local[2,4]"
# The first of two sinks has epoch 3, then both have it; both have epoch 4, which Spark does not know.
AT_COMMITS = [
    *("after-executor-task@0,between-commits@1", "before-commit@2", "after-commit@3", "after-commit@3"),
    *("in-recovery@3", "before-checkpoint@4"),
]


@pytest.mark.nightly
def test_killed_before_commits(drivers: Drivers, tmp_path: Path) -> None:
    write_input(tmp_path)
    for points in BEFORE_COMMITS:
        drivers.die(points, stateful.main, tmp_path, MASTER)
    stateful.main(tmp_path)
    check(tmp_path)


@pytest.mark.parametrize("kills", deaths(AT_COMMITS, 2))
def test_killed_at_commits(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    write_input(tmp_path)
    for points in kills:
        # One takes its JVM along, with what that knows of the state.
        (Drivers() if points == "before-commit@2" else drivers).die(points, stateful.main, tmp_path, MASTER)
    stateful.main(tmp_path)
    check(tmp_path)


@pytest.mark.nightly
def test_killed_in_tasks(drivers: Drivers, tmp_path: Path) -> None:
    write_input(tmp_path)
    for epoch, point in enumerate((*TASK_POINTS, EXECUTOR_TASK_POINT), start=1):
        drivers.die(f"{point}@{epoch}", stateful.main, tmp_path, MASTER, kill_driver=True)
    stateful.main(tmp_path)
    check(tmp_path)


def test_every_point_is_met() -> None:
    met = {each.partition("@")[0] for points in (*BEFORE_COMMITS, *AT_COMMITS) for each in points.split(",")}
    assert met >= {*POINTS, *WINDOW_POINTS, "in-recovery"}

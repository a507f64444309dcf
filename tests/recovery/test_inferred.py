"""Drivers die around what was seen of new columns: it is kept, or seen again, and each row is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery import inferring, told
from tests.recovery.runs import load
from tests.tiers import some
from volley.task.failpoints import LEARNED_POINT, SCHEMA_POINT

pytestmark = pytest.mark.usefixtures("spark")

# The first file's columns are known before its epoch. The second one has a column more, the third one two.
POINTS = [
    *(f"{LEARNED_POINT}@1", "before-learned@1", f"{SCHEMA_POINT}@4", f"{SCHEMA_POINT}@3", "before-commit@1"),
    *("after-commit@1", "before-learned@2", f"{LEARNED_POINT}@2", f"{SCHEMA_POINT}@5", "before-checkpoint@2"),
]
# The table's schema changes once less.
TOLD_POINTS = [point for point in POINTS if point != f"{SCHEMA_POINT}@3"]


def check(folder: Path) -> None:
    table = load(folder)
    rows = table.scan().to_arrow().sort_by("id")
    assert rows.to_pylist() == [{name: row[name] for name in rows.column_names} for row in inferring.expected()]
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert epochs == ["0", "1", "2"]


@pytest.mark.parametrize("point", some(POINTS))
def test_killed_between_what_was_seen_and_the_rows(drivers: Drivers, tmp_path: Path, point: str) -> None:
    inferring.write(tmp_path)
    drivers.die(point, inferring.run, tmp_path, "local[1]")
    inferring.run(tmp_path)
    check(tmp_path)


@pytest.mark.nightly
def test_killed_again_and_again(drivers: Drivers, tmp_path: Path) -> None:
    inferring.write(tmp_path)
    for point in (f"{LEARNED_POINT}@1", "before-commit@1", "before-learned@2", f"{LEARNED_POINT}@2", "after-files@2"):
        drivers.die(point, inferring.run, tmp_path, "local[1]")
    inferring.run(tmp_path)
    check(tmp_path)


@pytest.mark.parametrize("point", some(TOLD_POINTS))
def test_killed_between_a_schema_that_a_message_tells_and_its_rows(
    drivers: Drivers, tmp_path: Path, point: str
) -> None:
    told.write(tmp_path)
    drivers.die(point, told.run, tmp_path, "local[1]")
    told.run(tmp_path)
    table = load(tmp_path)
    assert table.scan().to_arrow().sort_by("id").select(list(told.ROWS[0])).to_pylist() == told.ROWS
    # The deletes of an epoch are a snapshot of their own.
    marks = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert [epoch for epoch in marks if epoch] == ["0", "1", "2"]

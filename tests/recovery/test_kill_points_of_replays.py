"""A replay is killed at every point: each row is in each table once, and each letter is marked, or tells why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import Drivers
from tests.recovery import replaying
from tests.recovery.runs import load
from tests.tiers import nightly
from volley.task.failpoints import POINTS, TASK_POINTS

pytestmark = pytest.mark.usefixtures("spark")

FILES, ROWS_PER_FILE = 2, 60
HUGE = 5_000_000_000
# The dead letter is committed first, then the tables, one after the other.
BEFORE_COMMITS = [
    "before-planning@0",
    "before-files@0",
    "in-task@0",
    "after-task@0",
    "after-files@0",
    "before-commit@0",
]
AT_COMMITS = ["after-commit@0", "between-commits@0", "after-commit@0", "before-checkpoint@0", "in-recovery@0"]


def price(number: int) -> object:
    """Numbers, numbers as texts, texts that are no numbers, and numbers that are too large for one of the tables."""
    return {3: str(number), 5: "n/a", 7: HUGE, 9: str(HUGE)}.get(number % 10, number)


def write_input(folder: Path) -> None:
    (folder / "in").mkdir()
    for file in range(FILES):
        numbers = range(file * ROWS_PER_FILE, (file + 1) * ROWS_PER_FILE)
        lines = [json.dumps({"id": number, "price": price(number)}) + "\n" for number in numbers]
        (folder / "in" / f"{file}.json").write_text("".join(lines))


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    return list(load(folder, f"db.{table}").scan().to_arrow().sort_by("id").to_pylist())


def check(folder: Path) -> None:
    """Compare the tables with the input, row by row and value by value, and the letters with what is left."""
    numbers = [(number, price(number)) for number in range(FILES * ROWS_PER_FILE)]
    known = [{"id": number, "price": int(str(value))} for number, value in numbers if value != "n/a"]
    assert read(folder, "prices") == known
    assert read(folder, "small") == [{"id": row["id"], "small": row["price"]} for row in known if row["price"] != HUGE]
    letters = load(folder, "db.bad").scan().to_arrow().to_pylist()
    told = {json.loads(letter["payload"])["id"]: letter for letter in letters}
    assert len(told) == len(letters)
    assert sorted(told) == [number for number, _ in numbers if number % 10 in (3, 5, 7, 9)]
    # What is no number failed in the reader before; what is too large for one table fails there again.
    for number, letter in told.items():
        assert (letter["replayed"] is not None) == (number % 10 == 3)
        sinks = {5: ["db.prices", "db.small"], 7: ["db.small"], 9: ["db.small"]}.get(number % 10)
        assert sinks is None or json.loads(letter["sinks"]) == sinks
        assert number % 10 != 5 or "n/a" in letter["error"]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(AT_COMMITS[:1], id="one"),
        nightly(BEFORE_COMMITS, id="before commits"),
        nightly(AT_COMMITS, id="at commits"),
    ],
)
def test_killed(drivers: Drivers, points: list[str], tmp_path: Path) -> None:
    write_input(tmp_path)
    replaying.broken(tmp_path)
    for each in points:
        drivers.die(each, replaying.mended, tmp_path)
    replaying.mended(tmp_path)
    check(tmp_path)
    again = replaying.mended(tmp_path)
    assert (again.progress.rows, again.progress.replayed) == (0, 0)
    check(tmp_path)


def test_every_point_is_met() -> None:
    met = {each.partition("@")[0] for each in (*BEFORE_COMMITS, *AT_COMMITS)}
    assert met >= {*POINTS, *TASK_POINTS, "in-recovery"}

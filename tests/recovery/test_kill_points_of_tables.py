"""Jobs that follow tables are killed at every point, while the tables go on or back: the copies equal the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.drivers import Drivers
from tests.recovery.following import main, table
from tests.recovery.runs import load
from tests.tiers import nightly
from tests.upserts.lake import Lake
from volley.iceberg import Upsert
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS

pytestmark = pytest.mark.usefixtures("spark")

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "tags": pa.list_(pa.string()), "op": pa.string()})
# After the first death behind a commit one sink has epoch 5, after the second both have it.
KILLS = [
    *("in-task@0,before-planning@1", "after-task@1,before-files@2", "after-files@2", "between-commits@3"),
    *(
        "before-commit@4",
        "after-commit@5",
        "after-commit@5",
        "in-recovery@5",
        "before-checkpoint@6",
        f"{EXECUTOR_TASK_POINT}@7",
    ),
]

# After these deaths snapshots are rolled back that the copy has; the epoch that takes them back is cut short as well.
ROLLED_BACK = ("after-files@2", "before-commit@4", "before-checkpoint@6")


class Writer:
    """Upserts and deletes rows of one table, and appends to another."""

    def __init__(self, folder: Path, strategy: Literal["copy_on_write", "merge_on_read"]) -> None:
        self._lake = Lake(folder, Upsert(["id"], op_field="op", strategy=strategy), SCHEMA)
        self._folder = folder
        self._number = 0
        self.write()
        self._lake.table().catalog.create_table("db.log", pa.schema({"id": pa.int64(), "text": pa.string()}))
        self.write()

    def write(self) -> None:
        """Change the first table, which has rows of some ids again and again, and append to the second."""
        number, self._number = self._number, self._number + 1
        rows: list[dict[str, Any]] = [
            {"id": id % 300, "name": f"{number}-{id}" if id % 11 else None, "tags": [None, "x"][: id % 3], "op": "u"}
            for id in range(number * 40, number * 40 + 120)
        ]
        self._lake.epoch([row | {"op": "d"} if row["id"] % 13 == number % 13 else row for row in rows])
        if number:
            added = [{"id": number * 100 + id, "text": f"row {id}"} for id in range(100)]
            table(self._folder, "log").load().append(pa.Table.from_pylist(added))

    def roll_back(self) -> None:
        """Set the first table back by two snapshots, both of which the copy has or may have."""
        loaded = self._lake.table()
        *_, before, _, _ = loaded.history()
        loaded.manage_snapshots().set_current_snapshot(before.snapshot_id).commit()


def rows_of(loaded: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = loaded.scan().to_arrow().sort_by("id").to_pylist()
    return rows


def check(folder: Path) -> None:
    """Compare both copies with their tables, row by row."""
    assert rows_of(load(folder, "db.copy")) == rows_of(load(folder))
    expected = [row for row in rows_of(load(folder, "db.log")) if row["id"] % 7]
    assert rows_of(load(folder, "db.log_copy")) == expected
    assert expected


@pytest.mark.parametrize(
    ("strategy", "kills"),
    [
        pytest.param("merge_on_read", ["after-files@2"], id="one"),
        nightly("merge_on_read", KILLS, id="merge on read, all"),
        nightly("copy_on_write", KILLS, id="copy on write, all"),
    ],
)
def test_killed(
    strategy: Literal["copy_on_write", "merge_on_read"], kills: list[str], drivers: Drivers, tmp_path: Path
) -> None:
    writer = Writer(tmp_path, strategy)
    for kill in kills:
        writer.write()
        by_task = kill.startswith(EXECUTOR_TASK_POINT)
        drivers.die(kill, main, tmp_path, "local[2,4]", kill_driver=by_task)
        # The table changes between the death and the next run, too.
        if kill in ROLLED_BACK:
            writer.roll_back()
        writer.write()
    main(tmp_path)
    check(tmp_path)


def test_every_point_is_met() -> None:
    met = {each.partition("@")[0] for kill in KILLS for each in kill.split(",")}
    assert met >= {*POINTS, *TASK_POINTS, EXECUTOR_TASK_POINT, "in-recovery"}

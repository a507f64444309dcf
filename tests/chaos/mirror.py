"""Chaos of two jobs: one upserts a table, the other keeps a copy of it by its changes; both are killed in turn."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.types import StringType

from tests.drivers import Drivers, await_end
from tests.recovery.runs import load
from tests.waiting import wait_until
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    Job,
    Pipeline,
)
from volley.iceberg import Batch, Incremental, TableRef, Upsert
from volley.iceberg.source_config import ReadMode
from volley.spark.log import SparkLog
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS

__all__ = ["check", "feed", "follow", "next_epoch", "run", "write"]

_SCHEMA = "id long, name string, tags array<string>, op string"
_IDS = 400
_ROWS = 60
_TASK_POINTS = (*TASK_POINTS, EXECUTOR_TASK_POINT)
# An epoch that is not committed yet meets these points.
_POINTS = (*POINTS, *_TASK_POINTS)


def _table(folder: Path, name: str) -> TableRef:
    return TableRef("db", name, IcebergStorage.Local(str(folder / "lake")))


def _sink(folder: Path, name: str, op_field: str) -> IcebergSink:
    config = IcebergSinkConfig.from_table(_table(folder, name)).with_max_records(50)
    return IcebergSink(config.with_commit_mode(Upsert(["id"], op_field=op_field)))


def write(folder: Path) -> Job:
    """Upsert the table ``events`` with the rows of each file, one file an epoch."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    source = FileSource(folder / "in", format="json", schema=_SCHEMA, max_files_per_epoch=1)
    return environment.from_source(source).to_sink(_sink(folder, "events", "op")).execute("write")


def follow(folder: Path) -> Job:
    """Keep the table ``copy`` the same as ``events``, one snapshot an epoch."""
    return _followed(folder, Batch()).execute("follow")


def watch(folder: Path) -> None:
    """The same without an end."""
    await_end(_followed(folder, Incremental(0.1)).start("follow"))


def _followed(folder: Path, mode: ReadMode) -> Pipeline:
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"), checkpoint_interval=0)
    source = IcebergSourceConfig(_table(folder, "events")).with_changes("follow", "id").with_max_rows_per_epoch(1)
    changes = environment.from_source(IcebergSource(source.with_mode(mode))).drop("_snapshot", "_committed_at")
    return changes.to_sink(_sink(folder, "copy", "_change"))


def widen(folder: Path, number: int) -> None:
    """Add a column to ``events`` as another writer, and rows that have it, one snapshot after the other."""
    column = f"extra_{number}"
    table = load(folder)
    with table.update_schema() as update:
        update.add_column(column, StringType())
    for place in range(3):
        row = {"id": _IDS + 10 * number + place, "name": "other", column: f"{number}.{place}"}
        table = load(folder)
        table.append(
            pa.Table.from_pylist([row], pa.schema([("id", pa.int64()), ("name", pa.string()), (column, pa.string())]))
        )
        with (folder / "widened").open("a") as log:
            log.write(json.dumps(row) + "\n")


def feed(folder: Path, dice: random.Random, file: int) -> None:
    """Write a file with new, changed and deleted rows; an id may come more than once."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "id": dice.randrange(_IDS),
            "name": dice.choice([None, "", f"{file}"]),
            "tags": dice.choice([None, [], [None, "x"]]),
            "op": "d" if dice.random() < 0.2 else "u",
        }
        for _ in range(_ROWS)
    ]
    (folder / "in" / f"{file:06}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def check(folder: Path) -> None:
    """Compare the table with its input, and the copy with the table, row by row."""
    expected: dict[int, dict[str, Any]] = {}
    for path in sorted((folder / "in").glob("*.json")):
        for row in map(json.loads, path.read_text().splitlines()):
            expected.pop(row["id"], None)
            if row.pop("op") != "d":
                expected[row["id"]] = row
    widened = folder / "widened"
    for row in map(json.loads, widened.read_text().splitlines() if widened.exists() else ()):
        expected[row["id"]] = row
    columns = [field.name for field in load(folder).schema().fields]
    for name in ("events", "copy"):
        rows = load(folder, f"db.{name}").scan().to_arrow().sort_by("id").to_pylist()
        assert rows == [{column: expected[id].get(column) for column in columns} for id in sorted(expected)], name


def run(drivers: Drivers, folder: Path, kills: int, seed: int, check_every: int = 10) -> int:
    """Kill both jobs in turn until so many have died; returns how often all rows were compared.

    Args:
        drivers: Run the jobs.
        folder: An empty folder.
        kills: How often a driver dies.
        seed: Repeats the schedule.
        check_every: After so many deaths both jobs run to their end, and all rows are compared.
    """
    dice, checks = random.Random(seed), 0
    feed(folder, dice, 0)
    write(folder)
    for number in range(kills):
        feed(folder, dice, 2 * number + 1)
        feed(folder, dice, 2 * number + 2)
        job = write if number % 2 == 0 else follow
        point = dice.choice(_POINTS)
        if job is follow:
            # New snapshots to follow.
            assert drivers.run(write, folder) == 0
        epoch = next_epoch(folder, job.__name__)
        # The next epoch may be in the table already, if the driver died after the commit: it passes few points then.
        armed = f"{point}@{epoch},{point}@{epoch + 1}"
        if job is follow and number % 4 == 1:
            _die_with_another_schema(drivers, folder, number, epoch, point)
        else:
            drivers.die(armed, job, folder, kill_driver=point in _TASK_POINTS)
        if (number + 1) % check_every == 0:
            write(folder)
            follow(folder)
            check(folder)
            checks += 1
    return checks


def _die_with_another_schema(drivers: Drivers, folder: Path, number: int, epoch: int, point: str) -> None:
    """Kill an endless follower behind the first snapshot of another schema, or in its epoch."""
    armed = ",".join(f"{point}@{epoch + more}" for more in range(2, 5))
    driver = drivers.start(watch, folder, failpoint=armed, kill_driver=point in _TASK_POINTS)
    begun = folder / "checkpoints" / "follow" / "commits" / str(epoch)
    wait_until(lambda: begun.exists() or not driver.is_alive(), 120, "the follower's first epoch")
    widen(folder, number)
    assert drivers.wait(driver) == -signal.SIGKILL


def next_epoch(folder: Path, job: str) -> int:
    """Return the epoch that the next run of a job begins with."""
    log = SparkLog(str(folder / "checkpoints" / job))
    if log.unfinished is not None:
        return log.unfinished
    return 0 if log.last_planned is None else log.last_planned + 1

"""Chaos of jobs that join a table: they die at every point, and the table changes, back too, expires, is made anew."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from tests.drivers import Drivers
from tests.recovery import joined
from tests.recovery.joined import Row
from tests.recovery.joined_history import (
    current_history,
    joined_by_duckdb,
    known_since,
    read_orders,
    write_timed_orders,
)
from tests.recovery.runs import load
from volley.iceberg import SnapshotManager
from volley.spark.log import SparkLog
from volley.stream.joins import MAX_BYTES
from volley.task.failpoints import BUCKET_POINT, JOIN_POINTS, POINTS, TASK_POINTS

__all__ = ["run"]

_POINTS = (*POINTS, *JOIN_POINTS, BUCKET_POINT, *TASK_POINTS)
_CHANGES = ("change", "change", "remake", "roll back", "expire", "nothing")


@dataclass
class _Job:
    """A job, its table, and the rows that each epoch has to give.

    Args:
        folder: An empty folder.
        deduplicated: True if the join stands before a step that keeps state.
        max_bytes: The most bytes of the table's rows in memory.
    """

    folder: Path
    deduplicated: bool
    max_bytes: int = MAX_BYTES
    files: int = 0
    current: int = 0
    last: int = 0
    rows: dict[int, list[Row]] = field(default_factory=dict)
    as_of: ClassVar[str | None] = None

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        joined.create_customers(self.folder, 0)

    def change(self, how: str) -> None:
        """Change the table, in which every row has the number of the last change."""
        manager = SnapshotManager(joined.table(self.folder))
        snapshot = manager.current_snapshot()
        self.last += how != "nothing"
        before, self.current = self.current, self.current if how == "nothing" else self.last
        match how:
            case "change" | "roll back" | "expire":
                joined.change_customers(self.folder, self.last)
            case "remake":
                joined.remake_customers(self.folder, self.last)
        if how == "roll back" and snapshot is not None:
            manager.rollback_to(snapshot.id)
            self.current = before
        if how == "expire":
            manager.expire_snapshots(older_than=datetime.now(UTC) + timedelta(days=1), retain_last=1)

    def feed(self) -> None:
        joined.write_orders(self.folder, range(self.files, self.files + 2))
        self.files += 2

    def die(self, drivers: Drivers, point: str) -> None:
        """Die at a point of the next epoch, or of the one after it if that is committed already."""
        if point == BUCKET_POINT:
            # Only a table with rows that no epoch had is written.
            self.change("change")
        epoch = self._next_epoch()
        armed = f"{point}@{epoch},{point}@{epoch + 1}"
        drivers.die(armed, joined.main, *self._job, kill_driver=point in TASK_POINTS)
        self.note()

    def finish(self, drivers: Drivers) -> None:
        """Run to the end, and compare all rows of both sinks."""
        assert drivers.run(joined.main, *self._job) == 0
        # The job has deleted what told of the first epochs of this run.
        self._note(range(self.files))
        joined.check_rows(self.folder, [row for rows in self.rows.values() for row in rows])

    def note(self) -> None:
        """Note the rows of the epochs that were bound in this run to a version of the table: its current one."""
        self._note(int(pin.stem) for pin in (self.folder / "checkpoints").rglob("joins/*/*.json"))

    def _note(self, epochs: Iterable[int]) -> None:
        for epoch in {*epochs} - self.rows.keys():
            self.rows[epoch] = self._expected(epoch)

    def _expected(self, epoch: int) -> list[Row]:
        """The rows of an epoch that is bound to the table's current version."""
        return joined.expected(epoch, self.current)

    @property
    def _job(self) -> tuple[Path, bool, int, str | None]:
        return self.folder, self.deduplicated, self.max_bytes, self.as_of

    def _next_epoch(self) -> int:
        log = SparkLog(str(self.folder / "checkpoints" / "joined"))
        if log.unfinished is not None:
            return log.unfinished
        return 0 if log.last_planned is None else log.last_planned + 1


@dataclass
class _TimedJob(_Job):
    """A job that joins each row with those that the table had at its time; older rows than its history are bad."""

    bad: set[int] = field(default_factory=set)
    as_of: ClassVar[str | None] = "at"

    def feed(self) -> None:
        for epoch in range(self.files, self.files + 2):
            write_timed_orders(self.folder, epoch)
        self.files += 2

    def finish(self, drivers: Drivers) -> None:
        """Compare the dead letters, too."""
        super().finish(drivers)
        for sink in joined.SINKS if self.bad else ():
            letters = load(self.folder, f"db.{joined.bad_rows(sink)}").scan().to_arrow().column("payload").to_pylist()
            assert sorted(json.loads(letter)["id"] for letter in letters) == sorted(self.bad), sink

    def _expected(self, epoch: int) -> list[Row]:
        rows = joined_by_duckdb(read_orders(self.folder, epoch), current_history(self.folder))
        since = known_since(self.folder)
        bad = {row["id"] for row in rows if since is not None and row["at"] < since}
        self.bad |= bad
        return [row for row in rows if row["id"] not in bad]


def run(drivers: Drivers, folder: Path, kills: int, seed: int, check_every: int = 10) -> Counter[str]:
    """Kill jobs of each path, with a small and a large table and with its history, in turn until so many have died.

    Returns:
        Where they died, and how the table changed.

    Args:
        drivers: Run the jobs.
        folder: An empty folder.
        kills: How often a driver dies.
        seed: Repeats the schedule.
        check_every: After so many deaths all jobs run to their end, and all rows are compared.
    """
    dice, happened = random.Random(seed), Counter[str]()
    forms, sizes = {"plain": False, "deduplicated": True}, {"small": MAX_BYTES, "large": joined.DIVIDED}
    jobs = [_Job(folder / form / size, forms[form], sizes[size]) for size in sizes for form in forms]
    jobs += [_TimedJob(folder / "history" / size, False, sizes[size]) for size in sizes]
    for job in jobs:
        job.start()
    for number in range(kills):
        job, point, change = jobs[number % len(jobs)], dice.choice(_POINTS), dice.choice(_CHANGES)
        job.feed()
        job.die(drivers, point)
        job.change(change)
        happened.update([point, f"table: {change}"])
        if (number + 1) % check_every == 0:
            for each in jobs:
                each.finish(drivers)
            happened["comparisons"] += 1
            print(f"chaos: {number + 1} drivers that join a table have died, and all rows are as expected", flush=True)
    return happened

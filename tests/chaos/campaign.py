"""Chaos: jobs are killed, disturbed and started again until enough has died; then their rows are compared by value."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from tests.chaos.job import STOPPED, dead_letters, load_table, pipeline, rival, run
from tests.chaos.kinds import KINDS
from tests.drivers import Drivers
from tests.iceberg.clocks import check_times
from tests.recovery.rows import Difference, Row, compare, read_back, read_input, write_file
from tests.sinks import config_of
from tests.waiting import wait_until
from volley import VolleyError
from volley.iceberg import remove_orphan_files
from volley.spark.log import COMMITS, OFFSETS, SparkLog
from volley.task.failpoints import POINTS

_AHEAD = 10
_AT_ONCE = timedelta(0)
_RECOVERY = "in-recovery"
_OFTEN = 0.2
_SELDOM = 0.1


@dataclass(frozen=True)
class Verdict:
    """What is left of one kind of job after the last run, which nothing disturbs.

    Args:
        kind: The kind.
        seed: Repeats the schedule.
        kills: Drivers and Python workers that died by SIGKILL.
        faults: Other faults: lost answers, conflicts, vanished files, …
        runs: Starts of the job.
        failed: Runs that ended with an error that no fault explains.
        epochs: Files that it has read, each an epoch.
        rows: The rows of its table, its dead letters and those of other writers too, against what they should be.
        orphans: Files that dead attempts had left; maintenance has removed them before the rows are read.
        happened: How often each thing happened.
    """

    kind: str
    seed: int
    kills: int
    faults: int
    runs: int
    failed: int
    epochs: int
    rows: Difference
    orphans: int
    happened: dict[str, int]

    @property
    def clean(self) -> bool:
        """Whether all is as it should be."""
        return not (self.rows.lost or self.rows.doubled or self.rows.changed or self.failed)


@dataclass
class _Campaign:
    """One kind of job: its input, its schedule, and what is known of its runs."""

    drivers: Drivers
    folder: Path
    kind: str
    seed: int
    ahead: int
    runs: int = 0
    failed: int = 0
    _files: int = 0
    _pids: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._dice = random.Random(f"{self.seed}-{self.kind}")
        self._task_points = KINDS[self.kind].task_points
        points = [*POINTS, *KINDS[self.kind].points, *self._task_points]
        self._dice.shuffle(points)
        # A run recovers only if the one before it has committed an epoch that Spark does not know of.
        points.insert(points.index("before-checkpoint") + 1, _RECOVERY)
        # The driver dies once at every point, and then again.
        self._points = cycle(points)

    @property
    def deaths(self) -> Counter[str]:
        """What was killed, and where."""
        lines = [line.split() for line in _lines(self._path("deaths"))]
        return Counter(f"{'driver' if int(pid) in self._pids else 'worker'} {point}" for pid, point in lines)

    @property
    def faults(self) -> Counter[str]:
        return Counter(_lines(self._path("faults")))

    def run(self) -> None:
        """One start of the job: workers die in some epochs, then the driver; a fault may end it before."""
        if self.drivers.jvm is None and self._dice.random() < _SELDOM:
            self._kill_the_jvm()
        if self._dice.random() < _SELDOM:
            self._run_on_an_old_checkpoint()
        self._run_and_die()
        if self._dice.random() < _OFTEN:
            shutil.rmtree(self._old, ignore_errors=True)
            shutil.copytree(self._checkpoint, self._old)

    def _kill_the_jvm(self) -> None:
        """Kill the JVM under a driver in the middle of its epochs: the job fails, and nothing is lost."""
        first = self._next_epoch()
        self._feed(first + self.ahead)
        driver = self._start([], kill_driver=False)
        planned = self._checkpoint / OFFSETS / str(first + 1)
        wait_until(lambda: planned.exists() or not driver.is_alive(), 120, "an epoch of the job whose JVM dies")
        for process in psutil.Process(driver.pid).children() if driver.is_alive() else ():
            if "java" in process.name():
                process.kill()
                self._note("JVM killed")
        self.drivers.wait(driver)

    def _run_on_an_old_checkpoint(self) -> None:
        """Start the job on an old copy of its checkpoint: it goes on, or refuses and gets the newest back."""
        if not self._old.exists():
            return
        newest = self._checkpoint.with_name(f"{self.kind}-newest")
        self._checkpoint.rename(newest)
        shutil.copytree(self._old, self._checkpoint)
        self._note("old checkpoint")
        ends_well = self.drivers.wait(self._start([], kill_driver=False)) == 0
        # A fault may have stopped it once it was further than the newest.
        if ends_well or (self._log.last_planned or 0) > (SparkLog(str(newest)).last_planned or 0):
            shutil.rmtree(newest)
        else:
            self._note("old checkpoint refused")
            shutil.rmtree(self._checkpoint)
            newest.rename(self._checkpoint)

    def _run_and_die(self) -> None:
        point, dice = next(self._points), self._dice
        if point == _RECOVERY or dice.random() < 0.1:
            self._forget_the_last_commit()
        epochs = range(first := self._next_epoch(), first + self.ahead)
        self._feed(epochs.stop)
        # A JVM has one context at a time.
        from_a_task, two = point in self._task_points, dice.random() < 0.05 and self.drivers.jvm is None
        # No worker dies before a driver that dies in a task: it dies soon, as its start is dear.
        within = 1 if point == _RECOVERY else 3 if from_a_task else self.ahead
        dies_at = f"{point}@{dice.choice(epochs[:within])}"
        workers = [f"{dice.choice(self._task_points)}@{epoch}" for epoch in epochs if dice.random() < 0.5]
        if two:
            self._note("two drivers at once")
        points = [dies_at] if from_a_task else [*workers, dies_at]
        started = [self._start(points, kill_driver=from_a_task) for _ in range(1 + two)]
        ends = [self.drivers.wait(driver) for driver in started]
        self.failed += not two and ends[0] not in (0, STOPPED, -signal.SIGKILL)

    def finish(self) -> None:
        """The last run, in this process: nothing disturbs it."""
        self.runs += 1
        try:
            pipeline(self.folder, self.kind).execute(self.kind)
        except VolleyError as error:
            print(f"chaos: the last run of {self.kind} failed: {error}")
            self.failed += 1
        if KINDS[self.kind].rival is not None:
            rival(self.folder, self.kind).catch_up()

    def verdict(self) -> Verdict:
        """Remove what is left of dead attempts, then compare all rows with those of the input."""
        tables = [self.kind, *([dead_letters(self.kind)] if KINDS[self.kind].bad else [])]
        orphans = [path for name in tables for path in remove_orphan_files(config_of(self.folder, name), _AT_ONCE)]
        for name in tables:
            check_times(json.loads(load_table(self.folder, name).metadata.model_dump_json()))
        deaths, faults = self.deaths, self.faults
        return Verdict(
            kind=self.kind,
            seed=self.seed,
            kills=deaths.total(),
            faults=faults.total(),
            runs=self.runs,
            failed=self.failed,
            epochs=self._files,
            rows=self._compared(),
            orphans=len(orphans),
            happened={**dict(sorted(deaths.items())), **dict(sorted(faults.items()))},
        )

    def _compared(self) -> Difference:
        this, files = KINDS[self.kind], read_input(self._input)
        if this.rival is not None:
            files += rival(self.folder, self.kind).epochs()
        rivals = [dict.fromkeys(this.columns) | {"id": int(line)} for line in _lines(self._path("rivals"))]
        found = read_back(load_table(self.folder, self.kind), this.columns)
        rows = compare(map(_plain, [*this.expected(files), *rivals]), map(_plain, found))
        if this.bad is None:
            return rows
        bad = [_letter(number, row) for number, row in this.bad(files)]
        letters = read_back(load_table(self.folder, dead_letters(self.kind)), ("epoch", "payload"))
        found = [_letter(letter["epoch"], json.loads(letter["payload"])) for letter in letters]
        return rows + compare(bad, found)

    def _feed(self, files: int) -> None:
        self._input.mkdir(parents=True, exist_ok=True)
        this = KINDS[self.kind]
        for number in range(self._files, files):
            rows = this.rows(random.Random(f"{self.seed}-{self.kind}-{number}"), number)
            write_file(self._input / f"{number:06}.parquet", rows, **dict(this.more))
        self._files = max(self._files, files)

    def _start(self, points: list[str], kill_driver: bool) -> BaseProcess:
        with self._path("log").open("a") as log:
            log.write(f"\n{self.runs}: {' '.join(points)}\n")
        seed = f"{self.seed}-{self.kind}-{self.runs}"
        deaths, failpoint = self._path("deaths"), ",".join(points)
        driver = self.drivers.start(
            run, self.folder, self.kind, seed, failpoint=failpoint, kill_driver=kill_driver, deaths=deaths
        )
        assert driver.pid is not None
        self.runs += 1
        self._pids.add(driver.pid)
        return driver

    def _forget_the_last_commit(self) -> None:
        """Have Spark repeat an epoch that is done."""
        epochs = self._log.epochs(COMMITS)
        if not epochs or self._log.unfinished is not None:
            return
        for name in (f"{epochs[-1]}", f".{epochs[-1]}.crc"):
            (self._checkpoint / COMMITS / name).unlink(missing_ok=True)
        self._note("Spark's last commit forgotten")

    def _next_epoch(self) -> int:
        """The epoch that the next run begins with."""
        unfinished, planned = self._log.unfinished, self._log.last_planned
        return unfinished if unfinished is not None else 0 if planned is None else planned + 1

    def _note(self, fault: str) -> None:
        with self._path("faults").open("a") as log:
            log.write(f"{fault}\n")

    @property
    def _log(self) -> SparkLog:
        return SparkLog(str(self._checkpoint))

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoints" / self.kind

    @property
    def _old(self) -> Path:
        """The old copy of the checkpoint."""
        return self._path("old-checkpoint")

    @property
    def _input(self) -> Path:
        return self.folder / "in" / self.kind

    def _path(self, what: str) -> Path:
        return self.folder / f"{self.kind}.{what}"


def chaos(
    drivers: Drivers, folder: Path, seed: int, kills: int, kinds: Sequence[str] = tuple(KINDS), ahead: int = _AHEAD
) -> list[Verdict]:
    """Go on until so many processes have been killed; then let the jobs finish, and compare the rows.

    Args:
        drivers: Run the jobs.
        folder: An empty folder.
        seed: Repeats the schedule.
        kills: Processes to kill, at least.
        kinds: The kinds of jobs.
        ahead: The most epochs of one run.
    """
    campaigns = [_Campaign(drivers, folder, kind, seed, ahead) for kind in kinds]
    while sum(campaign.deaths.total() for campaign in campaigns) < kills:
        for campaign in campaigns:
            campaign.run()
    for campaign in campaigns:
        campaign.finish()
    return [campaign.verdict() for campaign in campaigns]


def _letter(epoch: int, row: Row) -> Row:
    """A row as a dead letter has it, with its epoch."""
    return {"id": row["id"], "epoch": epoch, "row": json.loads(json.dumps(row, default=_text))}


def _plain(row: Row) -> Row:
    """A row whose floats have 10 decimals: further ones depend on the order of a computation.

    They are cut to 14 digits first, as 1.44781640625 and 1.4478164062499999 lie on two sides of a half.
    """
    return {
        name: f"{float(f'{value:.14g}'):.10f}" if isinstance(value, float) else value for name, value in row.items()
    }


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []

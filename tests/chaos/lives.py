"""The lives of an endless job: each death waits for an epoch since the one before, so what dies has begun again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from tests.drivers import Drivers
from tests.waiting import wait_until
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS

__all__ = ["Lives", "kill_worker"]

_PROGRESS_SECONDS = 180
_KILLS_A_LIFE = 6
_CHECKED = 20
# A driver dies at its point behind the deaths of the others.
_AHEAD = range(_KILLS_A_LIFE - 1, _KILLS_A_LIFE + 4)


@dataclass
class Lives:
    """Starts a job again and again; others die around it, then its driver does, at a failpoint or at any time.

    Args:
        drivers: Run the job.
        checkpoint: The job's folder below its checkpoint.
        dice: Choose who dies, and where.
        job: The endless job.
        others: Each kills something else, and returns how many have died; by name.
        deaths: What has died.
    """

    drivers: Drivers
    checkpoint: Path
    dice: random.Random
    job: Callable[[], object]
    others: dict[str, Callable[[], int]]
    deaths: Counter[str] = field(default_factory=Counter)

    def run(self, kills: int, check: Callable[[], None]) -> None:
        """Live until so many have died, and check in between and at the end.

        Args:
            check: Compares the tables while nothing else changes them.
        """
        checked = 0
        while self.deaths.total() < kills:
            self.once()
            print(f"chaos: {dict(self.deaths)}", flush=True)
            if min(self.deaths.total(), kills) >= min(checked + _CHECKED, kills):
                checked = self.deaths.total()
                check()
                print(f"chaos: no row differs after {checked} deaths", flush=True)

    def once(self) -> None:
        """One life of the driver."""
        point = self.dice.choice([*POINTS, *TASK_POINTS, EXECUTOR_TASK_POINT, None, None, None])
        epochs = [self._epochs() + more for more in _AHEAD]
        armed = "" if point is None else _armed(point, epochs)
        driver = self.drivers.start(self.job, failpoint=armed, kill_driver=True)
        try:
            self._disturb(driver)
        finally:
            is_killed = driver.is_alive()
            driver.kill()
            self.drivers.wait(driver)
        assert driver.exitcode == -9, f"the driver failed, with status {driver.exitcode}, after {dict(self.deaths)}"
        self.deaths["driver" if is_killed else f"driver {point}"] += 1

    def _disturb(self, driver: BaseProcess) -> None:
        for _ in range(_KILLS_A_LIFE - 1):
            self._await_progress(driver)
            if driver.is_alive():
                name = self.dice.choice([*self.others])
                self.deaths[name] += self.others[name]()
        self._await_progress(driver)

    def _epochs(self) -> int:
        """The number of epochs that are committed."""
        numbers = [int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*") if file.name.isdigit()]
        return max(numbers, default=-1) + 1

    def _await_progress(self, driver: BaseProcess) -> None:
        before = self._epochs()
        wait_until(lambda: not driver.is_alive() or self._epochs() > before, _PROGRESS_SECONDS, "an epoch")


def _armed(point: str, epochs: Sequence[int]) -> str:
    return ",".join(f"{point}@{epoch}" for epoch in epochs)


def kill_worker(dice: random.Random) -> int:
    """Kill a Python worker, which a daemon of Spark's has forked; returns how many have died."""
    # A process may end while it is looked at.
    with suppress(psutil.Error):
        processes = psutil.Process().children(recursive=True)
        daemons = [process for process in processes if "daemon" in " ".join(_command(process))]
        if workers := [worker for daemon in daemons for worker in daemon.children()]:
            dice.choice(workers).kill()
            return 1
    return 0


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []

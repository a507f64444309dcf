"""Chaos of webhooks: under load, the receiver dies at random with a torn end in its log, the driver at its points."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.drivers import Drivers
from tests.servers.process import free_ports
from tests.webhooks import job
from tests.webhooks.hooks import request
from tests.webhooks.sender import Senders
from volley.connectors.webhook.frames import Entry, encode
from volley.connectors.webhook.log import LogFolder
from volley.spark.log import SparkLog

__all__ = ["run"]

_POINTS = ("before-planning", "before-files", "after-files", "before-commit", "after-commit", "before-checkpoint")
_CONNECTIONS = 32
_PAUSE_SECONDS = (0.2, 2.0)
_LISTENING = 0.9
_DRIVER, _TORN, _CLEAN = "driver", "receiver, torn end", "receiver"


def run(drivers: Drivers, folder: Path, kills: int, seed: int) -> tuple[Counter[str], int, int]:
    """Kill receivers and drivers until so many have died; compare the table with what was acknowledged.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How often a process dies.
        seed: Repeats the schedule, except for the moments at random.

    Returns:
        What died how often, the requests that were acknowledged, and how often one was sent again.

    Raises:
        AssertionError: If a request was lost, doubled or changed, or a run failed.
    """
    dice, died = random.Random(seed), Counter[str]()
    (port,) = free_ports(1)
    senders = Senders(port, _CONNECTIONS)
    senders.start()
    while died.total() < kills:
        armed = f"{dice.choice(_POINTS)}@{_next_epoch(folder) + dice.randint(2, 12)}"
        driver = drivers.start(job.receive, folder, port, failpoint=armed)
        died.update(_kill_receivers(folder, port, driver, kills - died.total(), dice))
        driver.kill()
        assert drivers.wait(driver) == -signal.SIGKILL, "the job failed"
        died[_DRIVER] += 1
    driver = drivers.start(job.receive, folder, port)
    senders.stop()
    driver.kill()
    drivers.wait(driver)
    assert senders.unexpected == []
    assert drivers.run(job.drain, folder) == 0
    job.check(folder, senders.acknowledged)
    return died, len(senders.acknowledged), senders.repeated


def _kill_receivers(folder: Path, port: int, driver: BaseProcess, most: int, dice: random.Random) -> Counter[str]:
    """Kill one receiver after the other until the driver is dead, or so many have died."""
    died, killed = Counter[str](), 0
    while driver.is_alive() and died.total() < most:
        time.sleep(dice.uniform(*_PAUSE_SECONDS))
        receiver = _receiver(folder)
        # Few die before they listen: a job ends if its receiver can't start again and again.
        if receiver in (killed, None) or (dice.random() < _LISTENING and not _listens(port)):
            continue
        killed, kind = receiver or 0, dice.choice((_TORN, _CLEAN))
        try:
            os.kill(killed, signal.SIGSTOP)
            if kind == _TORN:
                _tear(LogFolder(str(job.log_folder(folder))), dice)
            os.kill(killed, signal.SIGKILL)
        except ProcessLookupError:
            continue  # with its driver
        died[kind] += 1
    return died


def _listens(port: int) -> bool:
    try:
        return request(port, b"", "GET", "/healthz").status == 200
    except OSError:
        return False


def _receiver(folder: Path) -> int | None:
    """The process that receives; None if there is none."""
    try:
        process = int((job.log_folder(folder) / "lock").read_text())
        is_receiver = b"webhook.receiver" in Path(f"/proc/{process}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return process if is_receiver else None


def _tear(log: LogFolder, dice: random.Random) -> None:
    """Leave what a write of which only a part came to the disk leaves at the end of the log."""
    frame = encode([Entry(b"key", b"", dice.randbytes(dice.randrange(400)))], log.durable.requests, 0)
    torn = dice.choice((frame[: dice.randrange(1, len(frame))], dice.randbytes(100), bytes(100)))
    with open(log.segments()[-1].path, "ab") as file:
        file.write(torn)


def _next_epoch(folder: Path) -> int:
    last = SparkLog(str(job.log_folder(folder).parents[2])).last_planned
    return 0 if last is None else last + 1

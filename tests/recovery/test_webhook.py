"""The driver dies while requests come: every acknowledged request is in the table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.servers.process import free_ports
from tests.tiers import some
from tests.webhooks import job
from tests.webhooks.sender import Senders
from volley.connectors.webhook.log import LogFolder

pytestmark = pytest.mark.usefixtures("spark")

DEATHS = ["before-commit", "after-commit", "before-checkpoint"]


@pytest.mark.parametrize("point", some(DEATHS))
def test_killed_under_load(drivers: Drivers, point: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    senders = Senders(port, connections=4)
    senders.start()
    drivers.die(f"{point}@1", job.receive, tmp_path, port)
    running = drivers.start(job.receive, tmp_path, port)
    senders.stop()
    # At any moment: what is acknowledged is in the log.
    running.kill()
    drivers.wait(running)
    assert senders.unexpected == []
    job.drain(tmp_path)
    job.check(tmp_path, senders.acknowledged)
    log = LogFolder(str(job.log_folder(tmp_path)))
    assert log.released == log.durable
    assert log.durable.requests == len(senders.acknowledged)

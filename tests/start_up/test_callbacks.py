"""The JVM calls this process as soon as a job has started, however late py4j's thread listens."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest.mock import patch

from py4j.java_gateway import CallbackServer

from tests.drivers import Drivers
from tests.recovery import spark_job
from tests.recovery.runs import load
from tests.recovery.test_kill_points_of_spark_sources import FILES, ROWS, write_input
from tests.waiting import wait_until

_run = CallbackServer.run


def _listen_last(server: CallbackServer) -> None:
    """Do what py4j's thread does, but only when somebody else listens."""

    def listens() -> bool:
        return bool(server.server_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    wait_until(listens, 30, "somebody who listens")
    _run(server)


def run_with_late_thread(folder: Path) -> None:
    with patch.object(CallbackServer, "run", _listen_last):
        spark_job.main(folder)


def test_thread_of_py4j_is_late(drivers: Drivers, tmp_path: Path) -> None:
    write_input(tmp_path)
    assert drivers.run(run_with_late_thread, tmp_path) == 0
    assert sorted(load(tmp_path, "db.all").scan().to_arrow()["id"].to_pylist()) == [*range(2 * FILES * ROWS)]

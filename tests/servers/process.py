"""A server as a plain process: started on 127.0.0.1, waited for, stopped by its process id."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.waiting import wait_until

START_SECONDS = 300

# Kept until this process ends: Python warns of a server that is left to the run's other processes.
_started: list[subprocess.Popen[bytes]] = []


def lacking(what: str) -> None:
    """Skip the test: this machine lacks something; in CI that is a failure."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


def needed(program: str, why: str) -> str:
    """The path of a server's program; without it the test is skipped, except in CI, where that is a failure."""
    found = shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        lacking(f"{program} is not installed: {why}")
    return str(found)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and whose ports plus 10,000 are free too, as SeaweedFS needs them.

    All are below the ports that the kernel gives to outgoing connections (32,768 and up on Linux): such a
    connection could take one between this call and the server's start, or while a server is restarted.
    """
    ports: list[int] = []
    while len(ports) < count:
        # Hypothesis seeds the shared generator: both test processes would draw the same ports.
        port = random.SystemRandom().randrange(10_000, 22_000)
        if port not in ports and _free(port) and _free(port + 10_000):
            ports.append(port)
    return ports


def _free(port: int) -> bool:
    """Whether a server could listen on a port."""
    with socket.socket() as server:
        try:
            server.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(url: str) -> Callable[[], bool]:
    """Whether a URL is answered, and well."""
    return partial(_answers, url)


def _answers(url: str) -> bool:
    try:
        return bool(requests.get(url, timeout=2).ok)
    except requests.RequestException:
        return False


def listens(port: int) -> Callable[[], bool]:
    """Whether somebody takes connections on a port."""
    return partial(_listens, port)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_for(log: Path, line: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the log of a process has the line that says it is ready."""
    _wait(lambda: line in log.read_text(errors="replace"), process, "the server", log)


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path) -> None:
    """Ask a process of others, which tells nobody that it is ready, until it is."""
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


class ServerProcess:
    """A server that can be stopped and started again, on the same ports and with the same data.

    It pickles: another process of the tests can use it and stop it, but not start it.

    Args:
        name: Its name, for people.
        command: The program and its arguments.
        log: The file that gets what it prints.
        environment: Variables beside this process' own; None = a variable that it does not get.
        user: The user to run as; None = this one.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        environment: Mapping[str, str | None] | None = None,
        user: str | None = None,
    ) -> None:
        self._name = name
        self._command = command
        self._log = log
        variables = {**os.environ, **(environment or {})}
        self._environment = {name: value for name, value in variables.items() if value is not None}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._elsewhere: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_process": None, "_elsewhere": self._process and self._process.pid}

    def start(self, ready: Callable[[], bool]) -> None:
        """Start it if it does not run, and wait until it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        began = time.monotonic()
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                # A server's user may not enter the log's folder.
                cwd="/" if self._user else self._log.parent,
                env=self._environment,
                stdout=output,
                stderr=output,
                user=self._user,
            )
        _started.append(self._process)
        _wait(ready, self._process, self._name, self._log)
        print(f"started {self._name} in {time.monotonic() - began:.1f} s, process {self._process.pid}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Ask until the condition is true, which its process brings about; fail with its log when that has ended."""

        def holds() -> bool:
            if self._process is None or self._process.poll() is not None:
                pytest.fail(f"{self._name} has ended: {self._log.read_text(errors='replace')[-4000:]}")
            return condition()

        wait_until(holds, 60, what)

    def says(self, line: str) -> Callable[[], bool]:
        """Whether its log has the line that says it is ready."""
        return partial(self._said, line)

    def _said(self, line: str) -> bool:
        return line in self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The id of its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def freeze(self) -> None:
        """Let it answer nobody any more; it still can be stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Its threads stop one after the other, and until then they answer.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def stop(self) -> None:
        """End it at once: asked politely, some wait for connections that Spark's workers keep open."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
        elif self._elsewhere is not None:
            with suppress(ProcessLookupError):
                os.kill(self._elsewhere, signal.SIGKILL)

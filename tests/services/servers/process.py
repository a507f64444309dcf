"""A server as a plain process: started, waited for, ended by its process id."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

START_SECONDS = 60


class ServerProcess:
    """One server, which can be ended and started again on the same port with the same data.

    Args:
        name: What it is, for the line that says it runs.
        command: Its command line.
        health: An HTTP address that answers as soon as it is ready; any answer counts but 5xx.
        log: The file it writes to.
    """

    def __init__(self, name: str, command: Sequence[str], health: str, log: Path) -> None:
        self._name = name
        self._command = list(command)
        self._health = health
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes requests."""
        began = time.monotonic()
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() - began > START_SECONDS:
                pytest.fail(f"{self._name} did not start: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        print(f"started {self._name} in {time.monotonic() - began:.1f} s: {self._health}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._health, timeout=5):
                return True
        except urllib.error.HTTPError as answer:
            return answer.code < 500
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

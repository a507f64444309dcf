"""Runs for the tests of the runner, in a module that imports little: each is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.run import MissingPeerError, Run
from tests.waiting import wait_until

SECONDS = 0.3


def told(run: Run) -> None:
    """Record what the run is told; the peer ``c`` is missing."""
    if run.peer == "c":
        raise MissingPeerError("its packages are not there")
    run.record(process=os.getpid(), folder=str(run.folder), rows=run.rows, options=dict(run.options))


def orphan(run: Run) -> subprocess.Popen[bytes]:
    """A process that waits for a line, and has a child that is busy, writes a file, and outlives it."""
    work = f"import time\nwhile time.process_time() < {SECONDS}: pass\nopen({str(run.folder / 'done')!r}, 'w')"
    # Its input ends when its parent does.
    child = f"{work}; import sys; sys.stdin.read()"
    start = f"subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE)"
    code = f"import subprocess, sys; child = {start}; sys.stdin.readline()"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def meanwhile(run: Run) -> None:
    """The orphan works while it is measured, its parent ends before."""

    def work() -> None:
        orphan(run).communicate(b"\n")
        wait_until((run.folder / "done").exists, 60, "the orphan's work")

    run.measure(work)


def before(run: Run) -> None:
    """The orphan's work is done before it is measured, its parent ends meanwhile."""
    parent = orphan(run)
    wait_until((run.folder / "done").exists, 60, "the orphan's work")
    run.measure(lambda: parent.communicate(b"\n"))

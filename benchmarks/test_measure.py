"""A run's settings, and its CPU: that of all processes below it, also of those whose parents have ended."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.run import Run
from tests.waiting import wait_until


def told(run: Run) -> None:
    run.record(process=os.getpid(), folder=str(run.folder), rows=run.rows, options=dict(run.options))


SECONDS = 0.3
BUSY = f"import time\nwhile time.process_time() < {SECONDS}: pass\n"
START = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {code!r}])"


def child(run: Run) -> None:
    run.measure(lambda: python(BUSY))


def orphan(run: Run) -> None:
    """It ends while it is measured, its parent before."""

    def work() -> None:
        python(START.format(code=f"{BUSY}open({str(done)!r}, 'w')"))
        wait_until(done.exists, 60, "the orphan's work")

    done = run.folder / "done"
    run.measure(work)


def orphan_from_before(run: Run) -> None:
    """Its work is done before it is measured, its parent ends meanwhile."""

    def work() -> None:
        parent.communicate(b"\n")

    done = run.folder / "done"
    code = START.format(code=f"{BUSY}open({str(done)!r}, 'w')\nimport time; time.sleep(1)") + "; sys.stdin.readline()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_until(done.exists, 60, "the orphan's work")
    run.measure(work)


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("work", [child, orphan])
def test_the_cpu_of_all_processes_below_counts(work: Any) -> None:
    (found,) = Run(rows=1).apart(work)
    assert SECONDS * 0.9 < found.figures["cpu_seconds"] < 10 * SECONDS


def test_the_cpu_of_a_process_that_loses_its_parent_does_not_count_as_less_than_none() -> None:
    (found,) = Run(rows=1).apart(orphan_from_before)
    assert 0 < found.figures["cpu_seconds"] < SECONDS

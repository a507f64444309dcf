"""SIGTERM and Ctrl-C finish the running epoch, and the next start goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

from tests.processes import plain_environment
from tests.recovery.runs import load
from tests.waiting import wait_until


def epochs(folder: Path) -> list[int]:
    """The epochs in the table so far; none if there is no table yet."""
    if not (folder / "lake" / "catalog.db").exists():
        return []
    try:
        return [int(s.summary["volley.epoch"] or 0) for s in load(folder).snapshots() if s.summary]
    except (NoSuchTableError, OperationalError):
        # The job is just making the catalog's tables.
        return []


def run_until(folder: Path, wanted: int, number: signal.Signals) -> str:
    """Run the endless job until the table has that many epochs, then signal its process group, as a terminal does."""
    command = [sys.executable, "-m", "tests.recovery.endless", str(folder)]
    process = subprocess.Popen(
        command,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:

        def reached() -> bool:
            assert process.poll() is None, process.communicate()[1]
            return len(epochs(folder)) >= wanted

        wait_until(reached, 240, f"epoch {wanted}")
        os.killpg(process.pid, number)
        printed, shown = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, shown
    assert "stopping after the running epoch" in shown
    assert "Traceback" not in shown
    return str(printed)


def test_signals_finish_the_epoch(tmp_path: Path) -> None:
    assert run_until(tmp_path, 2, signal.SIGTERM) == "stopped\n"
    before = len(epochs(tmp_path))
    assert run_until(tmp_path, before + 2, signal.SIGINT) == "stopped\n"
    values = sorted(load(tmp_path).scan().to_arrow()["value"].to_pylist())
    assert values == list(range(len(values)))
    assert len(epochs(tmp_path)) == len(set(epochs(tmp_path)))

"""The driver dies after a reader has let go of rows: the next run never needs them again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.processes import plain_environment
from tests.recovery import spool_job
from tests.recovery.runs import RUN_SECONDS
from tests.spool import calls, fill
from volley.task.failpoints import VARIABLE

pytestmark = pytest.mark.usefixtures("spark")


def die(folder: Path, form: str, dies_at: int = 0, failpoint: str = "") -> list[tuple[Any, ...]]:
    """One run in a process of its own, whose driver dies; what its reader was told."""
    command = [sys.executable, "-m", "tests.recovery.spool_job", str(folder), form, str(dies_at)]
    ended = subprocess.run(command, env=plain_environment(**{VARIABLE: failpoint}), timeout=RUN_SECONDS)
    assert ended.returncode == -signal.SIGKILL
    return calls(folder / "in")


@pytest.mark.parametrize("form", spool_job.FORMS)
def test_killed_behind_what_is_committed(form: str, tmp_path: Path) -> None:
    expected = fill(tmp_path / "in", range(4))
    # With state, the epoch before is told: Spark reads the last one again.
    late = form == "stateful"
    # Every sink has epoch 1; its reader has not been told, and Spark does not know.
    told = die(tmp_path, form, failpoint="before-checkpoint@1")
    assert told == [("start",), *([] if late else [("committed", 1)])]
    # In epoch 2, in the moment in which it lets go.
    told = die(tmp_path, form, dies_at=2 if late else 3)
    assert told == [("start",), ("committed", 1), ("committed", 2), *([] if late else [("committed", 3)])]
    spool_job.main(tmp_path, form)
    told = calls(tmp_path / "in")
    offsets = [call[1] for call in told if call[0] == "committed"]
    assert offsets == sorted(offsets)
    assert offsets[-1] == 4
    found = [row for file in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(file)["id"].to_pylist()]
    assert sorted(found) == expected

"""Runs of the recovery job in processes of their own, and the comparison of what went in with what is in the table."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.processes import plain_environment
from volley.task.failpoints import VARIABLE

ROWS_PER_FILE = 500
FILES = 4
RUN_SECONDS = 240


def run(folder: Path, path: str, *options: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """One run of the job in a process of its own."""
    command = [sys.executable, "-m", "tests.recovery.pipeline", str(folder), path, *options]
    environment = plain_environment(**{VARIABLE: failpoint})
    return subprocess.run(command, env=environment, timeout=RUN_SECONDS, stdout=subprocess.PIPE, text=True)


def run_and_die(folder: Path, path: str, failpoint: str, *options: str) -> None:
    """One run that the failpoint kills."""
    # An epoch has one task: a second core would only start a Python worker more.
    died = run(folder, path, "--master", "local[1]", *options, failpoint=failpoint)
    assert died.returncode == -signal.SIGKILL


def write_input(folder: Path, files: int = FILES) -> None:
    """Numbered rows, some in each file."""
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        ids = pa.array(range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE), pa.int64())
        pq.write_table(pa.table({"id": ids, "name": [f"row {i}" for i in ids]}), folder / "in" / f"{number}.parquet")


def load(folder: Path, name: str = "db.events") -> Table:
    """The table, opened by plain pyiceberg."""
    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        return catalog.load_table(name)
    finally:
        catalog.close()


def check_exactly_once(folder: Path, files: int = FILES) -> None:
    """Compare source and table row by row, and the snapshots with the epochs."""
    expected = [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(files * ROWS_PER_FILE) if i % 7 != 0]
    table = load(folder)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert epochs == [str(epoch) for epoch in range(files)]

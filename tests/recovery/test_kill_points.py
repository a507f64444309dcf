"""The job is killed with SIGKILL at every gated point and started again: the table holds each row exactly once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.processes import plain_environment
from tests.recovery import pipeline
from volley._failpoints import POINTS, VARIABLE

ROWS_PER_FILE = 500
FILES = 4


def run_and_die(folder: Path, path: str, failpoint: str, *dead_letter: str) -> None:
    """One run of the job in a process of its own, which the failpoint kills."""
    command = [sys.executable, "-m", "tests.recovery.pipeline", str(folder), path, *dead_letter]
    done = subprocess.run(command, env=plain_environment(**{VARIABLE: failpoint}), timeout=240)
    assert done.returncode == -signal.SIGKILL


def run_again(folder: Path, path: str) -> None:
    """The next run: it is a process other than the one that died, and goes to the end."""
    pipeline.main(folder, arrow_native=path == "arrow-native")


def write_input(folder: Path) -> None:
    (folder / "in").mkdir()
    for number in range(FILES):
        ids = pa.array(range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE), pa.int64())
        pq.write_table(pa.table({"id": ids, "name": [f"row {i}" for i in ids]}), folder / "in" / f"{number}.parquet")


def load(folder: Path, name: str = "db.events") -> Table:
    """The table, opened by plain pyiceberg."""
    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        return catalog.load_table(name)
    finally:
        catalog.close()


def check_exactly_once(folder: Path) -> None:
    """Compare source and table row by row, and the snapshots with the epochs."""
    expected = [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(FILES * ROWS_PER_FILE) if i % 7 != 0]
    table = load(folder)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert epochs == [str(epoch) for epoch in range(FILES)]


pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("point", POINTS)
def test_killed_once(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "arrow-native", f"{point}@1")
    run_again(tmp_path, "arrow-native")
    check_exactly_once(tmp_path)


@pytest.mark.parametrize("point", ["after-files", "after-commit"])
def test_killed_on_the_general_path(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "general", f"{point}@1")
    run_again(tmp_path, "general")
    check_exactly_once(tmp_path)


def test_killed_in_every_epoch_and_on_the_way_changing_the_path(tmp_path: Path) -> None:
    write_input(tmp_path)
    for epoch, point in enumerate(("after-commit", "before-checkpoint", "before-commit")):
        run_and_die(tmp_path, "general" if epoch == 1 else "arrow-native", f"{point}@{epoch}")
    run_again(tmp_path, "arrow-native")
    check_exactly_once(tmp_path)


def check_letters_exactly_once(folder: Path, letters: list[dict[str, Any]]) -> None:
    """Each row of the source is in the table or in the dead letters, once, in step with its epoch."""
    ids = [i for i in range(FILES * ROWS_PER_FILE) if i % 7 != 0]
    good = [row["id"] for row in load(folder).scan().to_arrow().sort_by("id").to_pylist()]
    assert good == [i for i in ids if i % 10 != 3]
    bad = [i for i in ids if i % 10 == 3]
    found = sorted(
        (json.loads(row["payload"])["id"], row["epoch"], row["position"].rpartition("/")[2]) for row in letters
    )
    places = [divmod(i, ROWS_PER_FILE) for i in bad]
    assert found == [(i, file, f"{file}.parquet, row {row + 1}") for i, (file, row) in zip(bad, places, strict=True)]
    epochs = [snapshot.summary["volley.epoch"] for snapshot in load(folder).snapshots() if snapshot.summary]
    assert epochs == [str(epoch) for epoch in range(FILES)]


@pytest.mark.parametrize("point", POINTS[1:])
def test_dead_letters_in_a_table_are_there_once_when_killed(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "arrow-native", f"{point}@1", "dead")
    pipeline.main(tmp_path, True, "dead")
    check_letters_exactly_once(tmp_path, load(tmp_path, "db.dead").scan().to_arrow().to_pylist())


@pytest.mark.parametrize("point", ["after-files", "between-commits", "after-commit"])
def test_dead_letters_in_a_folder_are_there_once_when_killed(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    folder = f"{tmp_path}/dead"
    run_and_die(tmp_path, "arrow-native", f"{point}@1", folder)
    pipeline.main(tmp_path, True, folder)
    files = Path(folder).glob("*.json")
    check_letters_exactly_once(tmp_path, [json.loads(line) for file in files for line in file.read_text().splitlines()])

"""The driver is killed with SIGKILL at every gated point and started again: the table holds each row exactly once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.recovery.runs import check_exactly_once, load, run_again, run_and_die, write_input
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg import orphan_files, remove_orphan_files
from volley.task.failpoints import POINTS

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("point", POINTS)
def test_killed_once(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "arrow-native", f"{point}@1")
    run_again(tmp_path)
    check_exactly_once(tmp_path)


@pytest.mark.parametrize("point", ["after-files", "after-commit"])
def test_killed_on_the_general_path(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "general", f"{point}@1")
    run_again(tmp_path, "general")
    check_exactly_once(tmp_path)


@pytest.mark.parametrize("point", ["in-task", "after-task"])
def test_killed_before_the_results_are_collected(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "arrow-native", f"{point}@1", "--kill-driver")
    run_again(tmp_path)
    check_exactly_once(tmp_path)


def test_killed_in_every_epoch_and_on_the_way_changing_the_path(tmp_path: Path) -> None:
    write_input(tmp_path)
    for epoch, point in enumerate(("after-commit", "before-checkpoint", "before-commit")):
        run_and_die(tmp_path, "general" if epoch == 1 else "arrow-native", f"{point}@{epoch}")
    run_again(tmp_path)
    check_exactly_once(tmp_path)


def test_killed_six_times_in_a_row_in_one_epoch_and_while_it_recovers(tmp_path: Path) -> None:
    write_input(tmp_path)
    for point in ("before-planning", "after-files", "before-commit", "after-commit", "in-recovery", "in-recovery"):
        run_and_die(tmp_path, "arrow-native", f"{point}@1")
    run_again(tmp_path)
    check_exactly_once(tmp_path)


def test_what_killed_drivers_leave_is_removed_by_maintenance(tmp_path: Path) -> None:
    write_input(tmp_path)
    for point in ("after-files", "before-commit"):
        run_and_die(tmp_path, "arrow-native", f"{point}@1")
    run_again(tmp_path)
    lake = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    at_once = timedelta(0)
    orphans = orphan_files(lake, at_once)
    assert orphans
    assert remove_orphan_files(lake, at_once) == orphans
    check_exactly_once(tmp_path)
    kept = {Path(file["file_path"]).name for file in load(tmp_path).inspect.files().to_pylist()}
    assert {path.name for path in (tmp_path / "lake").rglob("*.parquet")} == kept

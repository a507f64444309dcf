"""Tasks that die, are repeated or run twice: no row is lost or doubled, and what they leave is known."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery import pipeline
from tests.recovery.runs import check_exactly_once, load, write_input
from tests.sinks import config_of
from volley.iceberg import orphan_files, remove_orphan_files

AT_ONCE = timedelta(0)


def data_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "lake").rglob("*.parquet")}


def referenced(folder: Path) -> set[str]:
    return {Path(file["file_path"]).name for file in load(folder).inspect.files().to_pylist()}


def test_python_workers_are_killed_and_their_tasks_repeated(drivers: Drivers, tmp_path: Path) -> None:
    write_input(tmp_path)
    failpoints = "in-task@1,after-task@3"
    assert drivers.run(pipeline.write_orphans, tmp_path, "local[2,4]", failpoint=failpoints) == 0
    check_exactly_once(tmp_path)
    left = data_files(tmp_path) - referenced(tmp_path)
    assert {Path(path).name for path in (tmp_path / "orphans").read_text().split()} == left
    assert len(left) == 4  # two of each of the two attempts, in one case half a file
    assert {Path(path).name for path in remove_orphan_files(config_of(tmp_path), AT_ONCE)} >= left
    check_exactly_once(tmp_path)


@pytest.mark.usefixtures("spark")
def test_nothing_is_left_after_a_clean_end(tmp_path: Path) -> None:
    write_input(tmp_path)
    assert list(pipeline.main(tmp_path).orphans) == []
    assert data_files(tmp_path) == referenced(tmp_path)
    assert orphan_files(config_of(tmp_path), AT_ONCE) == []

"""Bad rows under kills: each row of the source is in the table or in the dead letters, once, in step with its epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recovery import pipeline
from tests.recovery.runs import FILES, ROWS_PER_FILE, load, run_and_die, write_input
from volley.task.failpoints import POINTS

pytestmark = pytest.mark.usefixtures("spark")


def check_letters_exactly_once(folder: Path, letters: list[dict[str, Any]]) -> None:
    """Compare source, table and dead letters row by row, and the snapshots with the epochs."""
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


@pytest.mark.parametrize("point", POINTS[2:])
def test_in_a_table(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "arrow-native", f"{point}@1", "--dead-letter", "dead")
    pipeline.main(tmp_path, True, dead_letter="dead")
    check_letters_exactly_once(tmp_path, load(tmp_path, "db.dead").scan().to_arrow().to_pylist())


@pytest.mark.parametrize("point", ["after-files", "between-commits", "after-commit"])
def test_in_a_folder(point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    folder = f"{tmp_path}/dead"
    run_and_die(tmp_path, "arrow-native", f"{point}@1", "--dead-letter", folder)
    pipeline.main(tmp_path, True, dead_letter=folder)
    lines = [line for file in Path(folder).glob("*.json") for line in file.read_text().splitlines()]
    check_letters_exactly_once(tmp_path, [json.loads(line) for line in lines])

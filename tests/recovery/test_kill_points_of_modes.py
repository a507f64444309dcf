"""The driver is killed while it overwrites or upserts, and started again: the table is as if it had never died."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.runs import FILES, ROWS_PER_FILE, load, run_again, run_and_die, write_input
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg import remove_orphan_files

pytestmark = pytest.mark.usefixtures("spark")


def expected(mode: str) -> list[dict[str, Any]]:
    """What the table has in the end; ids come in order."""
    first = (FILES - 1) * ROWS_PER_FILE if mode == "overwrite" else 0
    kept = [i for i in range(first, FILES * ROWS_PER_FILE) if i % 7 != 0]
    if mode != "overwrite":
        kept = sorted(i for i in {i % 300: i for i in kept}.values() if i % 11 != 0)
    return [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in kept]


def check(folder: Path, mode: str) -> None:
    table = load(folder)
    rows = table.scan(selected_fields=("id", "name", "twice")).to_arrow().sort_by("id").to_pylist()
    assert rows == expected(mode)
    assert [s.summary["volley.epoch"] for s in table.snapshots() if s.summary] == [str(each) for each in range(FILES)]
    lake = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local(str(folder / "lake")))
    remove_orphan_files(lake, timedelta(0))
    kept = {Path(file["file_path"]).name for file in load(folder).inspect.all_files().to_pylist()}
    assert {path.name for path in (folder / "lake").rglob("*.parquet")} <= kept
    assert load(folder).scan().to_arrow().num_rows == len(rows)


@pytest.mark.parametrize(
    ("mode", "point"),
    [
        *(("merge_on_read", point) for point in ("before-files", "after-files", "before-commit", "after-commit")),
        *(("overwrite", point) for point in ("before-commit", "after-commit")),
        ("copy_on_write", "before-commit"),
    ],
)
def test_killed_once(mode: str, point: str, tmp_path: Path) -> None:
    write_input(tmp_path)
    run_and_die(tmp_path, "arrow-native", f"{point}@1", "--mode", mode)
    run_again(tmp_path, mode=mode)
    check(tmp_path, mode)


def test_an_upsert_killed_in_every_epoch_and_on_the_way_changing_the_path(tmp_path: Path) -> None:
    write_input(tmp_path)
    for epoch, point in enumerate(("after-commit", "before-checkpoint", "before-commit")):
        path = "general" if epoch == 1 else "arrow-native"
        run_and_die(tmp_path, path, f"{point}@{epoch}", "--mode", "merge_on_read")
    run_again(tmp_path, mode="merge_on_read")
    check(tmp_path, "merge_on_read")

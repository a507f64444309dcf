"""A driver, or one of its tasks, dies in the maintenance beside its epochs: the next run has every row, and goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.recovery import maintained_job
from tests.recovery.maintained_job import KEYS, config
from tests.services.readers import Lake, by_duckdb, by_pyiceberg, by_spark
from volley.iceberg import orphan_files, remove_orphan_files

_FILES_OF_A_RUN, _ROWS = 25, 20
_POINTS = {
    "arrow-native": (
        "in-rewrite@0",
        "before-replacement@0",
        "in-delete-merge@0",
        "before-manifests@0",
        "in-deletion@1",
    ),
    "general": (
        *("after-rewrite@0", "after-replacement@0", "before-delete-commit@0", "after-delete-commit@0"),
        *("after-manifests@0", "after-expiry@0"),
    ),
}


def write_input(folder: Path, run: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for file in range(run * _FILES_OF_A_RUN, (run + 1) * _FILES_OF_A_RUN):
        ids = pa.array(range(file * _ROWS, (file + 1) * _ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), folder / "in" / f"{file:04}.parquet")


@pytest.mark.parametrize("path", _POINTS)
def test_killed(drivers: Drivers, path: str, tmp_path: Path) -> None:
    native = path == "arrow-native"
    for run, point in enumerate(_POINTS[path]):
        write_input(tmp_path, run)
        drivers.die(point, maintained_job.main, tmp_path, native, bounded=False, kill_driver=True)
    assert drivers.run(maintained_job.main, tmp_path, native, bounded=True) == 0
    rows = len(_POINTS[path]) * _FILES_OF_A_RUN * _ROWS
    expected = [{"id": each, "key": each % KEYS} for each in range(rows - KEYS, rows)]
    lake = Lake(tmp_path / "lake")
    for read in (by_pyiceberg, by_duckdb, by_spark):
        assert sorted(read(lake, "events"), key=lambda row: int(row["id"])) == expected
    remove_orphan_files(config(tmp_path), 0)
    assert orphan_files(config(tmp_path), 0) == []
    assert sorted(by_pyiceberg(lake, "events"), key=lambda row: int(row["id"])) == expected

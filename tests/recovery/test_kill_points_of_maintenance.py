"""A driver, or one of its tasks, dies in the maintenance beside its epochs: the next run has every row, and goes on."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.processes import RUN_SECONDS
from tests.recovery import maintained_job
from tests.recovery.maintained_job import KEYS, config
from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, by_duckdb, by_pyiceberg, by_spark
from volley.iceberg import orphan_files, remove_orphan_files
from volley.spark.log import SparkLog

_ROWS = 20
_POINTS = {
    "before": ("in-rewrite@0", "before-replacement@0", "in-delete-merge@0", "before-manifests@0", "in-deletion@1"),
    "after": (
        *("after-rewrite@0", "after-replacement@0", "before-delete-commit@0", "after-delete-commit@0"),
        *("after-manifests@0", "after-expiry@0"),
    ),
}


def write_file(folder: Path, number: int) -> None:
    ids = pa.array(range(number * _ROWS, (number + 1) * _ROWS), pa.int64())
    pq.write_table(pa.table({"id": ids}), folder / "next.parquet")
    (folder / "next.parquet").rename(folder / "in" / f"{number:04}.parquet")


def die(drivers: Drivers, point: str, folder: Path, files: int) -> int:
    """Kill a run, which gets a file after the other until its maintenance is at the point; return how many files."""
    driver = drivers.start(partial(maintained_job.main, folder, bounded=False), failpoint=point, kill_driver=True)
    log = SparkLog(str(folder / "checkpoints" / "maintained"))
    deadline = time.monotonic() + RUN_SECONDS
    while driver.is_alive() and time.monotonic() < deadline:
        if files - 2 <= (log.last_planned or 0):
            write_file(folder, files)
            files += 1
        driver.join(0.02)
    assert drivers.wait(driver) == -signal.SIGKILL
    return files


@pytest.mark.nightly
@pytest.mark.parametrize("when", _POINTS)
def test_killed(drivers: Drivers, iceberg_spark: IcebergSpark, when: str, tmp_path: Path) -> None:
    files = 1
    (tmp_path / "in").mkdir()
    write_file(tmp_path, 0)
    for point in _POINTS[when]:
        files = die(drivers, point, tmp_path, files)
    assert drivers.run(partial(maintained_job.main, tmp_path, bounded=True)) == 0
    rows = files * _ROWS
    expected = [{"id": each, "key": each % KEYS} for each in range(max(rows - KEYS, 0), rows)]
    lake = Lake(tmp_path / "lake", iceberg_spark)
    for read in (by_pyiceberg, by_duckdb, by_spark):
        assert sorted(read(lake, "events"), key=lambda row: int(row["id"])) == expected
    remove_orphan_files(config(tmp_path), 0)
    assert orphan_files(config(tmp_path), 0) == []
    assert sorted(by_pyiceberg(lake, "events"), key=lambda row: int(row["id"])) == expected

"""A job over a source that Spark reads itself is killed: each of its rows is in the tables once."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.recovery import spark_job
from tests.recovery.runs import load

pytestmark = pytest.mark.usefixtures("spark")

FILES, ROWS = 5, 60
# A task may be done four times.
MASTER = "local[2,4]"
KILLS = [
    # The second of two sinks has epoch 2 only after the second death there.
    *("in-task@0,after-partials@0", "after-state@1,between-commits@1", "after-commit@2", "after-commit@2"),
    *("in-recovery@2", "before-checkpoint@3", "before-planning@4"),
]


def write_input(folder: Path) -> None:
    for offset, name in enumerate(("spark", "own")):
        (folder / name).mkdir()
        for number in range(FILES):
            begin = (2 * number + offset) * ROWS
            ids = pa.array(range(begin, begin + ROWS), pa.int64())
            path = folder / name / f"{number}.parquet"
            pq.write_table(pa.table({"id": ids}), path)
            # Spark reads files in the order in which they were changed.
            os.utime(path, (1e9 + number, 1e9 + number))


def test_killed(drivers: Drivers, tmp_path: Path) -> None:
    write_input(tmp_path)
    for points in KILLS:
        # One takes its JVM along, with what that knows of the state.
        (Drivers() if points == "after-commit@2" else drivers).die(points, spark_job.main, tmp_path, MASTER)
    spark_job.main(tmp_path)
    assert sorted(load(tmp_path, "db.all").scan().to_arrow()["id"].to_pylist()) == [*range(2 * FILES * ROWS)]
    assert sorted(load(tmp_path, "db.keys").scan().to_arrow()["key"].to_pylist()) == [*range(spark_job.KEYS)]

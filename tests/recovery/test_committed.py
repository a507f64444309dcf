"""The driver dies after a reader has let go of rows: the next run never needs them again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.recovery import spool_job
from tests.spool import calls, fill

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("form", spool_job.FORMS)
def test_killed_behind_what_is_committed(drivers: Drivers, form: str, tmp_path: Path) -> None:
    expected = fill(tmp_path / "in", range(4))
    # Every sink has epoch 1; its reader has not been told, and Spark does not know.
    drivers.die("before-checkpoint@1", spool_job.main, tmp_path, form)
    assert calls(tmp_path / "in") == [("start",), ("committed", 1)]
    # In epoch 2, in the moment in which it lets go.
    drivers.die("", partial(spool_job.main, tmp_path, form, dies_at=3))
    assert calls(tmp_path / "in") == [("start",), ("committed", 1), ("committed", 2), ("committed", 3)]
    spool_job.main(tmp_path, form)
    told = calls(tmp_path / "in")
    offsets = [call[1] for call in told if call[0] == "committed"]
    assert offsets == sorted(offsets)
    assert offsets[-1] == 4
    found = [row for file in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(file)["id"].to_pylist()]
    assert sorted(found) == expected

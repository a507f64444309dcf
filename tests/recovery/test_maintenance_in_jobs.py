"""A job that dies in its own maintenance, at every point: the next run has all rows once, and maintains on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.tiers import some
from tests.upserts.maintained_stream import KILLED, Stream, actions, run_killed
from volley.task.failpoints import COMPACTION_POINTS, DELETE_POINTS, EXPIRY_POINTS, MANIFEST_POINTS

POINTS = [
    *(f"{point}@0" for point in (*COMPACTION_POINTS, *DELETE_POINTS, *MANIFEST_POINTS)),
    *(f"{point}@{number}" for number, point in enumerate(EXPIRY_POINTS)),
]


@pytest.mark.parametrize("at", some(POINTS))
def test_a_job_that_dies_in_its_maintenance_loses_nothing(tmp_path: Path, at: str) -> None:
    Drivers().die(at, run_killed, tmp_path, 10, "2")
    stream = Stream(tmp_path, KILLED)
    try:
        # The lease of the dead run is its own: it need not wait for it.
        stream.check(stream.run(30, actions("2")))
    finally:
        stream.committer._catalog.close()
        stream.lake.close()

"""A job of many tables is killed between any two of their commits: each table has each epoch once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.duck import query
from tests.recovery import routed_job
from tests.recovery.routed_job import FILES, write_input
from tests.recovery.runs import load
from tests.tiers import nightly
from volley.iceberg import TableRef, orphan_files

TABLES = [f"t{number}" for number in range(5)]


def check(folder: Path, upsert: bool) -> None:
    """Each table, as DuckDB reads it, has the rows that the files say, and one snapshot an epoch."""
    rows = pa.concat_tables([pq.read_table(path) for path in sorted((folder / "in").iterdir())])
    for name in TABLES:
        table = load(folder, f"db.{name}")
        found = query(f"select id, key, kind from iceberg_scan('{table.metadata_location}') order by id").fetchall()
        kept = "qualify row_number() over (partition by key order by id desc) = 1" if upsert else ""
        expected = query(
            f"select id, key, kind from rows where kind = '{name}' {kept} order by id", rows=rows
        ).fetchall()
        assert found == expected
        epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
        assert epochs == [str(epoch) for epoch in range(max(0, int(name[1]) - 2), FILES)]


@pytest.mark.parametrize(
    ("upsert", "points"),
    [
        (False, ["after-route-2@1"]),
        nightly(
            False,
            ["after-route-1@0", "after-route-2@0", "after-route-3@1", "before-checkpoint@1", "after-route-1@2"],
        ),
        nightly(True, ["after-files@0", "after-route-2@1", "before-commit@2", "after-commit@2", "after-route-4@3"]),
    ],
)
def test_kills_between_any_two_commits(tmp_path: Path, drivers: Drivers, upsert: bool, points: list[str]) -> None:
    write_input(tmp_path)
    for point in points:
        drivers.die(point, routed_job.main, tmp_path, upsert)
    assert drivers.run(routed_job.main, tmp_path, upsert) == 0
    check(tmp_path, upsert)


def test_a_table_is_put_back_while_the_driver_dies(tmp_path: Path, drivers: Drivers) -> None:
    write_input(tmp_path)
    job = partial(routed_job.main, tmp_path, on_error="park")
    drivers.die("before-planning@2", job)
    ref = TableRef("db", "t1", routed_job.storage(tmp_path))
    metadata = load(tmp_path, "db.t1").metadata_location
    ref.load_catalog().drop_table("db.t1")
    # The first driver parks epoch 2, and dies before Spark knows that it is done.
    drivers.die("before-checkpoint@2", job)
    drivers.die("before-planning@3", job)
    ref.load_catalog().register_table("db.t1", metadata)
    drivers.die("after-catching-up@2", job)
    assert drivers.run(job) == 0
    check(tmp_path, upsert=False)
    assert not list((tmp_path / "checkpoints").rglob("parked/*"))
    assert all(orphan_files(TableRef("db", name, routed_job.storage(tmp_path))) == [] for name in TABLES)

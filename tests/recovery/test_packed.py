"""Drivers die between the commits of many tables, of their rows and their histories: each change is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.duck import query
from tests.recovery import packed
from tests.recovery.runs import load
from tests.tiers import nightly

pytestmark = pytest.mark.usefixtures("spark")

COLUMNS = {"users": "id, note", "bills": "id, paid", "visits": "id"}


def check(folder: Path) -> None:
    """Each table and its history, as DuckDB reads them, are what the changes say; none has an epoch twice."""
    for name, columns in COLUMNS.items():
        table, past = load(folder, f"db.{name}"), load(folder, f"past.{name}")
        rows = query(f"select {columns} from iceberg_scan('{table.metadata_location}') order by id")
        assert rows.fetchall() == packed.ROWS[name]
        # The second number of a place, in hexadecimal digits.
        places = ", ".join(f"('0x' || hex({column})[17:32])::bigint" for column in ("valid_from", "valid_to"))
        versions = query(
            f"select {columns}, {places} from iceberg_scan('{past.metadata_location}') order by id, valid_from"
        )
        assert versions.fetchall() == packed.VERSIONS[name]
        for stored in (table, past):
            # The deletes of an epoch are a snapshot of their own.
            marks = [snapshot.summary["volley.epoch"] for snapshot in stored.snapshots() if snapshot.summary]
            assert [epoch for epoch in marks if epoch] == packed.EPOCHS[name]


@pytest.mark.parametrize(
    "points",
    [
        ["after-route-1@1"],
        nightly(["after-files@0", "after-route-1@0", "between-commits@1", "after-route-3@1", "before-checkpoint@1"]),
        nightly(["before-commit@1", "after-route-2@1", "after-commit@1", "after-route-2@2", "before-checkpoint@2"]),
    ],
)
def test_killed_between_the_commits_of_tables(drivers: Drivers, tmp_path: Path, points: list[str]) -> None:
    packed.write(tmp_path)
    for point in points:
        drivers.die(point, packed.run, tmp_path, "local[1]")
    packed.run(tmp_path)
    check(tmp_path)

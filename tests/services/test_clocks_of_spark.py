"""Iceberg's Java library reads what a clock behind the table's has committed: it refuses times that go back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.iceberg.test_clocks import append, back_and_forth, clock_ahead, other_writer, roll_back, to_branch
from tests.recovery.lake import Lake, write
from tests.servers.iceberg_spark import IcebergSpark
from volley.iceberg import IcebergTable, SchemaEvolution, SnapshotManager


def several(lake: Lake) -> None:
    """Commits of several kinds, by a clock that is two hours behind the table's."""
    append(lake)
    IcebergTable(lake.config).compact(least_files=2)
    SnapshotManager(lake.config).create_tag("audited")
    SchemaEvolution(lake.config.ref.load().schema()).add("name", "string").apply(lake.config)
    IcebergTable(lake.config).compute_statistics()


ACTIONS: dict[str, Callable[[Lake], Any]] = {
    "commits": several,
    "rollback": roll_back,
    "branch": to_branch,
    "back and forth": back_and_forth,
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_spark_reads_the_table_after_another_clock(
    action: Callable[[Lake], Any], iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    driver = lake.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    with clock_ahead():
        other_writer(lake).append(pa.table({"id": [99]}))
    action(lake)
    (read,) = iceberg_spark.sql(tmp_path / "lake" / "catalog.db", "select id from volley.db.events order by id")
    assert [row["id"] for row in read] == lake.rows()
    lake.close()

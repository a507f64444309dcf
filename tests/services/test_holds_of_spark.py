"""Expiry by Iceberg's Java library keeps the snapshots that a stream with a hold has not read yet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.recovery.lake import Lake, write
from tests.servers.iceberg_spark import IcebergSpark
from volley import SnapshotExpiredError, SourceContext
from volley.iceberg import IcebergSource, IcebergSourceConfig, Incremental

EXPIRE = (
    "call volley.system.expire_snapshots(table => 'db.events', older_than => timestamp '2999-01-01', retain_last => 1)"
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("max_age", [timedelta(days=7), None])
def test_what_comes_after_the_job_was_stopped_is_kept(
    max_age: timedelta | None, lake: Lake, iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    config = IcebergSourceConfig(lake.config.ref).with_mode(Incremental(0.001)).with_changes("follow")
    reader = IcebergSource(config.with_hold(max_age)).open(SourceContext(str(tmp_path / "state")))
    start = reader.latest_offset(reader.initial_offset(), None, None)
    reader.committed(start)
    # The job is stopped. Another one appends, by Volley as by Spark.
    for number in (1, 2):
        driver.commit(*write(driver, number, [number]))
    append = "insert into volley.db.events select * from volley.db.events where id = 2"
    iceberg_spark.sql(tmp_path / "lake" / "catalog.db", append, EXPIRE)
    again = IcebergSource(config.with_hold(max_age)).open(SourceContext(str(tmp_path / "state")))
    if max_age is None:
        with pytest.raises(SnapshotExpiredError):
            again.latest_offset(start, None, None)
        return
    end = again.latest_offset(start, None, None)
    batches = [batch for split in again.splits(start, end) for batch in again.read(split)]
    assert sorted(key for batch in batches for key in batch["id"].to_pylist()) == [1, 2, 2]

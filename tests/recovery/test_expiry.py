"""Expiry while jobs write, and expiries that die: each row exactly once, no file missing, what is left are orphans."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests import maintenance
from tests.drivers import Drivers
from tests.recovery.lake import QUERY, Lake, disturb, write
from tests.tiers import some
from volley import CommitConflictError
from volley.iceberg import SnapshotManager, orphan_files, publish_branch, remove_orphan_files
from volley.task.failpoints import EXPIRY_POINTS

AT_ONCE = timedelta(0)


def fill(lake: Lake, epochs: int) -> None:
    driver = lake.driver()
    for number in range(epochs):
        driver.commit(*write(driver, number, [number]))


def test_a_job_goes_on_when_its_snapshots_have_expired(lake: Lake) -> None:
    fill(lake, 4)
    manager = SnapshotManager(lake.config)
    manager.create_snapshot()  # not of the job
    assert len(manager.expire_snapshots(AT_ONCE).snapshots) == 4
    driver = lake.driver()
    assert driver.last_epoch(QUERY) == 3
    again = write(driver, 3, [3])
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        driver.commit(*again)
    driver.abort(*again)
    driver.commit(*write(driver, 4, [4]))
    assert lake.rows() == [0, 1, 2, 3, 4]
    assert orphan_files(lake.config, AT_ONCE) == []


def test_an_expiry_within_a_jobs_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake, 3)
    driver = lake.driver()
    manager = SnapshotManager(lake.config)

    def expiry_first(commit: Callable[[], Any]) -> Any:
        assert len(manager.expire_snapshots(AT_ONCE).snapshots) == 2
        return commit()

    disturb(monkeypatch, driver, expiry_first)
    driver.commit(*write(driver, 3, [3]))
    assert lake.rows() == [0, 1, 2, 3]
    assert orphan_files(lake.config, AT_ONCE) == []


def test_expiries_beside_a_job(lake: Lake) -> None:
    lake.driver()
    errors: list[Exception] = []
    done = False

    def expire() -> None:
        while not done:
            try:
                SnapshotManager(lake.config).expire_snapshots(AT_ONCE, retain_last=2)
            except CommitConflictError:
                continue  # a job that commits this fast may win four times
            except Exception as error:
                errors.append(error)

    beside = Thread(target=expire)
    beside.start()
    try:
        fill(lake, 25)
    finally:
        done = True
        beside.join()
    assert errors == []
    assert lake.rows() == list(range(25))
    SnapshotManager(lake.config).expire_snapshots(AT_ONCE)
    assert lake.rows() == list(range(25))
    assert len(lake.table().snapshots()) == 1
    # A SQL catalog leaves the metadata file of a commit that another writer has won.
    assert [path for path in orphan_files(lake.config, AT_ONCE) if not path.endswith(".metadata.json")] == []


def test_a_branch_that_a_job_writes_keeps_its_settings_and_can_be_published(lake: Lake) -> None:
    fill(lake, 1)
    manager = SnapshotManager(lake.config)
    made = manager.create_branch("audit", min_snapshots=2, max_snapshot_age="1h", max_age="2d")
    lake.config = lake.config.with_branch("audit")
    driver = lake.driver()
    for number in range(1, 4):
        driver.commit(*write(driver, number, [number]))
    (audit, _) = manager.branches()
    assert (audit.min_snapshots, audit.max_snapshot_age, audit.max_age) == (2, made.max_snapshot_age, made.max_age)
    assert len(manager.expire_snapshots(AT_ONCE).snapshots) == 0
    publish_branch(lake.config)
    lake.config = lake.config.with_branch("main")
    assert lake.driver().last_epoch(QUERY) == 3
    assert lake.rows() == [0, 1, 2, 3]


@pytest.mark.parametrize("point", some([f"{EXPIRY_POINTS[1]}@1", f"{EXPIRY_POINTS[0]}@0", f"{EXPIRY_POINTS[1]}@4"]))
def test_an_expiry_that_dies_leaves_orphans_and_loses_nothing(lake: Lake, point: str) -> None:
    fill(lake, 3)
    manager = SnapshotManager(lake.config)
    manager.create_tag("kept")
    lake.config = lake.config.with_commit_mode("overwrite")
    driver = lake.driver()
    for number in range(3, 6):
        driver.commit(*write(driver, number, [number]))
    planned = {Path(path).name for path in manager.expire_snapshots(AT_ONCE, dry_run=True).files}

    Drivers().die(point, maintenance.expire_one_by_one, lake.config.ref)

    assert len(lake.table().snapshots()) == 2
    assert lake.rows() == [5]
    assert sorted(lake.table().scan().use_ref("kept").to_arrow()["id"].to_pylist()) == [0, 1, 2]
    left = {Path(path).name for path in orphan_files(lake.config, AT_ONCE)}
    assert left <= planned
    assert len(left) == len(planned) - int(point.partition("@")[2])
    assert left
    # The next expiry has nothing to expire, and does not know of them.
    assert manager.expire_snapshots(AT_ONCE).files == ()
    remove_orphan_files(lake.config, AT_ONCE)
    assert orphan_files(lake.config, AT_ONCE) == []
    driver = lake.driver()
    assert driver.last_epoch(QUERY) == 5
    driver.commit(*write(driver, 6, [6]))
    assert lake.rows() == [6]
    assert sorted(lake.table().scan().use_ref("kept").to_arrow()["id"].to_pylist()) == [0, 1, 2]

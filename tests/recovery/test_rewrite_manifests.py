"""Rewrites of manifests beside a job, and ones that die: each row exactly once, what is left are orphans."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread

import pytest

from tests import maintenance
from tests.drivers import Drivers
from tests.recovery.lake import QUERY, Lake, write
from tests.tiers import some
from volley import CommitConflictError
from volley.iceberg import IcebergTable, SnapshotManager, orphan_files, remove_orphan_files
from volley.task.failpoints import MANIFEST_POINTS

AT_ONCE = timedelta(0)


def fill(lake: Lake, epochs: int) -> None:
    driver = lake.driver()
    for number in range(epochs):
        driver.commit(*write(driver, number, [number]))


@pytest.mark.parametrize("point", some(MANIFEST_POINTS))
def test_a_rewrite_that_dies_loses_nothing(lake: Lake, point: str) -> None:
    fill(lake, 4)
    driver = lake.driver()
    Drivers().die(f"{point}@0", maintenance.rewrite_manifests, lake.config.ref)

    is_done = point == "after-manifests"
    assert len(lake.table().snapshots()) == 4 + is_done
    assert lake.rows() == [0, 1, 2, 3]
    # The new manifest, and its list.
    assert len(orphan_files(lake.config, AT_ONCE)) == (0 if is_done else 2)
    assert IcebergTable(lake.config).rewrite_manifests().replaced == (0 if is_done else 4)
    remove_orphan_files(lake.config, AT_ONCE)
    assert driver.last_epoch(QUERY) == 3
    driver.commit(*write(driver, 4, [4]))
    assert lake.rows() == [0, 1, 2, 3, 4]


def test_rewrites_beside_a_job(lake: Lake) -> None:
    lake.driver().commit(*write(lake.driver(), 0, [0]))
    errors: list[Exception] = []
    rewritten = 0
    done = False

    def rewrite() -> None:
        nonlocal rewritten
        while not done:
            try:
                rewritten += IcebergTable(lake.config).rewrite_manifests().replaced
            except CommitConflictError:
                continue  # a job that commits this fast may win four times
            except Exception as error:
                errors.append(error)

    beside = Thread(target=rewrite)
    beside.start()
    try:
        driver = lake.driver()
        for number in range(1, 25):
            driver.commit(*write(driver, number, [number]))
    finally:
        done = True
        beside.join()
    assert errors == []
    assert lake.rows() == list(range(25))
    assert rewritten + IcebergTable(lake.config).rewrite_manifests().replaced >= 25
    assert lake.rows() == list(range(25))
    SnapshotManager(lake.config).expire_snapshots(AT_ONCE)
    assert lake.rows() == list(range(25))
    # A SQL catalog leaves the metadata file of a commit that another writer has won.
    assert [path for path in orphan_files(lake.config, AT_ONCE) if not path.endswith(".metadata.json")] == []

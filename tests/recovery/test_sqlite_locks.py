"""A SQLite catalog that another program holds open for writing: shorter and longer than a driver waits."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace

import pytest

from tests.recovery.lake import QUERY, Lake, retries, write
from volley import CatalogUnreachableError, Metrics
from volley.iceberg.catalogs.values import SqlCatalog


def next_start_goes_on(lake: Lake) -> None:
    driver = lake.driver()
    if driver.last_epoch(QUERY) is None:
        driver.commit(*write(driver, 0, [1, 2]))
    driver.commit(*write(driver, 1, [3]))
    assert lake.rows() == [1, 2, 3]


class Locked:
    """A lake whose SQLite catalog another program holds open for writing."""

    def __init__(self, lake: Lake, seconds: float) -> None:
        self.lake = lake
        self._file = lake.folder / "lake" / "catalog.db"
        lake.config = replace(lake.config, catalog=SqlCatalog(f"sqlite:///{self._file}?timeout={seconds}"))
        self.driver = lake.driver()
        self.written = write(self.driver, 0, [1, 2])
        self._holder = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
        self._holder.execute("begin immediate")

    def release(self) -> None:
        self._holder.close()


def test_a_sqlite_catalog_locked_for_less_than_its_own_wait(lake: Lake) -> None:
    locked = Locked(lake, 30)
    threading.Timer(0.3, locked.release).start()
    locked.driver.commit(*locked.written)
    next_start_goes_on(lake)


def test_a_sqlite_catalog_locked_for_less_than_the_retries(lake: Lake) -> None:
    locked = Locked(lake, 0.05)

    class Releasing(Metrics):
        """The lock is gone when the second retry is counted."""

        def record_retry(self) -> None:
            super().record_retry()
            if self.commit_retries == 2:
                locked.release()

    locked.driver._context = replace(locked.driver._context, metrics=Releasing())
    locked.driver.commit(*locked.written)
    assert retries(locked.driver) == 2
    next_start_goes_on(lake)


def test_a_sqlite_catalog_that_stays_locked(lake: Lake) -> None:
    locked = Locked(lake, 0.05)
    # SQLite has rolled it back, so that the job may delete the files.
    with pytest.raises(CatalogUnreachableError, match="is locked"):
        locked.driver.commit(*locked.written)
    locked.driver.abort(*locked.written)
    assert lake.files() == []
    locked.release()
    assert lake.rows() == []
    next_start_goes_on(lake)

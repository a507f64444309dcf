"""Partitioned tables and branches under conflicts: each row exactly once, in its partition, on its branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.recovery.lake import QUERY, Lake, disturb, write
from volley import CommitConflictError
from volley.iceberg import Partitioning, publish_branch
from volley.iceberg.catalogs.answers import ATTEMPTS


@pytest.fixture
def partitioned(lake: Lake) -> Lake:
    lake.config = lake.config.with_partitioning(Partitioning.identity("id"))
    return lake


def test_conflicts_on_a_partitioned_table(partitioned: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = partitioned.driver()

    def other_writer_first(commit: Callable[[], Any]) -> Any:
        partitioned.table().append(pa.table({"id": [100]}))
        return commit()

    def answer_lost(commit: Callable[[], Any]) -> Any:
        commit()
        raise ConnectionError("connection reset after the commit")

    disturb(monkeypatch, driver, other_writer_first, answer_lost)
    driver.commit(*write(driver, 0, [1, 2, 3, 4]))
    assert partitioned.rows() == [1, 2, 3, 4, 100]
    assert partitioned.table().scan(row_filter="id = 3").to_arrow()["id"].to_pylist() == [3]


def test_two_drivers_with_the_same_epoch_of_a_partitioned_table(partitioned: Lake) -> None:
    first, second = partitioned.driver(), partitioned.driver()
    one, two = write(first, 0, [1, 2, 3]), write(second, 0, [1, 2, 3])
    first.commit(*one)
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        second.commit(*two)
    second.abort(*two)
    assert partitioned.rows() == [1, 2, 3]


def test_a_branch_keeps_its_epochs_when_main_moves_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.driver().commit(*write(lake.driver(), 0, [1]))
    main = lake.config
    lake.config = main.with_branch("audit")
    driver = lake.driver()

    def main_first(commit: Callable[[], Any]) -> Any:
        lake.table().append(pa.table({"id": [100]}))
        return commit()

    driver.commit(*write(driver, 1, [2]))
    disturb(monkeypatch, driver, main_first)
    driver.commit(*write(driver, 2, [3]))
    assert lake.driver().last_epoch(QUERY) == 2
    assert lake.rows() == [1, 100]
    assert sorted(lake.table().scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    with pytest.raises(CommitConflictError, match="main is at snapshot"):
        publish_branch(lake.config)


def test_a_branch_overtaken_by_main_in_each_attempt_has_not_landed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.driver().commit(*write(lake.driver(), 0, [1]))
    lake.config = lake.config.with_branch("audit")
    driver = lake.driver()

    def main_first(commit: Callable[[], Any]) -> Any:
        lake.table().append(pa.table({"id": [100]}))
        return commit()

    disturb(monkeypatch, driver, *[main_first] * ATTEMPTS)
    with pytest.raises(CommitConflictError, match="during each of 4 attempts"):
        driver.commit(*write(driver, 1, [2]))
    assert lake.driver().last_epoch(QUERY) == 0


def test_two_drivers_that_both_make_the_branch(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.config = lake.config.with_branch("audit")
    first, second = lake.driver(), lake.driver()
    one, two = write(first, 0, [1]), write(second, 0, [1])

    def first_commits(commit: Callable[[], Any]) -> Any:
        first.commit(*one)
        return commit()

    disturb(monkeypatch, second, first_commits)
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        second.commit(*two)
    assert lake.table().scan().use_ref("audit").to_arrow()["id"].to_pylist() == [1]

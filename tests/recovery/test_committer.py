"""The commit loop under faults: a real SQLite catalog, whose commits are disturbed by a wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType
from requests.exceptions import ConnectionError as Unreachable

from tests.recovery.lake import QUERY, Lake, change_at, disturb, retries, write
from volley import (
    CatalogUnreachableError,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    LayoutChangedError,
)
from volley.iceberg.commit.marks import epoch_of


def refused(commit: Callable[[], Any]) -> Any:
    raise CommitFailedException("somebody was faster")


def answer_lost(commit: Callable[[], Any]) -> Any:
    commit()
    raise Unreachable("connection reset after the commit")


def request_lost(commit: Callable[[], Any]) -> Any:
    raise Unreachable("connection reset before the commit")


def test_one_snapshot_with_both_marks(lake: Lake) -> None:
    driver = lake.driver()
    assert driver.last_epoch(QUERY) is None
    driver.commit(*write(driver, 0, [1, 2]))
    driver.commit(*write(driver, 1, [3]))
    assert lake.rows() == [1, 2, 3]
    assert driver.last_epoch(QUERY) == 1
    assert driver.last_epoch("another query") is None
    summaries = [snapshot.summary for snapshot in lake.table().snapshots()]
    marks = [(s["volley.job"], s["volley.query-id"], s["volley.epoch"]) for s in summaries if s]
    assert marks == [("job", QUERY, "0"), ("job", QUERY, "1")]


def test_no_rows_no_snapshot(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, []))
    assert lake.table().snapshots() == []
    assert driver.last_epoch(QUERY) is None


def test_two_drivers_with_the_same_epoch(lake: Lake) -> None:
    first, second = lake.driver(), lake.driver()
    assert (first.last_epoch(QUERY), second.last_epoch(QUERY)) == (None, None)
    one, two = write(first, 0, [1, 2]), write(second, 0, [1, 2])
    first.commit(*one)
    with pytest.raises(CommitConflictError, match="committed by another driver") as caught:
        second.commit(*two)
    assert "twice" in str(caught.value.hint)
    second.abort(*two)
    assert lake.rows() == [1, 2]
    assert len(lake.files()) == 1


def test_two_drivers_both_past_staging(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lake.driver(), lake.driver()
    one, two = write(first, 0, [1, 2]), write(second, 0, [1, 2])

    def other_driver_first(commit: Callable[[], Any]) -> Any:
        first.commit(*one)
        return commit()

    calls = disturb(monkeypatch, second, other_driver_first)
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        second.commit(*two)
    assert len(calls) == 1
    assert lake.rows() == [1, 2]


def test_the_mark_outlives_its_snapshot(lake: Lake) -> None:
    first, second = lake.driver(), lake.driver()
    one, two = write(first, 0, [1]), write(second, 0, [1])
    first.commit(*one)
    old = lake.table().current_snapshot()
    lake.table().append(pa.table({"id": [100]}))
    assert old is not None
    lake.table().maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    assert [s.snapshot_id for s in lake.table().snapshots()] != [old.snapshot_id]
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        second.commit(*two)
    assert lake.rows() == [1, 100]


def test_without_the_property_the_snapshots_tell(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [1]))
    driver.commit(*write(driver, 1, [2]))
    lake.table().append(pa.table({"id": [100]}))
    with lake.table().transaction() as change:
        change.remove_properties(f"volley.epoch.{QUERY}")
    assert epoch_of(lake.table(), QUERY, "main") == 1


def test_conflicts_are_retried_from_the_top(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lake.driver()

    def other_writer_first(commit: Callable[[], Any]) -> Any:
        lake.table().append(pa.table({"id": [100]}))
        return commit()

    disturb(monkeypatch, driver, other_writer_first, other_writer_first)
    driver.commit(*write(driver, 0, [1]))
    assert lake.rows() == [1, 100, 100]
    assert retries(driver) == 2


def test_conflicts_without_end(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lake.driver()
    calls = disturb(monkeypatch, driver, *[refused] * 9)
    written = write(driver, 0, [1])
    with pytest.raises(CommitConflictError, match="each of 4 attempts"):
        driver.commit(*written)
    assert len(calls) == 4
    driver.abort(*written)
    assert lake.rows() == []
    assert lake.files() == []


def test_a_lost_answer_doubles_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lake.driver()
    calls = disturb(monkeypatch, driver, answer_lost)
    driver.commit(*write(driver, 0, [1]))
    assert len(calls) == 1
    assert lake.rows() == [1]


def test_a_lost_request_loses_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lake.driver()
    calls = disturb(monkeypatch, driver, request_lost, request_lost)
    driver.commit(*write(driver, 0, [1]))
    assert len(calls) == 3
    assert lake.rows() == [1]


@pytest.mark.parametrize("fault", [answer_lost, request_lost])
def test_a_catalog_that_stays_away_leaves_everything_recoverable(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Callable[[], Any]], Any]
) -> None:
    driver = lake.driver()
    written = write(driver, 0, [1])

    def away(*args: Any) -> Any:
        raise Unreachable("connection refused")

    def fault_then_away(commit: Callable[[], Any]) -> Any:
        monkeypatch.setattr(driver._catalog, "load_table", away)
        return fault(commit)

    if fault is answer_lost:
        disturb(monkeypatch, driver, lambda commit: (commit(), fault_then_away(lambda: None)))
    else:
        disturb(monkeypatch, driver, fault_then_away)
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        driver.commit(*written)
    assert len(lake.files()) == 1

    again = lake.driver()
    if again.last_epoch(QUERY) is None:
        again.commit(*write(again, 0, [1]))
    assert lake.rows() == [1]


def test_a_catalog_that_is_away_before_the_first_attempt(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lake.driver()
    written = write(driver, 0, [1])

    def away(*args: Any) -> Any:
        raise Unreachable("connection refused")

    monkeypatch.setattr(driver._catalog, "load_table", away)
    with pytest.raises(CatalogUnreachableError, match="does not answer"):
        driver.commit(*written)


def test_files_of_an_old_schema_or_spec_are_not_filed_under_the_new_one(lake: Lake) -> None:
    driver = lake.driver()
    written = write(driver, 0, [1])
    with lake.table().update_schema() as update:
        update.add_column("new", StringType())
    with pytest.raises(LayoutChangedError, match="changed between write and commit"):
        driver.commit(*written)
    driver.last_epoch(QUERY)
    written = write(driver, 0, [1])
    with lake.table().update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "by_id")
    with pytest.raises(LayoutChangedError, match="partition spec 0"):
        driver.commit(*written)
    assert lake.rows() == []


def compact(table: Table) -> None:
    """All rows in one new file, in one overwrite snapshot."""
    table.overwrite(table.scan().to_arrow())


def expire(table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def roll_back(table: Table) -> None:
    """The last epoch is taken back by somebody; what comes after it is not."""
    head = table.current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id is not None
    table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()


OTHERS: dict[str, tuple[Callable[[Table], None], list[int]]] = {
    "appends": (lambda table: table.append(pa.table({"id": [100]})), [1, 2, 3, 100]),
    "compacts": (compact, [1, 2, 3]),
    "expires snapshots": (expire, [1, 2, 3]),
    "rolls back": (roll_back, [1, 3]),
    "deletes a row": (lambda table: table.delete("id = 1"), [2, 3]),
}


@pytest.mark.parametrize(("change", "expected"), OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("moment", ["between write and commit", "while it commits"])
def test_another_writer(
    moment: str, change: Callable[[Table], None], expected: list[int], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [1]))
    driver.commit(*write(driver, 1, [2]))
    written = write(driver, 2, [3])

    change_at(moment, monkeypatch, driver, lambda: change(lake.table()))
    driver.commit(*written)
    assert lake.rows() == expected
    assert lake.driver().last_epoch(QUERY) == 2
    head = lake.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["volley.epoch"] == "2"


def test_a_table_made_again_is_another_table(lake: Lake) -> None:
    driver = lake.driver()
    written = write(driver, 0, [1])
    catalog = lake.config.ref.load_catalog()
    lake._catalogs.append(catalog)
    catalog.drop_table("db.events")
    lake.driver()
    with pytest.raises(CommitError, match="dropped and made again"):
        driver.commit(*written)
    assert lake.rows() == []

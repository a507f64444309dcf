"""Tables of very many snapshots: walks over them are linear, and commits write all of them as they were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from tests.iceberg.conftest import Make
from tests.iceberg.snapshots import AT_ONCE, History
from volley.iceberg.commit.marks import epoch_before
from volley.iceberg.maintain.expiry import Rule
from volley.iceberg.maintain.refs import was_current
from volley.iceberg.pyiceberg_private.guarded import share_metadata
from volley.iceberg.read.history import snapshot_at, snapshots_between

_FEW, _MANY = 50, 800
_START = datetime(2026, 1, 1, tzinfo=UTC)
Grown = Callable[[int], Table]


@pytest.fixture
def grown(make: Make) -> Grown:
    """Makes tables in memory of so many snapshots, one a second, each the successor of the one before."""
    table = make(pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    (last,) = table.metadata.snapshots

    def snapshot(number: int) -> Snapshot:
        ids = {"snapshot_id": number, "parent_snapshot_id": number - 1 or None, "sequence_number": number}
        return last.model_copy(update={**ids, "timestamp_ms": _millis(number)})

    def entry(number: int) -> SnapshotLogEntry:
        update = {"snapshot_id": number, "timestamp_ms": _millis(number)}
        return table.metadata.snapshot_log[0].model_copy(update=update)

    @cache
    def grow(count: int) -> Table:
        ref = table.metadata.refs["main"].model_copy(update={"snapshot_id": count})
        metadata = table.metadata.model_copy(
            update={
                "snapshots": [snapshot(number) for number in range(1, count + 1)],
                "snapshot_log": [entry(number) for number in range(1, count + 1)],
                "current_snapshot_id": count,
                "last_sequence_number": count,
                "refs": {"main": ref, "audit": ref},
            }
        )
        return share_metadata(Table(table.name(), metadata, table.metadata_location, table.io, table.catalog))

    return grow


def _millis(number: int) -> int:
    return int(_START.timestamp() + number) * 1000


def _last_epoch(table: Table) -> None:
    assert epoch_before(table, table.current_snapshot(), "another query") is None


def _was_current(table: Table) -> None:
    stranger = table.metadata.snapshots[0].model_copy(update={"snapshot_id": 10**9})
    assert not was_current(table.metadata, "audit", stranger)


def _by_age(table: Table) -> None:
    expired = Rule(datetime.now(UTC), older_than=datetime.now(UTC), retain_last=10).expired(table.metadata)
    assert len(expired.snapshots) == len(table.metadata.snapshots) - 10


def _by_id(table: Table) -> None:
    ids = frozenset(snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-1])
    assert len(Rule(datetime.now(UTC), ids=ids).expired(table.metadata).snapshots) == len(ids)


def _first_of_branch(table: Table) -> None:
    assert snapshot_at(table.metadata, "audit", _START + timedelta(seconds=1), "db.t").snapshot_id == 1


def _first_of_main(table: Table) -> None:
    assert snapshot_at(table.metadata, "main", _START + timedelta(seconds=1), "db.t").snapshot_id == 1


def _history(table: Table) -> None:
    count = len(table.metadata.snapshots)
    assert [snapshot.snapshot_id for snapshot in snapshots_between(table, 1, count)] == list(range(2, count + 1))


@pytest.mark.parametrize(
    "walk", [_last_epoch, _was_current, _by_age, _by_id, _first_of_branch, _first_of_main, _history]
)
def test_walks_are_linear(grown: Grown, walk: Callable[[Table], None]) -> None:
    few, many = (_lines(walk, grown(count)) for count in (_FEW, _MANY))
    # A search for each snapshot would run 8 × that.
    assert many < 2 * (_MANY / _FEW) * few


def _lines(walk: Callable[[Table], None], table: Table) -> int:
    """Run a walk, and return how many lines of Python it runs; each round of a loop is one at least."""
    lines = 0

    def count(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        walk(table)
    finally:
        sys.settrace(before)
    return lines


def test_metadata_after_commits_by_us_by_others_and_expiry(tmp_path: Path) -> None:
    history = History(tmp_path)
    others: Any = history.ref.load_catalog()
    ids: list[int] = []
    for number, catalog in enumerate([history.catalog] * 3 + [others] + [history.catalog] * 2):
        catalog.load_table("db.events").append(pa.table({"id": [number]}))
        before, ids = ids, _written(history, rows=number + 1)
        assert ids[:-1] == before
    history.manager.expire_snapshots(older_than=AT_ONCE, retain_last=2)
    assert _written(history, rows=6) == ids[-2:]
    history.catalog.load_table("db.events").append(pa.table({"id": [6]}))
    assert _written(history, rows=7)[:-1] == ids[-2:]
    others.close()
    history.close()


def _written(history: History, rows: int) -> list[int]:
    """The snapshots' ids in the table's metadata file, as plain pyiceberg reads it; all rows are there."""
    file = StaticTable.from_metadata(history.table().metadata_location)
    assert sorted(file.scan().to_arrow()["id"].to_pylist()) == list(range(rows))
    return [snapshot.snapshot_id for snapshot in file.metadata.snapshots]

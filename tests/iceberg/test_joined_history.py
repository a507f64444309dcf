"""Rows joined with those that a table had at their time: by random histories, and by the snapshots of a real table."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iceberg.joined import at_epoch
from volley import ConfigError, DataStream, Environment, ExpressionError, MemorySource, PlanError
from volley.arrow.join_history import GONE, SINCE, WEIGHT, versions
from volley.arrow.join_index import JoinIndex, build_index
from volley.engine.joins import JoinedTables
from volley.iceberg import IcebergStorage, IcebergTable, SnapshotManager, TableRef

KEYS = st.sampled_from([None, "a", "b"])
NUMBERS = st.sampled_from([None, 0.0, -0.0, math.nan])
ROW = st.fixed_dictionaries({"k": KEYS, "d": NUMBERS, "v": st.integers(0, 2)})


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.lists(ROW, max_size=4), st.sets(st.integers(0, 5))), max_size=6),
    keys=st.sampled_from([["k"], ["k", "d"]]),
)
def test_random_histories(steps: list[tuple[int, list[dict[str, Any]], set[int]]], keys: list[str]) -> None:
    """Each step removes some rows and adds others; at each time a key has the rows that are there."""
    now, live, events, states = 0, [], [], [(-1, [])]  # type: ignore[var-annotated]
    for wait, added, places in steps:
        now += wait
        gone = [row for place, row in enumerate(live) if place in places]
        live = [row for place, row in enumerate(live) if place not in places] + added
        events += [{**row, SINCE: now, WEIGHT: -1} for row in gone] + [{**row, SINCE: now, WEIGHT: 1} for row in added]
        states.append((now, live))
    schema = pa.schema({"k": pa.string(), "d": pa.float64(), "v": pa.int64(), SINCE: pa.int64(), WEIGHT: pa.int64()})
    rows = versions(pa.Table.from_pylist(events, schema), keys)
    index = JoinIndex.of(build_index(rows, keys, SINCE, ["v", GONE], break_ties=False))
    for at in range(-1, now + 2):
        expected = next(state for since, state in reversed(states) if since <= at)
        for probe in [{"k": k, "d": d} for k in ("a", "b", None) for d in (0.0, math.nan, None)]:
            columns = [pa.array([probe[key]], schema.field(key).type) for key in keys]
            (first,), (count,) = index.match_version(columns, pa.array([at]), GONE)
            found = index.rows.column("v").to_pylist()[first : first + count]
            wanted = [row["v"] for row in expected if all(_same(row[key], probe[key]) for key in keys)]
            assert Counter(found) == Counter(wanted), (at, probe)


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return False
    return bool(one == other or (one != one and other != other))


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("active", pa.bool_())])


def people(*names: str, first: int = 1, active: bool = True) -> pa.Table:
    ids = range(first, first + len(names))
    return pa.table({"id": ids, "name": names, "active": [active] * len(names)}, SCHEMA)


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    """A table of four snapshots: rows are added, changed, deleted."""
    ref = TableRef("db", "people", IcebergStorage.Local(str(tmp_path / "lake")))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.people", SCHEMA)
    changes: list[Callable[[], Any]] = [
        lambda: table.append(people("Ada", "Bob")),
        lambda: table.append(people("Cyd", first=3)),
        lambda: table.overwrite(people("Eve"), "id = 1"),
        lambda: table.delete("id = 2"),
    ]
    for change in changes:
        time.sleep(0.003)
        change()
    return ref


def instants(ref: TableRef) -> list[datetime]:
    """Times between the table's snapshots, at each of them, and after."""
    times = [datetime.fromtimestamp(each.timestamp_ms / 1000, UTC) for each in ref.load().snapshots()]
    return [at + timedelta(milliseconds=offset) for at in times for offset in (0, 1)]


def keyed(times: list[datetime]) -> pa.Table:
    rows = [{"key": key, "at": at} for at in times for key in (1, 2, 3, 4)]
    return pa.Table.from_pylist(rows, pa.schema({"key": pa.int64(), "at": pa.timestamp("us", "UTC")}))


def joined(ref: TableRef, times: list[datetime], table: Any = None, **options: Any) -> DataStream:
    stream = Environment().from_source(MemorySource(keyed(times)))
    return stream.join(IcebergTable(ref) if table is None else table, {"key": "id"}, as_of="at", **options)


def expected(ref: TableRef, times: list[datetime]) -> list[tuple[int, datetime, str]]:
    """Return what pyiceberg reads of the snapshot that was current at each time."""
    table = ref.load()
    rows = []
    for at in times:
        current = [each for each in table.snapshots() if each.timestamp_ms <= at.timestamp() * 1000][-1]
        found = table.scan(snapshot_id=current.snapshot_id).to_arrow().to_pylist()
        rows += [(row["id"], at, row["name"]) for row in found]
    return sorted(rows)


@pytest.mark.parametrize("max_bytes", [1 << 20, 100], ids=["small", "large"])
def test_each_row_gets_the_rows_of_its_time(ref: TableRef, max_bytes: int) -> None:
    times = instants(ref)
    found = joined(ref, times, columns=["name"], max_bytes=max_bytes).to_arrow().to_pylist()
    assert sorted((row["key"], row["at"], row["name"]) for row in found) == expected(ref, times)
    before = [times[0] - timedelta(days=1)]
    # Before the table had a row, there was none.
    left = joined(ref, before, how="left").to_arrow().to_pylist()
    assert [row["name"] for row in left] == [None] * 4
    filtered = joined(ref, times[-1:], IcebergTable(ref).rows.filter("name <> 'Cyd'"), columns=["name"])
    assert [row["name"] for row in filtered.to_arrow().to_pylist()] == ["Eve"]


def test_a_row_before_the_first_snapshot_that_is_left_is_a_bad_row(ref: TableRef) -> None:
    times = instants(ref)
    SnapshotManager(ref).expire_snapshots(retain_last=2, older_than="2100-01-01")
    table = ref.load()
    first = min(each.timestamp_ms for each in table.snapshots())
    known = [at for at in times if at.timestamp() * 1000 >= first]
    assert known != times
    found = joined(ref, known, columns=["name"]).to_arrow().to_pylist()
    assert sorted((row["key"], row["at"], row["name"]) for row in found) == expected(ref, known)
    with pytest.raises(ExpressionError, match="the first snapshot that the table still has is of"):
        joined(ref, times).to_arrow()


def test_what_has_no_history(ref: TableRef) -> None:
    with pytest.raises(PlanError, match="rows of one time only"):
        joined(ref, instants(ref), MemorySource([{"id": 1}])).to_arrow()
    naive = Environment().from_source(MemorySource([{"id": 1, "at": datetime(2026, 1, 1)}]))
    with pytest.raises(ExpressionError, match=r"'at' is timestamp_ntz\n.*time zone"):
        _ = naive.join(IcebergTable(ref), "id", as_of="at").schema
    with pytest.raises(ConfigError, match="as_of is ''"):
        naive.join(IcebergTable(ref), "id", as_of="")
    with pytest.raises(PlanError, match="take more than 10 bytes"):
        joined(ref, instants(ref), max_bytes=10).to_arrow()


class Killed(BaseException):
    """The end of a driver."""


@pytest.mark.parametrize(("point", "is_bound"), [("after-bucket", False), ("before-pin", False), ("after-pin", True)])
def test_an_epoch_keeps_the_history_that_it_was_bound_to(
    ref: TableRef, tmp_path: Path, point: str, is_bound: bool
) -> None:
    """The driver dies, the table changes and its snapshots expire; the next driver repeats the epoch."""
    times = [*instants(ref), datetime(2100, 1, 1, tzinfo=UTC)]
    bound = expected(ref, times)

    def die(reached: str, _: int) -> None:
        if reached == point:
            raise Killed

    node = joined(ref, times, columns=["name"], max_bytes=100)._node
    dying, tables = (JoinedTables("job", str(tmp_path / "joins")) for _ in range(2))
    dying.open([node])
    with patch("volley.engine.joins.reach", die), pytest.raises(Killed):
        dying.pin(0)
    time.sleep(0.003)
    ref.load().delete("id = 3")
    if is_bound:
        SnapshotManager(ref).expire_snapshots(retain_last=1, older_than="2100-01-01")
    (join,) = tables.open([node])
    tables.pin(0)
    now = bound if is_bound else [row for row in bound if row[0] != 3 or row[1].year < 2100]
    assert now == sorted((row["key"], row["at"], row["name"]) for row in at_epoch(0, join, keyed(times)).to_pylist())

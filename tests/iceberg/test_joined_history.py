"""Rows joined with those that a table had at their time: by random histories, and by the snapshots of a real table."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import LongType

from tests.duck import query
from tests.iceberg.joined import at_epoch, history
from tests.tiers import some
from volley import ConfigError, DataStream, Environment, ExpressionError, MemorySource, PlanError, SnapshotExpiredError
from volley.columns.join_history import GONE, SINCE, WEIGHT, later_versions, versions
from volley.columns.join_index import JoinIndex, JoinKeys, build_index, key_columns
from volley.engine.joins import JoinedTables
from volley.iceberg import IcebergStorage, IcebergTable, SnapshotManager, TableRef
from volley.iceberg.read.dimension import IcebergDimensionReader

KEYS = st.sampled_from([None, "a", "b"])
NUMBERS = st.sampled_from([None, 0.0, -0.0, math.nan])
UUIDS = [UUID(int=1), UUID(int=2), None]
ROW = st.fixed_dictionaries({"k": KEYS, "d": NUMBERS, "u": st.sampled_from(UUIDS), "v": st.integers(0, 2)})


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.lists(ROW, max_size=4), st.sets(st.integers(0, 5))), max_size=6),
    cut=st.integers(0, 6),
    keys=st.sampled_from([["k"], ["k", "d"], ["u"]]),
)
def test_random_histories(steps: list[tuple[int, list[dict[str, Any]], set[int]]], cut: int, keys: list[str]) -> None:
    """Each step removes some rows and adds others; at each time a key has the rows that are there.

    The steps behind the cut are applied to the index of those before.
    """
    now = known = 0
    live: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    states: list[tuple[int, list[dict[str, Any]]]] = [(-1, [])]
    for number, (wait, added, places) in enumerate(steps):
        known = len(events) if number == cut else known
        now += wait
        gone = [row for place, row in enumerate(live) if place in places]
        live = [row for place, row in enumerate(live) if place not in places] + added
        events += [{**row, SINCE: now, WEIGHT: -1} for row in gone] + [{**row, SINCE: now, WEIGHT: 1} for row in added]
        states.append((now, live))
    types = {"k": pa.string(), "d": pa.float64(), "u": pa.uuid(), "v": pa.int64()}
    schema = pa.schema({**types, SINCE: pa.int64(), WEIGHT: pa.int64()})
    rows = versions(pa.Table.from_pylist(events[:known], schema), keys)
    index = JoinIndex.of(build_index(rows, keys, SINCE, ["v", GONE], break_ties=False))
    later = build_index(pa.Table.from_pylist(events[known:], schema), keys, None, ["v", SINCE, WEIGHT])
    rows = later_versions(index, JoinIndex.of(later).table())
    index = JoinIndex.of(build_index(rows, key_columns(len(keys), True)[0], SINCE, ["v", GONE], break_ties=False))
    for at in range(-1, now + 2):
        expected = next(state for since, state in reversed(states) if since <= at)
        for probe in [
            {"k": k, "d": d, "u": u}
            for k in ("a", "b", None)
            for d, u in zip((0.0, math.nan, None), UUIDS, strict=True)
        ]:
            columns = [pa.array([probe[key]], schema.field(key).type) for key in keys]
            (first,), (count,) = index.match_version(JoinKeys.of(columns), pa.array([at]), GONE)
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
    """Times at which the table got a snapshot, and between them, and after."""
    times = sorted({*history(ref.load()).column("since").to_pylist()})
    return [at + timedelta(milliseconds=offset) for at in times for offset in (0, 1)]


def keyed(times: list[datetime]) -> pa.Table:
    rows = [{"key": key, "at": at} for at in times for key in (1, 2, 3, 4)]
    return pa.Table.from_pylist(rows, pa.schema({"key": pa.int64(), "at": pa.timestamp("us", "UTC")}))


def joined(ref: TableRef, times: list[datetime], table: Any = None, **options: Any) -> DataStream:
    stream = Environment().from_source(MemorySource(keyed(times)))
    return stream.join(IcebergTable(ref) if table is None else table, {"key": "id"}, as_of="at", **options)


def expected(ref: TableRef, times: list[datetime]) -> list[tuple[int, datetime, str]]:
    """Return by DuckDB what the snapshot had that was current at each time."""
    sql = 'select id, "at", name from a join p on "at" >= since and "at" < until where id < 5 order by all'
    found = query(sql, a=pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))}), p=history(ref.load()))
    return [(row["id"], row["at"], row["name"]) for row in found.to_arrow_table().to_pylist()]


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
    # Years that Python's calendar does not have.
    far = pa.array([-(2**62), 2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = Environment().from_source(MemorySource(pa.table({"key": [3, 3], "at": far})))
    by_history = rows.join(IcebergTable(ref), {"key": "id"}, as_of="at")
    with pytest.raises(ExpressionError, match=f"join as of {-(2**62):,} microseconds from 1970: the first snapshot"):
        by_history.to_arrow()


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


def roll_back(ref: TableRef) -> None:
    """Back behind the last change, and on from there."""
    snapshots = ref.load().snapshots()
    SnapshotManager(ref).rollback_to(snapshots[-2].snapshot_id)
    ref.load().append(people("Flo", first=4))


def remake(ref: TableRef) -> None:
    catalog = ref.load_catalog()
    catalog.drop_table("db.people")
    catalog.create_table("db.people", SCHEMA).append(people("Gil", "Hal"))


def expire(ref: TableRef) -> None:
    SnapshotManager(ref).expire_snapshots(retain_last=1, older_than="2100-01-01")


def add_column(ref: TableRef) -> None:
    with ref.load().update_schema() as update:
        update.add_column("age", LongType())
    ref.load().append(people("Ivo", first=2))


@pytest.mark.parametrize("max_bytes", some([800, 1 << 20]), ids=["large", "small"])
def test_a_history_grows_by_the_changes_of_new_snapshots(ref: TableRef, tmp_path: Path, max_bytes: int) -> None:
    """It is read once; and again when it is not the beginning of the new one."""
    growing: list[Callable[[TableRef], Any]] = [
        lambda ref: ref.load().append(people("Kim", "Lou", first=2)),
        lambda ref: ref.load().delete("id = 2"),
        lambda ref: IcebergTable(ref).compact(),
        lambda ref: ref.load().overwrite(people("Mia", "Ned"), "id < 4"),
        lambda ref: ref.load().append(people("Kim", first=2)),
    ]
    anew: list[Callable[[TableRef], Any]] = [roll_back, expire, add_column, remake]
    ref.load().append(people(*["Zoe"] * 60, first=100))
    tables = JoinedTables("job", str(tmp_path / "joins"))
    (join,) = tables.open([joined(ref, [], columns=["name"], max_bytes=max_bytes)._node])
    reads = []
    with patch.object(
        IcebergDimensionReader, "history", autospec=True, side_effect=IcebergDimensionReader.history
    ) as h:
        for epoch, change in enumerate([lambda _: None, *growing, *anew]):
            change(ref)
            tables.pin(epoch)
            times = instants(ref)
            found = at_epoch(epoch, join, keyed(times)).to_pylist()
            assert sorted((row["key"], row["at"], row["name"]) for row in found) == expected(ref, times), epoch
            reads.append(h.call_count)
            is_divided = len(list((tmp_path / "joins").rglob("*-of-1.arrow"))) == 0
            assert change is remake or is_divided == (max_bytes < 1_000)
    assert reads == [1] * (1 + len(growing)) + [2, 3, 4, 5]


def test_a_lost_copy_of_a_history_whose_beginning_has_expired_is_named(ref: TableRef, tmp_path: Path) -> None:
    """Rows that were joined with older snapshots would be bad ones in a repetition."""

    def pin() -> None:
        tables = JoinedTables("job", str(tmp_path / "joins"))
        tables.open([joined(ref, [])._node])
        tables.pin(0)

    pin()
    (copy,) = (tmp_path / "joins").rglob("*.arrow")
    copy.unlink()
    pin()
    copy.unlink()
    expire(ref)
    with pytest.raises(SnapshotExpiredError, match=r"epoch 0 joins .*: the history of table db.people began with"):
        pin()


def test_a_row_that_was_removed_twice_is_noticed() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int64(), SINCE: pa.int64(), WEIGHT: pa.int64()})
    events = [{"k": "a", "v": 1, SINCE: since, WEIGHT: weight} for since, weight in ((1, 1), (2, -1), (3, -1))]
    with pytest.raises(ValueError, match="removed that was not there"):
        versions(pa.Table.from_pylist(events, schema), ["k"])

"""The snapshots between two of them; what is not there is told apart: unknown, expired, rolled back, made anew."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.iceberg.conftest import Make
from volley import SnapshotExpiredError, SnapshotNotFoundError, SnapshotRolledBackError, TableReplacedError
from volley.iceberg.read.history import changes_rows, check_same_table, snapshots_between

SCHEMA = pa.schema({"id": pa.int64()})


def append(table: Table, *ids: int, branch: str = "main") -> int:
    """Append rows; return the snapshot."""
    table.append(pa.table({"id": list(ids)}, SCHEMA), branch=branch)
    found = table.snapshot_by_name(branch)
    assert found is not None
    return found.snapshot_id


def between(table: Table, start: int | None, end: int) -> list[int]:
    return [snapshot.snapshot_id for snapshot in snapshots_between(table, start, end)]


def expire(table: Table, *snapshots: int) -> None:
    table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()


def with_parent(table: Table, snapshot: int, parent: int) -> Table:
    """What Java leaves of an expiry: the successor keeps its parent's id."""
    changed = [
        each.model_copy(update={"parent_snapshot_id": parent}) if each.snapshot_id == snapshot else each
        for each in table.metadata.snapshots
    ]
    table.metadata = table.metadata.model_copy(update={"snapshots": changed})
    return table


@pytest.fixture(params=["false", "true"], ids=["fast", "merged"])
def table(request: pytest.FixtureRequest, make: Make) -> Table:
    return make(
        SCHEMA,
        **{"commit.manifest-merge.enabled": request.param, "commit.manifest.min-count-to-merge": "2"},
    )


def test_the_walk_goes_from_after_the_start_to_the_end(table: Table) -> None:
    ids = [append(table, number) for number in range(4)]
    assert between(table, ids[0], ids[3]) == ids[1:]
    assert between(table, None, ids[2]) == ids[:3]
    assert between(table, ids[2], ids[2]) == []


def test_compactions_change_no_rows(table: Table) -> None:
    append(table, 1)
    (snapshot,) = table.snapshots()
    assert changes_rows(snapshot)
    assert snapshot.summary is not None
    summary = snapshot.summary.model_copy(update={"operation": type(snapshot.summary.operation)("replace")})
    assert not changes_rows(snapshot.model_copy(update={"summary": summary}))
    assert changes_rows(snapshot.model_copy(update={"summary": None}))


@pytest.mark.parametrize("start", [None, 0, 42])
def test_an_unknown_end_lists_the_snapshots(table: Table, start: int | None) -> None:
    one = append(table, 1)
    with pytest.raises(SnapshotNotFoundError, match=f"no snapshot 43(.|\n)*{one}"):
        between(table, one if start == 0 else start, 43)


def test_an_unknown_start(table: Table) -> None:
    one = append(table, 1)
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 42"):
        between(table, 42, one)


def test_after_a_rollback_the_last_common_snapshot_is_named(table: Table) -> None:
    ids = [append(table, number) for number in range(3)]
    table.manage_snapshots().rollback_to_snapshot(ids[0]).commit()
    now = append(table, 4)
    with pytest.raises(SnapshotRolledBackError, match=f"{ids[2]}(.|\n)*{now}(.|\n)*rolled back(.|\n)*{ids[0]}"):
        between(table, ids[2], now)
    assert between(table, ids[0], now) == [now]


def test_the_wrong_way_round(table: Table) -> None:
    ids = [append(table, number) for number in range(3)]
    with pytest.raises(SnapshotRolledBackError, match=f"swap them: changes from {ids[0]} to {ids[2]}"):
        between(table, ids[2], ids[0])


def test_branches_share_their_beginning(table: Table) -> None:
    one = append(table, 1)
    table.manage_snapshots().create_branch(one, "audit").commit()
    main, audit = append(table, 2), append(table, 3, branch="audit")
    assert between(table, one, audit) == [audit]
    with pytest.raises(SnapshotRolledBackError, match=f"different branches(.|\n)*{one}"):
        between(table, main, audit)
    # A fast-forward makes the branch's snapshots main's.
    table.manage_snapshots().rollback_to_snapshot(one).commit()
    table.manage_snapshots().set_current_snapshot(snapshot_id=audit).commit()
    assert between(table, one, audit) == [audit]


@pytest.mark.parametrize("by_java", [False, True])
def test_expired_snapshots(table: Table, by_java: bool) -> None:
    ids = [append(table, number) for number in range(5)]
    expire(table, ids[0], ids[2])
    if by_java:
        table = with_parent(with_parent(table, ids[1], ids[0]), ids[3], ids[2])
        # The start alone has expired: no change is lost.
        assert between(table, ids[2], ids[4]) == ids[3:]
    for start in (None, ids[0], ids[1]):
        with pytest.raises(SnapshotExpiredError, match=rf"(.|\n)*expired(.|\n)*{ids[3]}"):
            between(table, start, ids[4])
    assert between(table, ids[3], ids[4]) == [ids[4]]


def test_all_but_the_last_expired(table: Table) -> None:
    ids = [append(table, number) for number in range(4)]
    expire(table, *ids[:-1])
    for start in (None, *ids[:-1]):
        with pytest.raises(SnapshotExpiredError):
            between(table, start, ids[-1])
    assert between(table, ids[-1], ids[-1]) == []
    with pytest.raises(SnapshotNotFoundError):
        between(table, ids[0], ids[1])


def test_rolled_back_and_expired_at_once(table: Table) -> None:
    ids = [append(table, number) for number in range(3)]
    table.manage_snapshots().rollback_to_snapshot(ids[1]).commit()
    now = append(table, 4)
    expire(table, ids[0])
    with pytest.raises(SnapshotRolledBackError):
        between(table, ids[2], now)


def test_a_table_made_anew(table: Table, memory_catalog: Catalog) -> None:
    uuid = str(table.metadata.table_uuid)
    check_same_table(table, uuid)
    memory_catalog.drop_table(table.name())
    anew = memory_catalog.create_table(table.name(), table.schema())
    with pytest.raises(TableReplacedError, match=f"made anew(.|\n)*{uuid}"):
        check_same_table(anew, uuid)

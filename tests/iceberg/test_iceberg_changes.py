"""The changes of a snapshot, for every way in which an engine can write it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.iceberg.tables import Files
from tests.tiers import some
from volley import ConfigError, SnapshotExpiredError, SnapshotNotFoundError
from volley.iceberg import Delete, Insert, Update, changes_between
from volley.iceberg.read import changes as reading
from volley.iceberg.read.changed_files import change_splits
from volley.iceberg.read.rows import RowReader

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.int64()})
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
Make = Callable[..., Files]
Row = dict[str, Any]


def row(number: int | None, value: int = 0, part: str = "a") -> Row:
    return {"id": number, "part": part, "value": value}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Make]:
    """Makes a table."""
    opened: list[Files] = []

    def make(*arguments: Any) -> Files:
        opened.append(Files(tmp_path / str(len(opened)), *arguments))
        return opened[-1]

    yield make
    for table in opened:
        table.close()


def told(table: Files, snapshot: int | None = None, keys: Any = ()) -> list[str]:
    """The changes of one snapshot, of the last one if it is not named."""
    found = loaded(table, snapshot)
    return sorted(map(str, changes_between(table.ref, found.parent_snapshot_id, found.snapshot_id, keys)))


def loaded(table: Files, snapshot: int | None = None) -> Snapshot:
    """A snapshot, the last one if it is not named."""
    now = table.ref.load()
    found = now.current_snapshot() if snapshot is None else now.snapshot_by_id(snapshot)
    assert found is not None
    return found


def expected(*changes: Insert | Update | Delete) -> list[str]:
    return sorted(map(str, changes))


def test_one_of_three_equal_rows_is_deleted_or_added(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(1)] * 3)
    table.commit([first])
    assert told(table) == expected(*[Insert(row(1))] * 3)
    table.commit(deletes=[table.positions((first, 1))])
    assert told(table) == expected(Delete(row(1)))
    table.commit([table.data([row(1)])], removed=[first])
    assert told(table) == expected(Delete(row(1)))
    table.commit([table.data([row(1)])])
    assert told(table) == expected(Insert(row(1)))


def test_a_position_that_is_deleted_twice_is_one_change(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(number) for number in range(4)])
    table.commit([first])
    table.commit(deletes=[table.positions((first, 1))])
    table.commit(deletes=[table.positions((first, 1), (first, 2)), table.positions((first, 2))])
    assert told(table) == expected(Delete(row(2)))
    table.commit(deletes=[table.positions((first, 1))])
    assert told(table) == []


def test_a_delete_with_the_removal_of_its_file_is_one_change(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(number) for number in range(3)])
    table.commit([first])
    table.commit(deletes=[table.positions((first, 0))])
    table.commit(deletes=[table.positions((first, 1))], removed=[first])
    assert told(table) == expected(Delete(row(1)), Delete(row(2)))


def test_a_delete_in_a_file_of_its_own_snapshot(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(number) for number in range(3)])
    table.commit([first], deletes=[table.positions((first, 1))])
    assert told(table) == expected(Insert(row(0)), Insert(row(2)))
    table.commit(removed=[first])
    assert told(table) == expected(Delete(row(0)), Delete(row(2)))


def test_a_delete_file_of_many_data_files(files: Make) -> None:
    table = files(SCHEMA, BY_PART)
    data = [table.data([row(10 * number + each) for each in range(3)]) for number in range(4)]
    other = table.data([row(number, part="b") for number in range(3)])
    table.commit([*data, other])
    table.commit(deletes=[table.positions((data[0], 2), (data[2], 0), (data[3], 1))])
    assert told(table) == expected(Delete(row(2)), Delete(row(20)), Delete(row(31)))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("keys", [(), "id"])
def test_rows_that_a_rewrite_carries_over_are_no_changes(in_place: bool, keys: Any, files: Make) -> None:
    table = files(SCHEMA)
    before = [row(number) for number in [*range(10), 3, 3]]
    after = [row(number, value=int(number == 7)) for number in [*range(10), 3, 3]]
    first = table.data(before)
    table.commit([first])
    table.commit([table.data(after if in_place else after[::-1])], removed=[first])
    old, new = row(7), row(7, 1)
    assert told(table, keys=keys) == expected(*([Update(old, new)] if keys else [Delete(old), Insert(new)]))


def test_rows_moved_between_files_of_a_partition_are_no_changes(files: Make) -> None:
    table = files(SCHEMA)
    rows = [row(number) for number in range(100)]
    old = [table.data(rows[:60]), table.data(rows[60:])]
    table.commit(old)
    table.commit([table.data(rows[30:][::-1]), table.data(rows[:30])], removed=old)
    assert told(table) == []


def test_a_rewrite_under_another_partition_spec_has_no_changes(files: Make) -> None:
    table = files(SCHEMA, BY_PART)
    rows = [row(number) for number in range(4)]
    first = table.data(rows)
    table.commit([first])
    with table.table.update_spec() as update:
        update.add_identity("value")
    again = table.data([*rows[1:], row(9)])
    table.commit([again], removed=[first])
    assert told(table) == expected(Delete(row(0)), Insert(row(9)))
    with table.table.update_spec() as update:
        update.remove_field("value").remove_field("part")
    table.commit([table.data(rows)], removed=[again])
    assert told(table, keys="id") == expected(Insert(row(0)), Delete(row(9)))


def test_keys_pair_rows_of_different_files_and_partitions(files: Make) -> None:
    table = files(SCHEMA, BY_PART)
    first, other = table.data([row(1), row(2)]), table.data([row(3, part="b")])
    table.commit([first, other])
    table.commit(
        [table.data([row(1, 1), row(4)]), table.data([row(2, 2, part="b")])],
        deletes=[table.positions((first, 0), (first, 1)), table.positions((other, 0))],
    )
    same: list[Any] = [Delete(row(3, part="b")), Insert(row(4))]
    assert told(table, keys="id") == expected(Update(row(1), row(1, 1)), Update(row(2), row(2, 2, part="b")), *same)
    moved: list[Any] = [Delete(row(2)), Insert(row(2, 2, part="b"))]
    assert told(table, keys=["part", "id"]) == expected(Update(row(1), row(1, 1)), *moved, *same)
    assert told(table) == expected(Delete(row(1)), Insert(row(1, 1)), *moved, *same)


def test_null_keys_and_keys_of_several_rows(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(None), row(1, 1), row(1, 2), row(1, 3)])
    table.commit([first])
    table.commit([table.data([row(None, 9), row(1, 3), row(1, 4)])], removed=[first])
    changes = told(table, keys="id")
    assert str(Update(row(None), row(None, 9))) in changes
    # Which old row of a key becomes the new one can't be told; the row that is still there is no change.
    assert sum(change.startswith("Update") for change in changes) == 2
    assert sum(change.startswith("Delete") for change in changes) == 1
    assert len(changes) == 3


ODD = pa.schema(
    {
        "id": pa.int64(),
        "real": pa.float64(),
        "tags": pa.list_(pa.struct({"a": pa.list_(pa.string())})),
        "map": pa.map_(pa.string(), pa.float32()),
        "place": pa.struct({"x": pa.float64()}),
    }
)
ODD_ROWS: list[Row] = [
    {"id": 1, "real": math.nan, "tags": None, "map": [("a", math.nan)], "place": {"x": math.nan}},
    {"id": 2, "real": 0.0, "tags": [], "map": [], "place": None},
    {"id": 3, "real": -0.0, "tags": [None], "map": None, "place": {"x": None}},
    {"id": 4, "real": None, "tags": [{"a": None}], "map": [("a", None)], "place": {"x": -0.0}},
    {
        "id": None,
        "real": 1.0,
        "tags": [{"a": []}, {"a": [None, ""]}],
        "map": [("a", 1.0), ("b", 0.0)],
        "place": {"x": 0.0},
    },
]
NEW_VALUES: list[tuple[int, str, Any]] = [
    (0, "real", None),
    (0, "map", [("a", None)]),
    (0, "tags", []),
    (1, "real", -0.0),
    (1, "place", {"x": None}),
    (1, "tags", [None]),
    (2, "tags", [{"a": None}]),
    (2, "map", []),
    (3, "place", {"x": 0.0}),
    (3, "tags", [{"a": []}]),
    (4, "tags", [{"a": []}, {"a": ["", None]}]),
]


@pytest.mark.parametrize("in_place", some([True, False]))
@pytest.mark.parametrize("keys", [(), "id"])
def test_values_are_compared_bitwise(in_place: bool, keys: Any, files: Make) -> None:
    table = files(ODD)
    last = table.data(ODD_ROWS)
    table.commit([last])
    rows = ODD_ROWS
    for place, column, value in NEW_VALUES:
        after = [dict(each) for each in rows]
        after[place][column] = value
        new = table.data(after if in_place else [*after[2:], *after[:2]])
        table.commit([new], removed=[last])
        pair = rows[place], after[place]
        changes = [Update(*pair)] if keys else [Delete(pair[0]), Insert(pair[1])]
        assert told(table, keys=keys) == expected(*changes), column
        last, rows = new, after


def test_equality_deletes(files: Make) -> None:
    table = files(SCHEMA, BY_PART)
    first = table.data([row(1), row(2), row(None), row(4), row(5)])
    other = table.data([row(1, part="b"), row(4, part="b")])
    table.commit([first, other])
    table.commit(deletes=[table.positions((first, 3))])
    again = table.data([row(1, 1)])
    # Those of a partition leave others alone, and the rows that come with them; a row is deleted once.
    table.commit([again], deletes=[table.keys(["id"], [{"id": each} for each in (1, None, 4)], like=first)])
    assert told(table, keys="id") == expected(Update(row(1), row(1, 1)), Delete(row(None)))
    table.commit(deletes=[table.keys(["id"], [{"id": 1}, {"id": 2}], like=first)])
    assert told(table) == expected(Delete(row(1, 1)), Delete(row(2)))
    table.commit(removed=[first])
    assert told(table) == expected(Delete(row(5)))


def test_equality_deletes_of_an_unpartitioned_spec_apply_everywhere(files: Make) -> None:
    table = files(SCHEMA)
    old = table.data([row(1), row(2)])
    table.commit([old])
    with table.table.update_spec() as update:
        update.add_identity("part")
    new = table.data([row(1, part="b"), row(3, part="b")])
    table.commit([new])
    table.commit(deletes=[table.keys(["id"], [{"id": 1}], like=old)])
    assert told(table) == expected(Delete(row(1)), Delete(row(1, part="b")))


def test_equality_deletes_of_a_column_that_was_widened_renamed_or_dropped(files: Make) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "g", IntegerType()), NestedField(3, "n", StringType())
    )
    table = files(schema)
    first = table.data([{"id": each, "g": each, "n": "x"} for each in range(5)])
    table.commit([first])
    deletes = table.commit(deletes=[table.keys(["g"], [{"g": 2}, {"g": 3}], like=first)])
    changes: list[Callable[[UpdateSchema], object]] = [
        lambda update: update.update_column("g", LongType()),
        lambda update: update.rename_column("g", "h"),
        lambda update: update.delete_column("h").rename_column("n", "name").add_column("more", LongType()),
    ]
    for change in changes:
        with table.table.update_schema() as update:
            change(update)
        assert [each["_change"] for each in changed(table, deletes)] == ["delete"] * 2
        assert [each["id"] for each in changed(table, deletes)] == [2, 3]
    assert changed(table, deletes)[0].keys() == {"id", "name", "more", "_change", "_snapshot", "_committed_at"}
    again = table.data([{"id": each, "name": "x", "more": None} for each in (0, 1, 4)])
    table.commit([again], removed=[first])
    assert told(table) == []


def changed(table: Files, snapshot: int) -> list[Row]:
    found = loaded(table, snapshot)
    rows: list[Row] = changes_between(table.ref, found.parent_snapshot_id, snapshot).to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("keys", [(), "id"])
def test_more_rows_than_memory_holds_are_compared_in_parts(
    keys: Any, files: Make, tmp_path: Path, monkeypatch: Any
) -> None:
    table = files(SCHEMA)
    before = [row(number) for number in range(1000)]
    after = [row(number, int(number % 10 == 0)) for number in range(5, 1005)][::-1]
    first = table.data(before)
    table.commit([first])
    table.commit([table.data(after)], removed=[first])
    whole = told(table, keys=keys)
    assert len(whole) == 10 + (99 if keys else 99 * 2)
    monkeypatch.setattr(reading, "_PART_BYTES", 1000)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spilled"))
    (tmp_path / "spilled").mkdir()
    assert told(table, keys=keys) == whole
    assert not list((tmp_path / "spilled").iterdir())


def test_splits_are_independent_and_travel_to_executors(files: Make) -> None:
    table = files(SCHEMA, BY_PART)
    old = {part: table.data([row(number, part=part) for number in range(3)]) for part in "abc"}
    table.commit(list(old.values()))
    snapshot = table.commit(
        [table.data([row(0, part="a"), row(1, 1, part="a")]), table.data([row(9, part="d")])],
        removed=[old["a"]],
        deletes=[table.positions((old["b"], 0)), table.positions((old["c"], 1))],
    )
    metadata, io = table.table.metadata, table.table.io
    found = loaded(table, snapshot)
    # Partitions by themselves: unless keys pair rows of different ones.
    for keys, count in (((), 4), (("id", "part"), 4), (("id",), 1)):
        splits = change_splits(io, found, metadata, [SCHEMA.get_field_index(key) + 1 for key in keys])
        assert len(splits) == count
        copies = pickle.loads(pickle.dumps(splits))
        assert copies == splits
        reader = RowReader.of(metadata)
        rows = [batch.num_rows for split in copies for batch in reading.read_changes(io, split, reader, keys)]
        assert sum(rows) == 6
        assert len(pickle.dumps(splits[0])) < 8_000


def test_arrow_has_all_snapshots_in_order(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(1), row(2)])
    one = table.commit([first])
    two = table.commit([table.data([row(2, 1)])], deletes=[table.positions((first, 1))])
    changes = changes_between(table.ref, None, keys="id")
    assert changes.snapshots == (one, two)
    assert str(two) in repr(changes)
    assert "2 snapshots" in repr(changes)
    found = changes.to_arrow()
    assert found.schema == changes.schema
    assert found["_change"].to_pylist() == ["insert", "insert", "update_before", "update_after"]
    assert found["_snapshot"].to_pylist() == [one, one, two, two]
    times = [snapshot.timestamp_ms * 1000 for snapshot in table.table.metadata.snapshots]
    assert found["_committed_at"].cast(pa.int64()).to_pylist() == [times[0]] * 2 + [times[1]] * 2
    assert list(changes) == [Insert(row(1)), Insert(row(2)), Update(row(2), row(2, 1))]
    assert list(changes_between(table.ref, two)) == []


def test_an_empty_table_has_no_changes(files: Make) -> None:
    table = files(SCHEMA)
    assert list(changes_between(table.ref, None)) == []
    with pytest.raises(SnapshotNotFoundError, match="no branch or tag 'audit'"):
        changes_between(table.ref.with_branch("audit"), None)


def test_a_branch_has_changes_of_its_own(files: Make) -> None:
    table = files(SCHEMA)
    one = table.commit([table.data([row(1)])])
    table.table.manage_snapshots().create_branch(one, "audit").commit()
    table.commit([table.data([row(2)])])
    assert list(changes_between(table.ref.with_branch("audit"), one)) == []
    assert list(changes_between(table.ref, one)) == [Insert(row(2))]


def test_the_snapshot_before_the_first_changes_may_have_expired(files: Make) -> None:
    table = files(SCHEMA)
    first = table.data([row(1), row(2)])
    one = table.commit([first])
    two = table.commit(deletes=[table.positions((first, 0))])
    three = table.commit([table.data([row(3)])], removed=[first])
    table.table.maintenance.expire_snapshots().by_ids([one]).commit()
    assert list(changes_between(table.ref, two, three)) == [Delete(row(2)), Insert(row(3))]
    with pytest.raises(SnapshotExpiredError, match=f"snapshot {two}"):
        changes_between(table.ref, None)


def test_wrong_columns_are_named(files: Make) -> None:
    table = files(pa.schema({"id": pa.int64(), "_change": pa.string()}))
    with pytest.raises(ConfigError, match=r"no key column 'idd'(.|\n)*did you mean 'id'"):
        changes_between(table.ref, None, keys=["idd"])
    with pytest.raises(ConfigError, match="_change"):
        changes_between(table.ref, None)

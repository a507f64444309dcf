"""What an upsert leaves in a table, its snapshots and its folder, as other engines see it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from tests.iceberg.tables import Files
from tests.recovery.lake import change_at, disturb
from tests.tiers import some
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake
from volley import (
    CommitConflictError,
    ConfigError,
    LayoutChangedError,
    SchemaMismatchError,
    StorageError,
)
from volley.iceberg import Append, Overwrite, Upsert
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "op": pa.string()})
STRATEGIES = ["auto", "merge_on_read", "copy_on_write"]


def rows(*ids: int, name: str = "new") -> list[dict[str, Any]]:
    return [{"id": each, "name": name, "op": "u"} for each in ids]


def deletes(*ids: int) -> list[dict[str, Any]]:
    return [{"id": each, "op": "d"} for each in ids]


def seen(lake: Lake) -> dict[int, str]:
    """Ids and names, as two engines read them."""
    found = lake.rows()
    assert found == lake.duckdb_rows()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["name"] for row in found}


def summary(lake: Lake) -> dict[str, str]:
    head = lake.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    return {"operation": head.summary.operation.value, **head.summary.additional_properties}


@pytest.fixture(params=STRATEGIES)
def lake(request: pytest.FixtureRequest, make_lake: MakeLake) -> Lake:
    return make_lake(Upsert("id", op_field="op", strategy=request.param), SCHEMA)


def test_new_rows_are_added_old_ones_replaced_and_deleted_ones_are_gone(lake: Lake) -> None:
    lake.epoch(rows(1, 2, 3), rows(4, 5, 6))
    lake.epoch(rows(2, 7, name="newer"), deletes(4, 99))
    assert seen(lake) == {1: "new", 2: "newer", 3: "new", 5: "new", 6: "new", 7: "newer"}
    lake.epoch(deletes(2, 5), rows(5, name="again"))
    assert seen(lake) == {1: "new", 3: "new", 5: "again", 6: "new", 7: "newer"}
    assert len(lake.table().snapshots()) == 3


def test_all_rows_replaced_leaves_no_file_behind_and_no_delete_file(lake: Lake) -> None:
    lake.epoch(rows(1, 2, 3))
    lake.epoch(rows(1, 2, 3, name="newer"))
    assert set(seen(lake).values()) == {"newer"}
    assert (summary(lake)["deleted-data-files"], summary(lake)["total-delete-files"]) == ("1", "0")


def test_deletes_of_absent_keys_change_nothing(lake: Lake) -> None:
    lake.epoch(deletes(1))
    assert lake.table().snapshots() == []
    lake.epoch(rows(1))
    lake.epoch(deletes(2), [])
    assert seen(lake) == {1: "new"}
    assert len(lake.table().snapshots()) == 1
    assert len(lake.files()) == 1


def test_an_epoch_without_rows_changes_nothing(lake: Lake) -> None:
    lake.epoch(rows(1))
    lake.epoch([], [])
    assert len(lake.table().snapshots()) == 1


def test_deleting_every_row_leaves_an_empty_table(lake: Lake) -> None:
    lake.epoch(rows(1, 2))
    lake.epoch(deletes(1, 2))
    assert seen(lake) == {}
    lake.epoch(rows(2))
    assert seen(lake) == {2: "new"}


def test_the_summary_counts_what_was_replaced(make_lake: MakeLake) -> None:
    marked = make_lake(Upsert("id", op_field="op", strategy="merge_on_read"), SCHEMA)
    marked.epoch(rows(*range(10)))
    assert summary(marked)["operation"] == "append"
    marked.epoch(rows(1, 2, name="newer"))
    wanted = {"operation": "overwrite", "added-position-deletes": "2", "added-delete-files": "1", "added-records": "2"}
    assert wanted.items() <= summary(marked).items()
    assert summary(marked)["total-position-deletes"] == "2"
    # A row that is no more already is not deleted once more.
    marked.epoch(rows(1, name="newest"))
    assert (summary(marked)["added-position-deletes"], summary(marked)["total-position-deletes"]) == ("1", "3")
    rewritten = make_lake(Upsert("id", op_field="op", strategy="copy_on_write"), SCHEMA)
    rewritten.epoch(rows(*range(10)))
    rewritten.epoch(rows(1, 2, name="newer"))
    wanted = {"operation": "overwrite", "added-records": "10", "deleted-records": "10", "total-delete-files": "0"}
    assert wanted.items() <= summary(rewritten).items()


@pytest.mark.format_2
def test_auto_marks_few_rows_and_rewrites_a_file_that_loses_many(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id", op_field="op"), SCHEMA)
    lake.epoch(rows(*range(100)))
    lake.epoch(rows(1))
    assert summary(lake)["total-delete-files"] == "1"
    lake.epoch(rows(*range(19)))
    assert summary(lake)["total-delete-files"] == "2"
    lake.epoch(rows(*range(40)))
    assert summary(lake)["deleted-data-files"] == "2"
    assert summary(lake)["total-delete-files"] == "0"
    assert set(seen(lake)) == set(range(100))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a", "ä ✓", "z" * 40]),
        (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"a" * 40]),
        (pa.int32(), [-5, 0, 7, 2**31 - 1]),
        (pa.date32(), [date(1900, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(y, 1, 1, 1, 1, 1, 1, UTC) for y in (1900, 1969, 2000, 3000)]),
        (pa.timestamp("us"), [datetime(y, 1, 1, 1, 1, 1, 1) for y in (1900, 1969, 2000, 3000)]),
        (pa.decimal128(10, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("1.25"), Decimal("99999999.99")]),
        (pa.bool_(), [True, False]),
    ],
    ids=str,
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_keys_of_many_types(strategy: Strategy, kind: pa.DataType, values: list[Any], make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("key", strategy=strategy), pa.schema([("key", kind), ("value", pa.int64())]))
    lake.epoch([{"key": each, "value": 0} for each in values])
    lake.epoch([{"key": each, "value": 1} for each in values[:-1]])
    lake.epoch([{"key": values[0], "value": 2}])
    expected = dict.fromkeys(values, 1) | {values[-1]: 0} | {values[0]: 2}
    assert {row["key"]: row["value"] for row in lake.rows()} == expected
    assert len(lake.rows()) == len(values)


def test_the_highest_in_order_wins_and_of_equals_the_last(make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.int64(), "name": pa.string()})
    lake = make_lake(Upsert("id", order_by="at"), schema)
    told = [(1, 5, "last"), (1, 3, "late"), (2, None, "unknown"), (2, 0, "known"), (3, 1, "first"), (3, 1, "second")]
    lake.epoch([{"id": i, "at": at, "name": name} for i, at, name in told])
    assert {row["id"]: row["name"] for row in lake.rows()} == {1: "last", 2: "known", 3: "second"}


def test_nan_is_the_highest_in_order_as_in_expressions(make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.float64(), "name": pa.string()})
    lake = make_lake(Upsert("id", order_by="at"), schema)
    told = [(1, math.nan, "last"), (1, math.inf, "late"), (1, None, "none"), (2, None, "none"), (2, -1.0, "known")]
    lake.epoch([{"id": i, "at": at, "name": name} for i, at, name in told])
    assert {row["id"]: row["name"] for row in lake.rows()} == {1: "last", 2: "known"}


@pytest.mark.parametrize(
    ("data_type", "ascending"),
    [
        (pa.uuid(), [None, UUID(int=1), UUID(int=2**127)]),
        (pa.struct({"a": pa.float64(), "b": pa.int32()}), [None, {"b": 1}, {"a": 2.0, "b": 1}, {"a": math.nan}]),
        (pa.struct({"a": pa.float64(), "b": pa.int32()}), [{"a": 0.0, "b": 1}, {"a": -0.0, "b": 2}]),
        (pa.struct({"a": pa.struct({"u": pa.uuid()})}), [{}, {"a": {}}, *({"a": {"u": UUID(int=n)}} for n in (1, 2))]),
    ],
    ids=["uuid", "NaN in a struct", "zeros in a struct", "uuid in a struct"],
)
def test_structs_are_ordered_by_their_fields(data_type: pa.DataType, ascending: list[Any], make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "at": data_type, "place": pa.int64()})
    lake = make_lake(Upsert("id", order_by="at"), schema)
    told = [{"id": place, "at": at, "place": place} for place, at in enumerate(ascending)]
    # Each value is the id of a row with it and of all lower ones, which arrive later.
    lake.epoch([{**row, "id": id} for id in range(len(told)) for row in told[id::-1]])
    assert [row["place"] for row in lake.rows()] == [*range(len(told))]


def test_the_last_row_to_arrive_wins_across_tasks_and_buffers(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.iceberg.upsert.changes._BUFFER_BYTES", 1)
    lake = make_lake(Upsert("id", op_field="op"), SCHEMA)
    lake.epoch(rows(1, 2, 1), rows(2, name="second task"), [*rows(3), *rows(3, name="third task")])
    assert seen(lake) == {1: "new", 2: "second task", 3: "third task"}


def test_buckets_are_merged_apart_where_they_are_large(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.iceberg.upsert.plan._MERGE_BYTES", 1)
    lake = make_lake(Upsert("id", op_field="op"), SCHEMA)
    lake.epoch(rows(*range(200)), rows(*range(100, 300), name="newer"))
    assert seen(lake) == {i: "new" if i < 100 else "newer" for i in range(300)}
    assert len(lake.files()) > 10


def test_null_keys_are_refused_and_nothing_is_left(lake: Lake) -> None:
    driver = lake.driver()
    with pytest.raises(SchemaMismatchError, match=r"key column 'id' has 1 nulls"):
        lake.write(driver, 0, [{"id": None, "name": "x"}])


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Upsert("nope"), "unknown column 'nope'"),
        (Upsert("id", order_by="nope"), "unknown column 'nope'"),
        (Upsert("id", op_field="nope"), "unknown column 'nope'"),
        (Upsert("real"), "'real' is of type double"),
        (Upsert("tags"), "don't tell rows apart"),
        (Upsert("id", order_by="tags"), "order_by 'tags' is of type list.*, whose values have no order"),
        (Upsert("id", op_field="real"), "op_field 'real' is of type double, which can't tell"),
        (Upsert("id", op_field="tags"), "op_field 'tags' is of type list"),
    ],
)
def test_columns_that_can_not_be_keys_are_refused_when_the_job_starts(
    mode: Upsert, said: str, make_lake: MakeLake
) -> None:
    schema = pa.schema({"id": pa.int64(), "real": pa.float64(), "tags": pa.list_(pa.string())})
    with pytest.raises(ConfigError, match=said):
        make_lake(mode, schema).driver()


def test_a_delete_needs_keys_only(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id"), pa.schema({"id": pa.int64(), "name": pa.string()}))
    lake.epoch([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("name", required=True)
    lake.config = lake.config.with_commit_mode(Upsert("id", op_field="op"))
    lake.schema = pa.schema({"id": pa.int64(), "name": pa.string(), "op": pa.bool_()})
    lake.epoch([{"id": 1, "name": None, "op": True}])
    assert lake.rows() == [{"id": 2, "name": "b"}]
    with pytest.raises(SchemaMismatchError, match="column 'name' has nulls"):
        lake.epoch([{"id": 1, "name": None, "op": False}])


def test_files_of_older_schemas_are_matched_and_rewritten(lake: Lake) -> None:
    lake.epoch(rows(1, 2, 3, 4))
    with lake.table().update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("size", LongType())
    lake.schema = pa.schema({"id": pa.int64(), "title": pa.string(), "size": pa.int64(), "op": pa.string()})
    lake.epoch([{"id": 2, "title": "newer", "size": 5}])
    assert [(row["id"], row["title"], row["size"]) for row in lake.rows()] == [
        *((1, "new", None), (2, "newer", 5), (3, "new", None), (4, "new", None))
    ]


def test_keys_of_a_type_that_was_widened(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id"), pa.schema({"id": pa.int32(), "v": pa.int64()}))
    lake.epoch([{"id": i, "v": 0} for i in range(5)])
    with lake.table().update_schema() as update:
        update.update_column("id", LongType())
    lake.schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    lake.epoch([{"id": 3, "v": 1}, {"id": 2**40, "v": 1}])
    assert {row["id"]: row["v"] for row in lake.rows()} == {0: 0, 1: 0, 2: 0, 3: 1, 4: 0, 2**40: 1}


def test_files_that_can_not_have_a_key_are_not_read(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id", op_field="op"), SCHEMA)
    for start in range(0, 50, 10):
        lake.epoch(rows(*range(start, start + 10)))
    others = [
        Path(file["file_path"].removeprefix("file://"))
        for file in lake.table().inspect.files().to_pylist()
        if file["readable_metrics"]["id"]["lower_bound"] not in (10, 40)
    ]
    for path in others:
        path.rename(path.with_suffix(".away"))
    lake.epoch(rows(11, 45, name="newer"))
    for path in others:
        path.with_suffix(".away").rename(path)
    assert len(others) == 3
    assert [seen(lake)[i] for i in (10, 11, 44, 45)] == ["new", "newer", "new", "newer"]


def append(table: Table) -> None:
    table.append(pa.table({"id": [2], "name": ["from another writer"]}, pa.schema(list(SCHEMA)[:2])))


def compact(table: Table) -> None:
    table.overwrite(table.scan().to_arrow())


def remove(table: Table) -> None:
    table.delete("id = 3")


OTHERS: dict[str, tuple[Callable[[Table], None], dict[int, str]]] = {
    "appends a row with a key of ours": (append, {1: "new", 2: "newer", 3: "new", 4: "new"}),
    "compacts": (compact, {1: "new", 2: "newer", 3: "new", 4: "new"}),
    "deletes another row": (remove, {1: "new", 2: "newer", 4: "new"}),
}


@pytest.mark.parametrize(("change", "expected"), OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("moment", some(["while it commits", "between write and commit"]))
def test_another_writer(
    moment: str,
    change: Callable[[Table], None],
    expected: dict[int, str],
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake.epoch(rows(1, 2, 3, 4))
    driver = lake.driver()
    driver.last_epoch(QUERY)
    written = lake.write(driver, 1, rows(2, name="newer"))

    change_at(moment, monkeypatch, driver, lambda: change(lake.table()))
    driver.commit(*written)
    assert seen(lake) == expected


def test_conflicts_without_end_leave_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.epoch(rows(1, 2, 3, 4))
    driver = lake.driver()
    driver.last_epoch(QUERY)
    written = lake.write(driver, 1, rows(2, name="newer"))
    before = {*lake.files()} - {path for path in lake.files() if "-changes" in path.name}

    def other_first(commit: Callable[[], Any]) -> Any:
        with lake.table().transaction() as change:
            change.set_properties({"a": "b"})
        append(lake.table())
        return commit()

    disturb(monkeypatch, driver, *[other_first] * 4)
    with pytest.raises(CommitConflictError, match="each of 4 attempts"):
        driver.commit(*written)
    driver.abort(*written)
    assert len({*lake.files()} - before) == 4


def test_two_drivers_with_the_same_epoch(lake: Lake) -> None:
    lake.epoch(rows(1, 2, 3, 4))
    first, second = lake.driver(), lake.driver()
    one, two = (lake.write(each, 1, rows(2, name="newer")) for each in (first, second))
    first.commit(*one)
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        second.commit(*two)
    second.abort(*two)
    assert seen(lake) == {1: "new", 2: "newer", 3: "new", 4: "new"}
    assert not [path for path in lake.files() if "-changes" in path.name]


def test_a_lost_answer_changes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from requests.exceptions import ConnectionError as Unreachable

    lake.epoch(rows(1, 2, 3, 4))
    driver = lake.driver()
    driver.last_epoch(QUERY)
    written = lake.write(driver, 1, rows(2, name="newer"))

    def answer_lost(commit: Callable[[], Any]) -> Any:
        commit()
        raise Unreachable("connection reset after the commit")

    disturb(monkeypatch, driver, answer_lost)
    driver.commit(*written)
    assert seen(lake) == {1: "new", 2: "newer", 3: "new", 4: "new"}


def test_a_storage_that_fails_behind_the_commit_takes_no_file_of_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.epoch(rows(1, 2, 3, 4))
    driver = lake.driver()
    epoch, results = lake.write(driver, 1, rows(2, name="newer"))

    def other_first(commit: Callable[[], Any]) -> Any:
        append(lake.table())
        return commit()

    def unreadable(*_: Any) -> Any:
        raise OSError("the storage is away")

    # The second attempt lands; what the first has written is looked for in its snapshot.
    disturb(monkeypatch, driver, other_first)
    with monkeypatch.context() as patch:
        patch.setattr("volley.iceberg.commit.committer.added_files", unreadable)
        driver.commit(epoch, results)
    driver.abort(epoch, results)
    assert "stay: reading" in caplog.text
    expected = {1: "new", 2: "newer", 3: "new", 4: "new"}
    assert {id: name for id, name in seen(lake).items() if id in expected} == expected
    again = lake.driver()
    assert again.last_epoch(QUERY) == 1


def test_rows_staged_for_an_old_schema_are_not_written_under_the_new_one(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    driver = lake.driver()
    written = lake.write(driver, 0, rows(1))
    with lake.table().update_schema() as update:
        update.add_column("new", StringType())
    with pytest.raises(LayoutChangedError, match="changed between write and commit"):
        driver.commit(*written)
    # A table of a routed sink may do so twice.
    driver.abort(*written)
    driver.abort(*written)
    assert lake.files() == []
    assert caplog.messages == []


def test_what_a_dead_driver_leaves_is_found(lake: Lake) -> None:
    lake.epoch(rows(1, 2, 3))
    dead, alive = lake.driver(), lake.driver()
    lake.write(dead, 1, rows(1, name="newer"))
    alive.last_epoch(QUERY)
    epoch, results = lake.write(alive, 1, rows(1, name="newer"))
    alive.commit(epoch, results)
    (orphan,) = alive.orphans(epoch)
    assert "-changes" in orphan


def test_a_temporary_file_that_was_damaged_is_named_and_nothing_is_committed(lake: Lake) -> None:
    lake.epoch(rows(1, 2))
    driver = lake.driver()
    epoch, results = lake.write(driver, 1, rows(2, name="newer"))
    (file,) = (path for path in lake.files() if "-changes" in path.name)
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageError, match=rf"{file.name}: the file is damaged.*checksum"):
        driver.commit(epoch, results)
    assert seen(lake) == {1: "new", 2: "new"}


def test_manifests_of_deletes_are_merged_too(make_lake: MakeLake) -> None:
    lake = make_lake(
        Upsert("id", op_field="op", strategy="merge_on_read"), SCHEMA, **{"commit.manifest.min-count-to-merge": "3"}
    )
    lake.epoch(rows(*range(100)))
    for number in range(8):
        lake.epoch(rows(number, name="newer"))
    head = lake.table().current_snapshot()
    assert head is not None
    assert len(head.manifests(lake.table().io)) <= 6
    assert seen(lake) == {i: "newer" if i < 8 else "new" for i in range(100)}
    assert summary(lake)["total-position-deletes"] == "8"


def test_deletes_of_files_that_are_no_more_are_dropped_and_others_stay(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id", op_field="op"), SCHEMA)
    lake.epoch(rows(*range(100)))
    lake.epoch(rows(*range(100, 200)))
    lake.epoch(rows(1, 101, name="newer"))
    assert summary(lake)["total-delete-files"] == "2"
    # The first file is written anew, so one of two entries of a manifest goes.
    lake.epoch(rows(*range(2, 80), name="newest"))
    found = summary(lake)
    assert (found["removed-delete-files"], found["total-delete-files"], found["total-position-deletes"]) == ("1",) * 3
    wanted = {i: "newest" if 2 <= i < 80 else "newer" if i in (1, 101) else "new" for i in range(200)}
    assert seen(lake) == wanted
    assert {row["id"]: row["name"] for row in lake.duckdb_rows()} == wanted
    lake.config = lake.config.with_commit_mode(Overwrite())
    lake.schema = pa.schema(list(SCHEMA)[:2])
    lake.epoch([{"id": 5, "name": "alone"}])
    assert summary(lake)["total-delete-files"] == summary(lake)["total-position-deletes"] == "0"
    assert lake.table().inspect.delete_files().num_rows == 0
    assert seen(lake) == {5: "alone"}


def test_appends_after_upserts_keep_the_deletes(lake: Lake) -> None:
    lake.epoch(rows(1, 2, 3, 4))
    lake.epoch(deletes(1))
    lake.config = lake.config.with_commit_mode(Append())
    lake.schema = pa.schema(list(SCHEMA)[:2])
    lake.epoch([{"id": 5, "name": "appended"}])
    assert set(seen(lake)) == {2, 3, 4, 5}


def test_tables_of_format_version_1_have_their_files_written_anew(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id", op_field="op", strategy="merge_on_read"), SCHEMA, **{"format-version": "1"})
    lake.epoch(rows(1, 2, 3, 4))
    lake.epoch(rows(2, name="newer"))
    assert lake.table().metadata.format_version == 1
    assert {row["id"]: row["name"] for row in lake.rows()} == {1: "new", 2: "newer", 3: "new", 4: "new"}
    assert summary(lake)["total-delete-files"] == "0"


def test_a_table_with_equality_deletes(lake: Lake) -> None:
    files = Files(lake.folder, SCHEMA)
    lake.config = replace(lake.config, table="t")
    first, second = files.data(rows(*range(10))), files.data(rows(*range(10, 20)))
    files.commit([first, second])
    files.commit([], [files.keys(["id"], [{"id": 3}, {"id": 13}, {"id": 15}], first), files.positions((first, 4))])
    lake.epoch(rows(3, 5, name="newer"), deletes(13, 16))
    kept = {each: "new" for each in range(20) if each not in {4, 13, 15, 16}} | {3: "newer", 5: "newer"}
    found = lake.duckdb_rows()
    assert sorted(row["id"] for row in found) == sorted(kept)
    assert {row["id"]: row["name"] for row in found} == kept
    lake.epoch(rows(*range(20), name="last"))
    assert sorted((row["id"], row["name"]) for row in lake.duckdb_rows()) == [(each, "last") for each in range(20)]
    files.close()

"""Tables with equality deletes of Iceberg's Java library: Volley and Spark read the rows that are left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, java_commit, spark_sql
from volley.iceberg import Change, Delete, IcebergTable, Insert, Update

NAMES = ("id", "name")


@pytest.fixture(scope="module")
def lake(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    made.catalog().create_namespace("db")
    return made


def create(name: str, columns: str = "id int, name string", version: int = 2) -> str:
    properties = f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read'"
    return f"create table volley.db.{name} ({columns}) using iceberg tblproperties ({properties})"


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


def assert_rows(lake: Lake, name: str, names: Sequence[str], *expected: tuple[Any, ...]) -> None:
    """Volley reads these rows, and so does Spark; some equality deletes are in the way."""
    rows = in_order([dict(zip(names, row, strict=True)) for row in expected])
    assert in_order(IcebergTable(lake.config(name)).to_arrow().to_pylist()) == rows
    assert in_order(spark_sql(lake, f"from volley.db.{name}")[0]) == rows
    assert 2 in lake.table(name).inspect.delete_files()["content"].to_pylist()


def row(*values: Any, names: Sequence[str] = NAMES) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def changes(lake: Lake, name: str, keys: str | Sequence[str] = ()) -> list[list[Change]]:
    """The changes of each snapshot."""
    ids = [None, *(snapshot.snapshot_id for snapshot in lake.table(name).snapshots())]
    table = IcebergTable(lake.config(name))
    return [sorted(table.changes(start, end, keys), key=str) for start, end in pairwise(ids)]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_with_a_deleted_key_are_gone(version: int, lake: Lake) -> None:
    name = f"plain{version}"
    spark_sql(
        lake,
        create(name, version=version),
        f"insert into volley.db.{name} values (1, 'a'), (2, 'b'), (2, 'c'), (3, 'd'), (null, 'e')",
        java_commit(f"volley.db.{name}", [{"id": 2}, {"id": 99}]),
    )
    assert_rows(lake, name, NAMES, (1, "a"), (3, "d"), (None, "e"))
    assert changes(lake, name)[1] == [Delete(row(2, "b")), Delete(row(2, "c"))]


def test_a_null_key_deletes_the_rows_with_null(lake: Lake) -> None:
    spark_sql(
        lake,
        create("nulls"),
        "insert into volley.db.nulls values (1, null), (2, ''), (3, 'a'), (4, null), (null, 'a'), (null, null)",
        java_commit("volley.db.nulls", [{"name": None}]),
    )
    assert_rows(lake, "nulls", NAMES, (2, ""), (3, "a"), (None, "a"))
    spark_sql(lake, java_commit("volley.db.nulls", [{"id": None}, {"id": 0}]))
    assert_rows(lake, "nulls", NAMES, (2, ""), (3, "a"))
    assert changes(lake, "nulls")[1:] == [
        [Delete(row(1, None)), Delete(row(4, None)), Delete(row(None, None))],
        [Delete(row(None, "a"))],
    ]


def test_a_key_of_two_columns_is_equal_in_both(lake: Lake) -> None:
    names = ("id", "city", "count")
    spark_sql(
        lake,
        create("pairs", "id int, city string, count int"),
        "insert into volley.db.pairs values (1, 'a', 0), (1, 'b', 1), (2, 'a', 2), (2, null, 3), (null, 'a', 4), "
        "(null, null, 5)",
        # In another order than the table's columns.
        java_commit("volley.db.pairs", [{"city": "a", "id": 1}, {"city": None, "id": 2}, {"city": "a", "id": None}]),
    )
    assert_rows(lake, "pairs", names, (1, "b", 1), (2, "a", 2), (None, None, 5))
    spark_sql(lake, java_commit("volley.db.pairs", [{"id": 1}]), java_commit("volley.db.pairs", [{"city": None}]))
    assert_rows(lake, "pairs", names, (2, "a", 2))


KEYS_OF_TYPES = [
    ("boolean", "true", True),
    ("bigint", "-5", -5),
    ("decimal(20, 2)", "123456789012345678.90", "123456789012345678.90"),
    # Zero has two values, which are not equal as keys.
    ("double", "double('-0.0')", -0.0),
    ("float", "float('0.1')", 0.10000000149011612),
    ("binary", "x'00ff'", "00FF"),
    ("string", "'Zürich 🚋'", "Zürich 🚋"),
]


def test_keys_of_each_type(lake: Lake) -> None:
    columns = [f"k{number}" for number in range(len(KEYS_OF_TYPES))]
    types = ", ".join(f"{name} {kind[0]}" for name, kind in zip(columns, KEYS_OF_TYPES, strict=True))
    equal = ", ".join(kind[1] for kind in KEYS_OF_TYPES)
    spark_sql(
        lake,
        create("types", f"id int, {types}"),
        f"insert into volley.db.types values (0, {equal}), (1, false, 5, 0.90, 0.0, 0.2, x'00fe', 'Zürich'), "
        f"(2, {equal}), (3{', null' * len(columns)})",
        *(f"create table volley.db.of_{name} using iceberg as select * from volley.db.types" for name in columns),
        *(
            java_commit(f"volley.db.of_{name}", [{name: kind[2]}])
            for name, kind in zip(columns, KEYS_OF_TYPES, strict=True)
        ),
    )
    for name in columns:
        ours = IcebergTable(lake.config(f"of_{name}")).rows.select("id").to_arrow()["id"].to_pylist()
        theirs = [each["id"] for each in spark_sql(lake, f"select id from volley.db.of_{name}")[0]]
        assert ours == theirs == [1, 3], name


def test_deletes_hold_after_their_column_was_dropped(lake: Lake) -> None:
    spark_sql(
        lake,
        create("dropped"),
        "insert into volley.db.dropped values (1, 'a'), (2, null), (3, 'c')",
        java_commit("volley.db.dropped", [{"name": "a"}, {"name": None}]),
        "alter table volley.db.dropped drop column name",
        "alter table volley.db.dropped add column more string",
        "insert into volley.db.dropped values (4, 'a'), (5, null)",
    )
    assert_rows(lake, "dropped", ("id", "more"), (3, None), (4, "a"), (5, None))
    # Iceberg's own reader then fails: "multiple fields for name".
    spark_sql(lake, "alter table volley.db.dropped rename column more to name")
    ours = IcebergTable(lake.config("dropped")).to_arrow().to_pylist()
    assert in_order(ours) == [row(3, None), row(4, "a"), row(5, None)]


def test_deletes_hold_after_their_column_was_renamed_and_widened(lake: Lake) -> None:
    table = "volley.db.renamed"
    spark_sql(
        lake,
        create("renamed"),
        f"insert into {table} values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        java_commit(table, [{"id": 1, "name": "a"}, {"id": 2, "name": "other"}]),
        f"alter table {table} rename column id to key",
        f"alter table {table} alter column key type bigint",
        f"alter table {table} rename column name to title",
        # Another column gets the name under which the deletes were written.
        f"alter table {table} add column id int first",
        f"insert into {table} values (1, 1, 'a'), (5, 5000000000, 'e'), (6, 6000000000, 'f')",
        java_commit(table, [{"key": 3}, {"key": 5000000000}]),
    )
    names = ("id", "key", "title")
    assert_rows(lake, "renamed", names, (None, 2, "b"), (None, 4, "d"), (1, 1, "a"), (6, 6000000000, "f"))
    assert changes(lake, "renamed")[1::2] == [
        [Delete(row(None, 1, "a", names=names))],
        [Delete(row(5, 5000000000, "e", names=names)), Delete(row(None, 3, "c", names=names))],
    ]


def test_deletes_of_a_partition_leave_the_other_rows(lake: Lake) -> None:
    table = "volley.db.parts"
    spark_sql(
        lake,
        create("parts"),
        f"insert into {table} values (1, 'a'), (2, 'a'), (1, 'b'), (2, null)",
        f"alter table {table} add partition field name",
        f"insert into {table} values (1, 'a'), (2, 'a'), (3, 'a'), (1, 'b'), (2, 'b'), (3, null)",
        java_commit(table, [{"id": 1, "name": "a"}], [{"id": 4, "name": "a"}], partition="name=a"),
        java_commit(table, [{"id": 3}], partition="name=a"),
    )
    # Files from before the table had partitions are in none.
    before = [(1, "a"), (2, "a"), (1, "b"), (2, None)]
    assert_rows(lake, "parts", NAMES, *before, (2, "a"), (4, "a"), (1, "b"), (2, "b"), (3, None))
    spark_sql(lake, java_commit(table, [{"id": 2}]))
    assert_rows(lake, "parts", NAMES, (1, "a"), (1, "b"), (4, "a"), (1, "b"), (3, None))
    assert changes(lake, "parts")[2:] == [
        [Delete(row(1, "a")), Insert(row(4, "a"))],
        [Delete(row(3, "a"))],
        [Delete(row(2, "a")), Delete(row(2, "a")), Delete(row(2, "b")), Delete(row(2, None))],
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_come_with_a_delete_or_after_it_stay(version: int, lake: Lake) -> None:
    name = f"upserts{version}"
    table = f"volley.db.{name}"
    spark_sql(
        lake,
        create(name, version=version),
        f"insert into {table} values (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a')",
        java_commit(table, [{"id": 1}, {"id": 5}], [{"id": 1, "name": "b"}, {"id": 5, "name": "b"}]),
        f"insert into {table} values (1, 'c')",
        java_commit(table, [{"id": 2}], [{"id": 2, "name": None}]),
        # Positions in a file that has deleted keys, too.
        f"delete from {table} where id = 3 or name = 'b' and id = 5",
    )
    assert_rows(lake, name, NAMES, (1, "b"), (1, "c"), (2, None), (4, "a"))
    assert changes(lake, name, "id")[1:] == [
        [Insert(row(5, "b")), Update(row(1, "a"), row(1, "b"))],
        [Insert(row(1, "c"))],
        [Update(row(2, "a"), row(2, None))],
        [Delete(row(3, "a")), Delete(row(5, "b"))],
    ]
    compact = f"call volley.system.rewrite_data_files(table => 'db.{name}', options => map('rewrite-all', 'true'))"
    spark_sql(lake, compact, java_commit(table, [{"id": 1}], [{"id": 1, "name": "d"}]))
    assert_rows(lake, name, NAMES, (1, "d"), (2, None), (4, "a"))
    assert changes(lake, name)[-2:] == [[], [Delete(row(1, "b")), Delete(row(1, "c")), Insert(row(1, "d"))]]


@pytest.mark.parametrize("version", [2, 3])
def test_spark_reads_manifests_that_are_written_anew(version: int, lake: Lake) -> None:
    name = f"manifests{version}"
    table = f"volley.db.{name}"
    spark_sql(
        lake,
        create(name, version=version),
        f"insert into {table} values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        java_commit(table, [{"id": 1, "name": "a"}]),
        java_commit(table, [{"name": "c"}], [{"id": 5, "name": "c"}]),
    )
    assert IcebergTable(lake.config(name)).rewrite_manifests().snapshot_id is not None
    assert_rows(lake, name, NAMES, (2, "b"), (4, "d"), (5, "c"))
    spark_sql(lake, java_commit(table, [{"id": 2}]), f"delete from {table} where id = 4")
    assert_rows(lake, name, NAMES, (5, "c"))

"""Cases in which readers of Iceberg tables differ, on tables that Spark and DuckDB write: Volley reads them by value.

``docs/maintainers/readers.md`` lists the cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension

from tests.duck import duckdb_with_iceberg
from tests.servers.iceberg_spark import IcebergSpark
from tests.servers.rest_fixture import RestFixture
from tests.services import lakes
from tests.services.histories import commit
from tests.services.readers import Lake, java_column, java_commit, spark_sql
from volley import (
    Delete,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    Insert,
    MemorySource,
    TableRef,
    Update,
)
from volley.iceberg import IcebergTable, SchemaEvolution, Upsert

pytestmark = pytest.mark.nightly

QUERY = "2b6f8a5e-0000-0000-0000-000000000000"
_V3 = "using iceberg tblproperties ('format-version' = '3')"
_V2 = "using iceberg tblproperties ('format-version' = '2')"


@pytest.fixture(scope="module")
def lake(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    made.catalog().create_namespace("db")
    return made


def rows(lake: Lake, name: str, row_filter: str | None = None) -> list[tuple[Any, ...]]:
    """The rows by Volley, in order."""
    read = IcebergTable(lake.config(name)).rows
    read = read if row_filter is None else read.filter(row_filter)
    return sorted((tuple(row.values()) for row in read.to_arrow().to_pylist()), key=repr)


def by_spark(lake: Lake, name: str, condition: str = "true") -> list[tuple[Any, ...]]:
    (found,) = spark_sql(lake, f"select * from volley.db.{name} where {condition}")
    return sorted((tuple(row.values()) for row in found), key=repr)


def ids(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """Each row's id and the number of its last change, in the order of column `id`; Volley and Spark read the same."""
    read = IcebergTable(lake.config(name)).rows.include("row_id", "last_updated_sequence_number").to_arrow()
    ours = [tuple(row.values()) for row in read.select(["id", *_IDS]).sort_by("id").to_pylist()]
    (theirs,) = spark_sql(lake, f"select id, {', '.join(_IDS)} from volley.db.{name} order by id")
    assert ours == [tuple(row.values()) for row in theirs]
    return [row[1:] for row in ours]


_IDS = ("_row_id", "_last_updated_sequence_number")


def test_ids_after_a_merge_have_gaps(lake: Lake) -> None:
    spark_sql(
        lake,
        f"create table volley.db.merged (id int, name string) {_V3}",
        "insert into volley.db.merged select /*+ coalesce(1) */ id, 'a' from range(3)",
        "merge into volley.db.merged t using (select * from values (1), (3) as v(id)) s on t.id = s.id "
        "when matched then update set name = 'b' when not matched then insert (id, name) values (s.id, 'b')",
    )
    assert rows(lake, "merged") == by_spark(lake, "merged")
    (first, second, third, fourth) = ids(lake, "merged")
    assert [first, second, third] == [(0, 1), (1, 2), (2, 1)]
    # Its place in the new file counts, behind rows that have their ids from before.
    assert fourth[0] > 3
    assert fourth[1] == 2


def test_ids_after_a_rewrite_an_overwrite_and_a_rollback(lake: Lake) -> None:
    spark_sql(
        lake,
        f"create table volley.db.rewritten (id int) {_V3}",
        "insert into volley.db.rewritten values (0)",
        "insert into volley.db.rewritten values (1)",
        "call volley.system.rewrite_data_files(table => 'db.rewritten', options => map('rewrite-all', 'true'))",
    )
    assert ids(lake, "rewritten") == [(0, 1), (1, 2)]
    spark_sql(lake, "insert into volley.db.rewritten values (2)")
    assert ids(lake, "rewritten")[2][0] >= 2
    before = {row_id for row_id, _ in ids(lake, "rewritten")}
    first = lake.table("rewritten").snapshots()[0].snapshot_id
    spark_sql(lake, "insert overwrite volley.db.rewritten select * from volley.db.rewritten")
    after = {row_id for row_id, _ in ids(lake, "rewritten")}
    assert not before & after
    spark_sql(
        lake,
        f"call volley.system.rollback_to_snapshot('db.rewritten', {first})",
        "insert into volley.db.rewritten values (9)",
    )
    (zero, nine) = ids(lake, "rewritten")
    assert zero == (0, 1)
    assert nine[0] not in before | after


def test_ids_of_an_upgraded_table(lake: Lake) -> None:
    spark_sql(
        lake,
        f"create table volley.db.upgraded (id int) {_V2}",
        "insert into volley.db.upgraded values (0)",
        "insert into volley.db.upgraded values (1)",
        "alter table volley.db.upgraded set tblproperties ('format-version' = '3')",
    )
    assert ids(lake, "upgraded") == [(None, None), (None, None)]
    spark_sql(lake, "insert into volley.db.upgraded values (2)")
    assert [number for _, number in ids(lake, "upgraded")] == [1, 2, 3]
    assert len({row_id for row_id, _ in ids(lake, "upgraded")}) == 3


def test_a_staged_row_gets_another_id_when_it_is_published(lake: Lake) -> None:
    spark_sql(
        lake,
        "create table volley.db.staged (id int) using iceberg tblproperties ('format-version' = '3', "
        "'write.wap.enabled' = 'true')",
        "insert into volley.db.staged values (0)",
        "set spark.wap.id = w",
        "insert into volley.db.staged values (7)",
        "reset spark.wap.id",
    )
    head = lake.table("staged").current_snapshot()
    (staged,) = (snapshot for snapshot in lake.table("staged").snapshots() if snapshot != head)
    spark_sql(
        lake,
        "insert into volley.db.staged values (1)",
        f"call volley.system.cherrypick_snapshot('db.staged', {staged.snapshot_id})",
    )
    assert len(lake.table("staged").snapshots()) == 4
    assert [row_id for row_id, _ in ids(lake, "staged")] == [0, 2, 3]


def test_position_deletes_of_two_files_stay_beside_a_vector(lake: Lake) -> None:
    spark_sql(
        lake,
        "create table volley.db.beside (id int) using iceberg tblproperties ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')",
        "insert into volley.db.beside select /*+ coalesce(1) */ int(id) from range(5)",
        "insert into volley.db.beside select /*+ coalesce(1) */ int(id) + 5 from range(5)",
        "delete from volley.db.beside where id in (1, 6)",
        "alter table volley.db.beside set tblproperties ('format-version' = '3')",
        "delete from volley.db.beside where id = 2",
    )
    forms = lake.table("beside").inspect.delete_files()["file_format"].to_pylist()
    assert sorted(forms) == ["PARQUET", "PUFFIN"]
    assert rows(lake, "beside") == by_spark(lake, "beside") == [(0,), (3,), (4,), (5,), (7,), (8,), (9,)]
    start = lake.table("beside").snapshots()[-2].snapshot_id
    changes = IcebergTable(lake.config("beside")).changes(start)
    assert [str(change) for change in changes] == ["Delete(row={'id': 2})"]


def test_filters_on_promoted_bucketed_and_widened_columns(lake: Lake) -> None:
    spark_sql(
        lake,
        "create table volley.db.wide (id int, price decimal(9, 2), ratio float) using iceberg "
        "partitioned by (bucket(4, id)) tblproperties ('format-version' = '2')",
        "insert into volley.db.wide values (5, 1.50, 0.5), (6, -2.25, 1.5)",
        "alter table volley.db.wide alter column id type bigint",
        "alter table volley.db.wide alter column price type decimal(30, 2)",
        "alter table volley.db.wide alter column ratio type double",
        "insert into volley.db.wide values (5000000000, 1.50, 0.1)",
    )
    assert rows(lake, "wide", "id = 5") == [(5, Decimal("1.50"), 0.5)]
    assert rows(lake, "wide", "id = 5000000000") == [(5_000_000_000, Decimal("1.50"), 0.1)]
    assert [row[0] for row in rows(lake, "wide", "price = 1.50")] == [5, 5_000_000_000]
    assert [row[0] for row in rows(lake, "wide", "ratio > 0.4")] == [5, 6]


def test_nan_is_above_the_bounds_and_null_is_not_unequal(lake: Lake) -> None:
    spark_sql(
        lake,
        "create table volley.db.numbers (id int, x double, p string) using iceberg partitioned by (p) "
        "tblproperties ('format-version' = '2')",
        "insert into volley.db.numbers values (1, 1.0, 'a'), (2, double('NaN'), 'a'), (3, 1.0, 'b'), (4, null, null)",
    )
    assert [row[0] for row in rows(lake, "numbers", "x > 5")] == [2]
    assert [row[0] for row in rows(lake, "numbers", "x is null")] == [4]
    # Null is neither equal nor unequal, whether its partition can be left out or not.
    assert [row[0] for row in rows(lake, "numbers", "p <> 'a'")] == [3]
    assert by_spark(lake, "numbers", "p <> 'a'") == rows(lake, "numbers", "p <> 'a'")


@pytest.mark.parametrize("metrics", ["none", "counts", "truncate(2)"])
def test_bounds_that_are_missing_or_cut_leave_out_no_row(lake: Lake, metrics: str) -> None:
    name = f"metrics_{metrics[:4]}"
    spark_sql(
        lake,
        f"create table volley.db.{name} (id int, name string) using iceberg "
        f"tblproperties ('format-version' = '2', 'write.metadata.metrics.default' = '{metrics}')",
        f"insert into volley.db.{name} values (1, 'aaaa'), (2, 'aaab'), (3, null)",
    )
    assert rows(lake, name, "name = 'aaab'") == [(2, "aaab")]
    assert rows(lake, name, "name > 'aaaa'") == [(2, "aaab")]
    assert rows(lake, name, "name is null") == [(3, None)]
    assert rows(lake, name, "id >= 2") == [(2, "aaab"), (3, None)]


def test_a_branch_has_the_tables_names_and_a_tag_its_own(lake: Lake) -> None:
    spark_sql(
        lake,
        f"create table volley.db.travelled (id int, name string) {_V2}",
        "insert into volley.db.travelled values (1, 'a')",
        "alter table volley.db.travelled create branch b",
        "alter table volley.db.travelled create tag t",
        "alter table volley.db.travelled rename column name to full_name",
    )
    table = IcebergTable(lake.config("travelled"))
    snapshot = lake.table("travelled").snapshots()[0].snapshot_id
    for version, name in ((snapshot, "name"), ("t", "name"), ("b", "full_name")):
        read = table.at(version) if name == "name" else IcebergTable(lake.config("travelled").with_branch("b")).rows
        assert read.filter(f"{name} = 'a'").to_arrow().to_pylist() == [{"id": 1, name: "a"}]


def test_columns_of_files_without_ids(lake: Lake) -> None:
    """Spark takes in a Hive table, whose files lack ids and the partition's column."""
    folder = lake.folder / "hive"
    spark_sql(
        lake,
        "create or replace temp view hive_rows as select * from values (1, 'x', 'a'), (2, 'y', null) as v(id, name, p)",
        f"insert overwrite directory '{folder}/p=a' using parquet select id, name from hive_rows where p = 'a'",
        f"insert overwrite directory '{folder}/p=__HIVE_DEFAULT_PARTITION__' using parquet "
        "select id, name from hive_rows where p is null",
        "create table volley.db.hive (id int, name string, p string) using iceberg partitioned by (p)",
        f"call volley.system.add_files(table => 'db.hive', source_table => '`parquet`.`{folder}`')",
        "alter table volley.db.hive rename column name to full_name",
        "alter table volley.db.hive rename column p to q",
    )
    expected = [(1, "x", "a"), (2, "y", None)]
    assert rows(lake, "hive") == by_spark(lake, "hive") == expected
    assert rows(lake, "hive", "q = 'a'") == expected[:1]
    assert rows(lake, "hive", "q is null") == expected[1:]
    assert rows(lake, "hive", "full_name = 'y'") == expected[1:]


def test_a_table_that_spark_writes_in_an_order(lake: Lake) -> None:
    """Files of upserts have the order of the table too, and those of a compaction that sorts by it."""
    spark_sql(
        lake,
        f"create table volley.db.ordered (id int, at int) {_V3}",
        "alter table volley.db.ordered write ordered by at desc nulls last, id",
        "insert into volley.db.ordered values (1, 5), (2, null), (3, 9), (4, 5)",
    )
    orders = "select distinct sort_order_id from volley.db.ordered.data_files"
    assert spark_sql(lake, orders) == [[{"sort_order_id": 1}]]
    table = IcebergTable(lake.config("ordered"))
    read = [tuple(row.values()) for row in table.to_arrow().to_pylist()]
    assert read == [(3, 9), (1, 5), (4, 5), (2, None)]
    mode = Upsert(["id"], strategy="merge_on_read")
    schema = pa.schema({"id": pa.int32(), "at": pa.int32()})
    changed: list[dict[str, Any]] = [{"id": 4, "at": 8}, {"id": 5, "at": None}, {"id": 6, "at": 9}]
    commit(lake.config("ordered").with_commit_mode(mode), QUERY, 0, changed, schema)
    expected = [(3, 9), (6, 9), (4, 8), (1, 5), (2, None), (5, None)]
    for _ in range(2):
        assert by_spark(lake, "ordered") == sorted(expected, key=repr)
        assert rows(lake, "ordered", "at >= 8") == [(3, 9), (4, 8), (6, 9)]
        assert spark_sql(lake, orders) == [[{"sort_order_id": 1}]]
        table.compact(rewrite_all=True, sort_by=True)
    assert [tuple(row.values()) for row in table.to_arrow().to_pylist()] == expected


def test_equality_deletes_compare_defaults_and_promoted_values(lake: Lake) -> None:
    """Spark 4.1.4 reads the deletes of columns that were promoted since wrong: it has the row back."""
    spark_sql(
        lake,
        f"create table volley.db.compared (id int, name string) {_V3}",
        "insert into volley.db.compared values (1, 'a'), (2, 'b'), (3, 'c')",
        java_commit("volley.db.compared", [{"id": 3}]),
    )
    ref = lake.config("compared").ref
    SchemaEvolution(ref.load().schema()).add("c", "int", default=5).update_type("id", "long").apply(ref)
    assert rows(lake, "compared") == [(1, "a", 5), (2, "b", 5)]
    spark_sql(lake, java_commit("volley.db.compared", [{"id": 1, "c": 5}, {"id": 2, "c": None}]))
    assert rows(lake, "compared") == [(2, "b", 5)]


DEFAULTS: dict[str, tuple[str, Any, Any]] = {
    "number": ("int", 5, 5),
    "day": ("date", "2024-02-29", date(2024, 2, 29)),
    "at": ("timestamptz", "2024-01-01T00:00:00.500000+00:00", datetime(2024, 1, 1, microsecond=500_000, tzinfo=UTC)),
    "price": ("decimal(9, 2)", "-14.20", Decimal("-14.20")),
    "raw": ("binary", "00ff", b"\x00\xff"),
    "ratio": ("float", 0.5, 0.5),
    "is_new": ("boolean", True, True),
    "text": ("string", "é", "é"),
    "same": ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
}


@pytest.mark.parametrize("required", [False, True])
def test_defaults_of_java_are_read_filtered_and_kept(lake: Lake, required: bool) -> None:
    """Old files are Spark's, which lack the columns; a null that is written stays one."""
    name = f"defaults_{required}".lower()
    table = f"volley.db.{name}"
    spark_sql(
        lake,
        f"create table {table} (id int, place struct<x: int>, places array<struct<x: int>>, "
        f"named map<string, struct<x: int>>) {_V3}",
        f"insert into {table} values (1, named_struct('x', 1), array(named_struct('x', 1), null), "
        "map('k', named_struct('x', 1), 'none', null)), (2, null, null, null)",
        *(java_column(table, column, kind, json, required=required) for column, (kind, json, _) in DEFAULTS.items()),
        java_column(table, "c", "int", 7, parent="place"),
        java_column(table, "c", "int", 7, parent="places"),
        java_column(table, "c", "int", 7, parent="named"),
    )
    nulls = [] if required else [(3, *[None] * (3 + len(DEFAULTS)))]
    if nulls:
        spark_sql(lake, f"insert into {table} values (3{', null' * (3 + len(DEFAULTS))})")
    values = [value for _, _, value in DEFAULTS.values()]
    within = {"x": 1, "c": 7}
    named = [("k", within), ("none", None)]
    expected = [(1, within, [within, None], named, *values), (2, None, None, None, *values), *nulls]
    ref = lake.config(name).ref
    for _ in range(2):
        assert rows(lake, name) == expected
        assert [row[0] for row in rows(lake, name, "number = 5")] == [1, 2]
        assert [row[0] for row in rows(lake, name, "number is null")] == [row[0] for row in expected[2:]]
        assert rows(lake, name, "day > date '2024-02-29'") == []
        assert len(rows(lake, name, "text = 'é'")) == 2
        IcebergTable(ref).compact(rewrite_all=True)
    (theirs,) = spark_sql(lake, f"select id, number, text, place, places, named from {table} order by id")
    assert [tuple(row.values())[:3] for row in theirs[:2]] == [(1, 5, "é"), (2, 5, "é")]
    assert theirs[0]["places"] == [within, None]
    assert theirs[0]["named"] == dict(named)


def test_nanoseconds_of_java(lake: Lake) -> None:
    """Neither Spark nor DuckDB reads such a table; the library's own writer fills it."""
    config = lake.appended("nanoseconds")
    schema = pa.schema({"id": pa.int32(), "at": pa.timestamp("ns"), "seen": pa.timestamp("ns", "UTC")})
    commit(config, QUERY, 0, [{"id": 0, "at": None, "seen": None}], schema)
    sent = [
        {"id": 1, "at": "2024-01-01T00:00:00.123456789", "seen": "2024-01-01T00:00:00.123456789+00:00"},
        {"id": 2, "at": "1969-12-31T23:59:59.999999999", "seen": "1969-12-31T23:59:59.999999999+00:00"},
    ]
    start = config.ref.load().current_snapshot()
    assert start is not None
    spark_sql(lake, java_commit("volley.db.nanoseconds", [{"id": 0}], sent))
    read = IcebergTable(config.ref)
    ns = {1: 1_704_067_200_123_456_789, 2: -1}
    found = read.to_arrow().sort_by("id")
    for column in ("at", "seen"):
        assert found[column].cast(pa.int64()).to_pylist() == [*ns.values()]
    for text, ids_of in {"2024-01-01T00:00:00.123456789": [1], "2024-01-01T00:00:00.123456788": []}.items():
        assert read.rows.filter(f"at = '{text}'").to_arrow()["id"].to_pylist() == ids_of
        assert read.rows.filter(f"seen = '{text}Z'").to_arrow()["id"].to_pylist() == ids_of
    assert read.rows.filter("at < '1970-01-01T00:00:00'").to_arrow()["id"].to_pylist() == [2]
    changes = read.changes(start.snapshot_id)
    told = [(type(change).__name__, change.row["id"]) for change in changes if not isinstance(change, Update)]
    assert sorted(told) == [("Delete", 0), ("Insert", 1), ("Insert", 2)]


def test_padded_texts_of_hives_files(lake: Lake) -> None:
    """A ``char(5)`` in ORC files comes with its spaces, to Volley as to Spark."""
    folder = lake.folder / "chars"
    spark_sql(
        lake,
        f"create table chars (id int, c char(5)) using orc location '{folder}'",
        "insert into chars values (1, 'ab'), (2, 'abcde')",
        f"create table volley.db.chars (id int, c string) {_V2}",
        f"call volley.system.add_files(table => 'db.chars', source_table => '`orc`.`{folder}`')",
    )
    assert rows(lake, "chars") == by_spark(lake, "chars") == [(1, "ab   "), (2, "abcde")]
    for text, found in {"ab": [], "ab   ": [(1, "ab   ")], "abcde": [(2, "abcde")]}.items():
        assert rows(lake, "chars", f"c = '{text}'") == by_spark(lake, "chars", f"c = '{text}'") == found


# --- polars


def test_an_overwrite_of_polars_is_a_delete_and_an_append(tmp_path: Path) -> None:
    """Its two snapshots are one commit: changes are those of both, also of a row that stays the same."""
    ref = TableRef("db", "written", IcebergStorage.Local(tmp_path))
    with ref.load_catalog() as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.written", pa.schema({"id": pa.int64(), "name": pa.string()}))
    before = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    after = [{"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
    pl.LazyFrame(before).sink_iceberg(ref.load(), mode="append")
    first = ref.load().current_snapshot()
    assert first is not None
    pl.LazyFrame(after).sink_iceberg(ref.load(), mode="overwrite")
    table = IcebergTable(ref)
    assert [str(snapshot.operation) for snapshot in table.snapshots()][-2:] == ["delete", "append"]
    assert table.to_arrow().sort_by("id").to_pylist() == after
    changes = [*table.changes(first.snapshot_id, keys="id")]
    assert sorted(change.row["id"] for change in changes if isinstance(change, Delete)) == [1, 2]
    assert sorted(change.row["id"] for change in changes if isinstance(change, Insert)) == [2, 3]
    assert len(changes) == 4


# --- DuckDB


@pytest.fixture
def of_duckdb(rest_fixture: RestFixture) -> duckdb.DuckDBPyConnection:
    connection = duckdb_with_iceberg().cursor()
    # It asks the catalog by HTTP.
    import_extension("httpfs", con=connection)
    connection.load_extension("httpfs")
    connection.execute(
        f"attach if not exists 'warehouse' as volley_rest (type iceberg, endpoint '{rest_fixture.uri}', "
        "authorization_type 'none')"
    )
    return connection


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_duckdb_changes(
    of_duckdb: duckdb.DuckDBPyConnection, rest_fixture: RestFixture, version: int
) -> None:
    """DuckDB leaves out counts of values, and its totals never fall; a MERGE of it is two snapshots."""
    rest = lakes.on_rest(rest_fixture)
    config = rest.config()
    rest.open_plain().create_namespace_if_not_exists("db")
    name = f"volley_rest.db.{config.table}"
    statements: Sequence[str] = (
        f"create table {name} (id integer, x double) with ('format-version' = '{version}')",
        f"insert into {name} values (1, 1.0), (2, 'nan'), (3, null), (4, 4.0)",
        f"delete from {name} where id = 4",
        f"update {name} set x = 2.0 where id = 1",
        f"merge into {name} t using (values (1, 9.0), (5, 5.0)) s(id, x) on t.id = s.id "
        "when matched then update set x = s.x when not matched then insert values (s.id, s.x)",
    )
    for statement in statements:
        of_duckdb.execute(statement)
    table = IcebergTable(config)
    read = sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)
    assert repr(read) == repr([(1, 9.0), (2, float("nan")), (3, None), (5, 5.0)])
    assert table.rows.filter("x > 6").to_arrow()["id"].sort().to_pylist() == [1, 2]
    assert table.rows.filter("x is null").to_arrow()["id"].to_pylist() == [3]
    kinds = [type(change).__name__ for change in table.changes(None, keys="id")]
    assert sorted(kinds) == [
        *["Delete"],
        *["Insert"] * 5,
        *["Update"] * 2,
    ]
    if version == 3:
        ours = table.rows.include("row_id").to_arrow().sort_by("id")["_row_id"].to_pylist()
        assert ours == [row_id for (row_id,) in of_duckdb.execute(f"select _row_id from {name} order by id").fetchall()]
        assert None not in ours
        assert len(ours) == len({*ours})
    # Both go on in turn: an upsert, a deletion of DuckDB, a compaction.
    schema = pa.schema({"id": pa.int32(), "x": pa.float64()})
    mode = Upsert(["id"], strategy="merge_on_read")
    commit(config.with_commit_mode(mode), QUERY, 0, [{"id": 1, "x": 1.5}, {"id": 6, "x": 6.0}], schema)
    of_duckdb.execute(f"delete from {name} where id = 5")
    for _ in range(2):
        expected = [(1, 1.5), (2, float("nan")), (3, None), (6, 6.0)]
        assert repr(of_duckdb.execute(f"select id, x from {name} order by id").fetchall()) == repr(expected)
        assert repr(sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())) == repr(expected)
        table.compact(rewrite_all=True)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.usefixtures("spark")
def test_a_table_of_duckdb_is_followed_and_joined(
    of_duckdb: duckdb.DuckDBPyConnection, rest_fixture: RestFixture, tmp_path: Path, version: int
) -> None:
    """Its totals never fall, and it tells no sizes: neither counts as the number of rows, nor as a table of none."""
    rest = lakes.on_rest(rest_fixture)
    config = rest.config()
    rest.open_plain().create_namespace_if_not_exists("db")
    name = f"volley_rest.db.{config.table}"
    of_duckdb.execute(f"create table {name} (id integer, x double) with ('format-version' = '{version}')")
    copy = IcebergSinkConfig(namespace="db", table="copy", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    upsert = copy.with_commit_mode(Upsert(["id"], op_field="_change"))
    follow = IcebergSourceConfig(config.ref).with_changes("follow", keys=["id"])
    environment = Environment("local[2]", checkpoint_dir=f"{tmp_path}/checkpoints")
    changes = environment.from_source(IcebergSource(follow)).drop("_snapshot", "_committed_at")
    asked = MemorySource([{"id": id} for id in range(1, 7)])
    for statement in (
        f"insert into {name} values (1, 1.0), (2, 'nan'), (3, null), (4, 4.0)",
        f"delete from {name} where id in (3, 4)",
        f"update {name} set x = 2.0 where id = 1",
        f"merge into {name} t using (values (1, 9.0), (5, 5.0)) s(id, x) on t.id = s.id "
        "when matched then update set x = s.x when not matched then insert values (s.id, s.x)",
        f"delete from {name}",
        f"insert into {name} values (6, 6.0)",
    ):
        of_duckdb.execute(statement)
        expected = of_duckdb.execute(f"select id, x from {name} order by id").fetchall()
        changes.to_sink(IcebergSink(upsert)).execute("follow")
        copied = copy.ref.load().scan().to_arrow().select(["id", "x"]).to_pylist()
        assert repr(sorted(tuple(row.values()) for row in copied)) == repr(expected)
        joined = environment.from_source(asked).join(IcebergTable(config), on="id").to_arrow().to_pylist()
        assert repr(sorted((row["id"], row["x"]) for row in joined)) == repr(expected)

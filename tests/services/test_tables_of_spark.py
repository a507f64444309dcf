"""Tables that Spark writes with Iceberg's runtime: Volley reads the same rows in each snapshot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.iceberg.pages import recorded_cuts
from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, by_pyiceberg, spark_sql
from tests.upserts.lake import do
from volley import Epoch, IcebergSink, Metrics, SinkContext, col
from volley.iceberg import IcebergTable, Upsert

_HISTORY = [
    "delete from {t} where id % 5 = 0",
    "update {t} set name = concat(name, '!') where id % 3 = 0",
    "alter table {t} alter column id type bigint",
    "alter table {t} rename column name to title",
    "alter table {t} add column added int first",
    "alter table {t} add column point.z int",
    "insert into {t} select null, id + 100, name, price, tags, named_struct('x', 1, 'y', 2, 'z', 3) from first",
    "delete from {t} where id in (101, 7)",
    "alter table {t} drop partition field bucket(2, id)",
    "alter table {t} add partition field truncate(1, title)",
    "merge into {t} t using (select id, name from first) s on t.id = s.id + 100 "
    "when matched and s.id < 5 then delete when matched then update set title = upper(s.name), added = 1",
    "call volley.system.rewrite_data_files(table => 'db.{name}', options => map('rewrite-all', 'true'))",
    "delete from {t} where id = 109",
]


@pytest.fixture(scope="module")
def lake(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    made.catalog().create_namespace("db")
    return made


def rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["id"] is None, row["id"]))


@pytest.mark.parametrize(
    ("version", "mode", "form"),
    [
        *((1, "copy-on-write", "parquet"), (2, "copy-on-write", "parquet")),
        *((2, "merge-on-read", "parquet"), (3, "merge-on-read", "parquet"), (2, "merge-on-read", "avro")),
    ],
)
def test_each_snapshot_has_the_rows_that_spark_reads(version: int, mode: str, form: str, lake: Lake) -> None:
    name = f"t{version}_{mode.replace('-', '_')}_{form}"
    table = f"volley.db.{name}"
    modes = ", ".join(f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge"))
    first = (
        "select cast(id as int) id, nullif(concat('n', id), 'n4') name, cast(id / 4 as decimal(9, 2)) price, "
        "if(id % 4 = 1, null, array('a', null)) tags, if(id = 2, null, named_struct('x', cast(id as int), 'y', null)) "
        "point from range(1, 21)"
    )
    columns = "id int, name string, price decimal(9, 2), tags array<string>, point struct<x: int, y: int>"
    spark_sql(
        lake,
        f"create or replace temporary view first as {first}",
        f"create table {table} ({columns}) using iceberg partitioned by (bucket(2, id)) "
        f"tblproperties ('format-version' = '{version}', 'write.format.default' = '{form}', {modes})",
        f"insert into {table} select * from first",
        *(statement.format(t=table, name=name) for statement in _HISTORY),
    )
    snapshots = [snapshot.snapshot_id for snapshot in lake.table(name).metadata.snapshots]
    assert len(snapshots) == 8
    theirs = spark_sql(lake, *(f"select * from {table} version as of {snapshot}" for snapshot in snapshots))
    ours = IcebergTable(lake.config(name))
    for snapshot, found in zip(snapshots, theirs, strict=True):
        assert rows_of(ours.at(snapshot).to_arrow().to_pylist()) == rows_of(found), snapshot
    last = rows_of(theirs[-1])
    some = ours.rows.filter((col("id") > 100) & col("title").is_not_null()).to_arrow().to_pylist()
    assert rows_of(some) == [row for row in last if row["id"] > 100 and row["title"] is not None]
    if (version, mode) != (2, "copy-on-write") and version > 1:
        formats = {file["file_format"] for file in lake.table(name).inspect.delete_files().to_pylist()}
        assert formats == {"PUFFIN" if version == 3 else form.upper()}


def test_a_filter_reads_some_pages_of_a_file_that_spark_writes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_sql(
        lake,
        "create table volley.db.paged (id long, name string, tags array<string>, real double) using iceberg",
        "insert into volley.db.paged select id, concat('n', id), array(string(id)), double(id) "
        "from range(0, 150000, 1, 1)",
    )
    cuts = recorded_cuts(monkeypatch)
    found = IcebergTable(lake.config("paged")).rows.filter("id between 70000 and 70002").to_arrow()
    assert found.to_pylist() == [
        {"id": n, "name": f"n{n}", "tags": [str(n)], "real": float(n)} for n in range(70_000, 70_003)
    ]
    assert {name for name, _ in cuts} == {"id", "name", "real"}


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_spark_reads_rewritten_deletes(granularity: str, lake: Lake) -> None:
    """Delete files of Spark, each of a data file or of a partition; then one of each data file, of Volley."""
    name = f"deletes_{granularity}"
    table = f"volley.db.{name}"
    found = spark_sql(
        lake,
        f"create table {table} (id long, part int) using iceberg partitioned by (part) tblproperties "
        f"('write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = '{granularity}')",
        *(f"insert into {table} select id, id % 2 from range({first}, {first + 10}, 1, 1)" for first in (0, 10, 20)),
        *(f"delete from {table} where id % 7 = {rest}" for rest in range(3)),
        f"select * from {table}",
    )[-1]
    done = IcebergTable(lake.config(name)).rewrite_position_deletes()
    # Spark itself keeps one for each data file, if so asked.
    assert done.files_before == done.files_after == done.data_files == (6 if granularity == "partition" else 0)
    assert IcebergTable(lake.config(name)).rewrite_position_deletes().snapshot_id is None
    after = spark_sql(lake, f"select * from {table}", f"select * from {table} where id = 3")
    assert rows_of(after[0]) == rows_of(found) == rows_of(IcebergTable(lake.config(name)).to_arrow().to_pylist())
    assert {row["id"] for row in found} == {id for id in range(30) if id % 7 > 2}
    # Spark goes on with the table: its deletes stand beside ours.
    last = spark_sql(
        lake, f"delete from {table} where id = 3", f"delete from {table} where part = 1", f"select * from {table}"
    )
    assert rows_of(last[-1]) == rows_of([row for row in found if row["part"] == 0])


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_a_table_that_was_of_format_1_is_read_and_changed(mode: str, lake: Lake) -> None:
    name = f"upgraded_{mode.replace('-', '_')}"
    table, modes = f"volley.db.{name}", f"'write.delete.mode' = '{mode}', 'write.update.mode' = '{mode}'"
    spark_sql(
        lake,
        f"create table {table} (id bigint, city string, cents bigint) using iceberg partitioned by (city) "
        "tblproperties ('format-version' = '1')",
        f"insert into {table} select id, if(id % 2 = 0, 'a', 'b'), id * 10 from range(10)",
        f"delete from {table} where id = 4",
        f"alter table {table} set tblproperties ('format-version' = '2', {modes})",
        f"delete from {table} where id = 5",
        f"update {table} set cents = -1 where id in (6, 7)",
        f"insert into {table} values (20, 'c', 1)",
    )

    def seen() -> list[list[dict[str, Any]]]:
        (theirs,) = spark_sql(lake, f"select * from {table}")
        ours = IcebergTable(lake.config(name)).to_arrow().to_pylist()
        return [rows_of(rows) for rows in (theirs, ours, by_pyiceberg(lake, name))]

    rows = {n: ("ab"[n % 2], -1 if n in (6, 7) else n * 10) for n in range(10) if n not in (4, 5)} | {20: ("c", 1)}
    assert seen() == [[{"id": n, "city": city, "cents": cents} for n, (city, cents) in rows.items()]] * 3
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), "cents": pa.int64()})
    config = lake.config(name).with_commit_mode(Upsert("id", strategy="merge_on_read"))
    committer = IcebergSink(config).open(SinkContext("job", schema, Metrics(), do))
    epoch = Epoch("2b6f8a5e-0000-0000-0000-000000000000", 0)
    task = committer.writer(epoch).open(0)
    # A row of format 1, one of format 2, and a new one.
    task.write(pa.record_batch({"id": [1, 20, 30], "city": ["z", "z", "z"], "cents": [5, 6, 7]}, schema))
    committer.last_epoch(epoch.query_id)
    committer.commit(epoch, [task.close()])
    rows = {n: row for n, row in rows.items() if n not in (1, 20)} | {1: ("z", 5), 20: ("z", 6), 30: ("z", 7)}
    assert seen() == [[{"id": n, "city": rows[n][0], "cents": rows[n][1]} for n in sorted(rows)]] * 3

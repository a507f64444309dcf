"""Manifests that Spark writes with Iceberg's runtime: their entries, and plans, are those of pyiceberg."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.table import FileScanTask, Table

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, spark_sql
from volley.iceberg.pyiceberg_private.entries import read_entries
from volley.iceberg.read import entries as volley_entries
from volley.iceberg.read.entries import FileEntry, manifests_of, read_manifest
from volley.iceberg.read.planning import plan

FILTERS = ["true", "id = 3", "id > 4 and name = 'b'", "day = '2024-01-02'", "price < 2", "name is null", "half is nan"]


@pytest.fixture(scope="module", params=["zstd", "gzip"])
def table(
    request: pytest.FixtureRequest, iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory
) -> Table:
    """Appends, deletes of rows, another partition spec, a renamed and a promoted column."""
    lake = Lake(tmp_path_factory.mktemp("spark"), iceberg_spark)
    lake.catalog().create_namespace("db")
    rows = ", ".join(
        f"({number}, '{'abc'[number % 3]}', date'2024-01-0{number % 3 + 1}', {number}.25, double('nan'))"
        for number in range(9)
    )
    spark_sql(
        lake,
        "create table volley.db.t (id int, name string, day date, price decimal(9, 2), half double) using iceberg "
        f"partitioned by (day, bucket(4, id)) location 'file://{lake.folder}/t' tblproperties ("
        f"'format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.avro.compression-codec' = "
        f"'{request.param}')",
        f"insert into volley.db.t values {rows}",
        "delete from volley.db.t where price > 3 and price < 5",
        "alter table volley.db.t add partition field truncate(1, name) as `first letter`",
        "alter table volley.db.t alter column id type bigint",
        "alter table volley.db.t rename column name to title",
        f"insert into volley.db.t values {rows}, (null, null, null, null, null)",
        "alter table volley.db.t rename column title to name",
        "delete from volley.db.t where id = 7",
        "call volley.system.rewrite_manifests('db.t')",
        f"insert into volley.db.t values {rows}",
    )
    return lake.table("t")


def test_entries(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = {each.manifest_path: each for s in table.snapshots() for each in manifests_of(table.io, s)}
    theirs = {path: [FileEntry(**entry) for entry in read_entries(table.io, each)] for path, each in manifests.items()}

    def fail(*arguments: object) -> None:
        raise AssertionError("read by pyiceberg")

    monkeypatch.setattr(volley_entries, "read_entries", fail)
    ours = {path: read_manifest(table.io, each) for path, each in manifests.items()}
    assert ours == theirs
    assert {entry.content for entries in ours.values() for entry in entries} == {0, 1}
    assert {entry.spec_id for entries in ours.values() for entry in entries} == {0, 1}
    assert all(Path(path.removeprefix("file:")).exists() for path in ours)


@pytest.mark.parametrize("row_filter", FILTERS)
def test_plans(row_filter: str, table: Table) -> None:
    for snapshot in table.snapshots():
        planned = plan(table.io, table.metadata, snapshot, parse(row_filter)).files
        tasks = table.scan(row_filter=row_filter, snapshot_id=snapshot.snapshot_id).plan_files()
        theirs = {
            task.file.file_path: {delete.file_path for delete in task.delete_files}
            for task in tasks
            if isinstance(task, FileScanTask)
        }
        assert {file.file.path: {delete.path for delete in file.deletes} for file in planned} == theirs

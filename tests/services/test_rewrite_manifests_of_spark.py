"""Rewriting of the manifests of a table that Spark writes: Spark reads the same rows and goes on writing."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table import Table

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, by_duckdb, by_pyiceberg, spark_sql
from volley.iceberg import IcebergTable
from volley.iceberg.read.entries import FileEntry, manifests_of, read_manifest

T = "volley.db.t"


def test_spark_reads_what_was_rewritten(iceberg_spark: IcebergSpark, tmp_path: Path) -> None:
    """Delete files, an older spec, a promoted column that is a partition's source, and one that was dropped."""
    lake = Lake(tmp_path, iceberg_spark)
    lake.catalog().create_namespace("db")
    spark_sql(
        lake,
        f"create table {T} (id int, day date, half double, old string) using iceberg partitioned by (id, day, half) "
        f"location 'file://{tmp_path}/t' tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
        "'commit.manifest-merge.enabled' = 'false')",
        *(
            f"insert into {T} values ({n}, date'1960-01-0{n}', {n} / 10, 'x'), "
            f"({n}, date'2024-01-02', double('nan'), 'x'), ({n}, null, -0.0, 'y'), ({n}, null, -0.0, 'z')"
            for n in range(1, 4)
        ),
        f"delete from {T} where old = 'y' and id = 1",
        f"delete from {T} where old = 'y' and id > 1",
        f"alter table {T} replace partition field day with truncate(1, old) as letter",
        f"alter table {T} alter column id type bigint",
        f"insert into {T} values (7, date'2024-01-02', 0.5, 'x'), (10000000000, null, null, null)",
        f"alter table {T} drop partition field letter",
        f"alter table {T} drop column old",
        f"insert into {T} values (8, date'2024-01-02', 0.5)",
    )
    table = IcebergTable(lake.config("t"))
    before = entries_of(lake.table("t"))
    assert any(entry.content for entry in before)
    (rows,) = spark_sql(lake, f"from {T}")
    done = table.rewrite_manifests()
    assert (done.replaced, done.created, done.kept) == (5, 2, 2)
    assert repr(entries_of(lake.table("t"))) == repr(before)  # NaN differs from itself
    assert table.rewrite_manifests().snapshot_id is None
    found = spark_sql(
        lake,
        *(f"from {T}", f"select * from {T} where id = 2 and day is null", f"select * from {T} where half = 0.5"),
        f"select summary from {T}.snapshots where snapshot_id = {done.snapshot_id}",
        f"delete from {T} where id = 3",
        "call volley.system.rewrite_manifests('db.t')",
        f"from {T}",
    )
    everything, nulls, halves, _, _, _, after = found
    assert sorted(map(repr, everything)) == sorted(map(repr, rows))
    assert (len(nulls), len(halves)) == (1, 2)
    assert sorted(map(repr, after)) == sorted(repr(row) for row in rows if row["id"] != 3)
    assert len(by_pyiceberg(lake, "t")) == len(by_duckdb(lake, "t")) == len(after)


def entries_of(table: Table) -> list[FileEntry]:
    """The live entries, with all that they say but their status."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    read = (entry for manifest in manifests_of(table.io, snapshot) for entry in read_manifest(table.io, manifest))
    return sorted((each._replace(status=0) for each in read if each.is_live), key=lambda each: each.path)

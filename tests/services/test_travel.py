"""Spark's Iceberg runtime beside SchemaEvolution and SnapshotManager: the same schema, and each snapshot's rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.servers.iceberg_spark import IcebergSpark
from tests.services import lakes
from tests.services.readers import Lake, by_duckdb, by_pyiceberg, spark_sql
from volley.iceberg import SchemaEvolution, SnapshotManager, orphan_files

AT_ONCE = timedelta(0)
COLUMNS = (
    "id int, name string, place struct<city: string, zip: int>, tags array<struct<key: string, n: float>>, "
    "d decimal(5,2)"
)


@pytest.fixture
def lake(iceberg_spark: IcebergSpark, tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake", iceberg_spark)
    made.folder.mkdir()
    made.catalog().create_namespace("db")
    return made


def test_the_sql_gives_the_schema_that_apply_gives(lake: Lake) -> None:
    evolution = SchemaEvolution(COLUMNS)
    for table in ("applied", "by_sql"):
        lake.catalog().create_table(f"db.{table}", evolution.apply())
    for number, data_type in enumerate(
        [
            *("boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"),
            *("decimal(38,10)", "array<map<string, struct<`a b`: int, c: array<date>>>>"),
        ]
    ):
        evolution = evolution.add(f"added{number}", data_type)
    evolution = (
        evolution.rename("name", 'it`s "new"')
        .add("name", "long")
        .update_type("id", "long")
        .update_type("d", "decimal(9,2)")
        .add("place.land", "string")
        .rename("place.land", "country")
        .update_type("place.zip", "long")
        .drop("place.city")
        .update_type("tags.element.n", "double")
        .rename("tags.element.key", "k")
        .add("tags.element.note", "string")
        .rename("place", "address")
    )
    evolution.apply(lake.config("applied").ref)
    spark_sql(lake, *evolution.statements("volley.db.by_sql"))
    applied, by_sql = (lake.table(name).schema() for name in ("applied", "by_sql"))
    assert str(by_sql.as_struct()) == str(applied.as_struct())
    assert evolution.to_sql("volley.db.by_sql").splitlines() == [
        f"{statement};" for statement in evolution.statements("volley.db.by_sql")
    ]


def test_spark_reads_each_snapshot_that_an_expiry_leaves(lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    modes = {"write.delete.mode": "merge-on-read", "commit.manifest.min-count-to-merge": "3"}
    lake.catalog().create_table("db.t", schema, partition_spec=spec, properties=modes)
    spark_sql(
        lake,
        *(
            f"insert into volley.db.t values ({number}, 'a'), ({number + 50}, 'a'), ({number + 100}, 'b')"
            for number in range(4)
        ),
        "delete from volley.db.t where id in (1, 101)",
    )
    manager = SnapshotManager(lake.config("t").ref)
    assert lake.table("t").inspect.delete_files().num_rows > 0
    manager.create_tag("audited")
    manager.create_branch("try", min_snapshots=2, max_age="30d")
    spark_sql(
        lake,
        "insert into volley.db.t.branch_try values (500, 'a')",
        "delete from volley.db.t where part = 'a'",
        "insert overwrite volley.db.t values (7, 'b')",
    )
    queries = ["from volley.db.t", "from volley.db.t version as of 'audited'", "from volley.db.t version as of 'try'"]
    before = spark_sql(lake, *queries)
    (branch,) = [ref for ref in manager.branches() if ref.name == "try"]
    assert (branch.min_snapshots, branch.max_age) == (2, timedelta(days=30))
    planned = manager.expire_snapshots(AT_ONCE, dry_run=True)
    done = manager.expire_snapshots(AT_ONCE)
    assert (done.files, len(done.failed), len(done.outside)) == (planned.files, 0, 0)
    assert len(done.snapshots) >= 4
    in_order = [sorted(rows, key=repr) for rows in before]
    assert [sorted(rows, key=repr) for rows in spark_sql(lake, *queries)] == in_order
    assert by_duckdb(lake, "t") == by_pyiceberg(lake, "t") == [{"id": 7, "part": "b"}]
    tagged = lake.table("t").scan().use_ref("audited").to_arrow().to_pylist()
    assert sorted(tagged, key=repr) == in_order[1]
    left = [path for path in orphan_files(lake.config("t"), AT_ONCE) if not path.endswith(".crc")]
    assert left == []
    # Spark goes on, and what it expires, ours takes for granted.
    spark_sql(
        lake,
        "insert into volley.db.t values (8, 'b')",
        "call volley.system.expire_snapshots(table => 'db.t', older_than => timestamp '2999-01-01 00:00:00')",
    )
    assert len(manager.expire_snapshots(AT_ONCE).snapshots) == 0
    (rows, snapshots) = spark_sql(lake, "select id from volley.db.t order by id", "from volley.db.t.snapshots")
    assert [row["id"] for row in rows] == [7, 8]
    assert {snapshot.id for snapshot in manager.list_snapshots()} == {row["snapshot_id"] for row in snapshots}


def test_both_find_the_same_snapshot_at_a_time(lake: Lake) -> None:
    lake.catalog().create_table("db.t", pa.schema({"id": pa.int64()}))
    manager = SnapshotManager(lake.config("t").ref)
    for number in range(3):
        lake.table("t").append(pa.table({"id": [number]}))
    snapshots = manager.list_snapshots()
    manager.rollback_to(snapshots[0].id)
    lake.table("t").append(pa.table({"id": [9]}))
    times = [snapshot.committed_at for snapshot in snapshots[1:]]
    times += [manager.current_snapshot().committed_at]
    expected = [manager.snapshot_at_timestamp(time).id for time in times]
    queries = [f"from volley.db.t timestamp as of '{time.isoformat(sep=' ')}'" for time in times]
    ids = [sorted(row["id"] for row in rows) for rows in spark_sql(lake, *queries)]
    found = [sorted(lake.table("t").scan(snapshot_id=each).to_arrow()["id"].to_pylist()) for each in expected]
    assert ids == found == [[0, 1], [0, 1, 2], [0, 9]]


@pytest.fixture(params=[catalog for catalog in lakes.catalogs(lakes.rest) if catalog.id != "nessie"])
def of_catalog(request: pytest.FixtureRequest) -> lakes.Lake:
    made: lakes.Lake = request.param(request)
    return made


def test_every_catalog_can_do_it_all(of_catalog: lakes.Lake) -> None:
    config = of_catalog.config()
    catalog = config.ref.load_catalog()
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(config.identifier, pa.schema({"id": pa.int64()}))
    manager = SnapshotManager(config)
    ids = []
    for number in range(4):
        of_catalog.table(config).append(pa.table({"id": [number]}))
        ids.append(manager.current_snapshot().id)
    times = [snapshot.committed_at for snapshot in manager.list_snapshots()]
    manager.create_tag("first", ids[0])
    manager.create_branch("try", ids[1], min_snapshots=2)
    manager.rollback_to(ids[2])
    assert of_catalog.ids(config) == [0, 1, 2]
    assert manager.rollback_to(times[3]).id == ids[3]
    of_catalog.table(config).overwrite(pa.table({"id": [9]}))
    SchemaEvolution("id long").add("note", "string").apply(config)
    made = manager.create_snapshot({"release": "1"}, tag="release")
    assert made.summary["release"] == "1"
    planned = manager.expire_snapshots(AT_ONCE, dry_run=True)
    done = manager.expire_snapshots(AT_ONCE)
    assert (done.files, done.failed, done.outside) == (planned.files, (), ())
    assert {snapshot.id for snapshot in manager.list_snapshots()} == {ids[0], ids[1], made.id}
    assert of_catalog.rows(config) == [{"id": 9, "note": None}]
    for name, rows in (("first", [0]), ("try", [0, 1])):
        assert sorted(of_catalog.table(config).scan().use_ref(name).to_arrow()["id"].to_pylist()) == rows
    left = [path for path in orphan_files(config, AT_ONCE) if not path.endswith(".crc")]
    assert left == []
    manager.drop_tag("first")
    manager.drop_branch("try")
    assert [snapshot.id for snapshot in manager.expire_snapshots(AT_ONCE).snapshots] == ids[:2]
    assert [path for path in orphan_files(config, AT_ONCE) if not path.endswith(".crc")] == []

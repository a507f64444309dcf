"""Trino reads tables that Volley writes, and Volley reads Trino's: by a REST catalog that checks who asks, from S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.servers.seaweed import Seaweed
from tests.servers.trino import Trino, of_seaweed
from tests.services import lakes
from tests.services.every_type import ROWS, SCHEMA, in_order, with_uuid
from tests.services.lakes import Lake
from volley import Environment, IcebergSink, IcebergSinkConfig, MemorySource
from volley.iceberg import IcebergTable, Partitioning, SchemaEvolution, Upsert
from volley.iceberg.schema.types import to_iceberg_schema

pytestmark = pytest.mark.nightly

_CREATE = (
    "create table {t} (id integer, part varchar, price decimal(9, 2), at timestamp(6), "
    "seen timestamp(6) with time zone, day date, raw varbinary, tags array(varchar), "
    "place row(x integer, y varchar)) with (format = 'PARQUET', format_version = 2, partitioning = ARRAY['part'])"
)
_ROWS = (
    "select cast(id as integer), if(id % 7 = 0, null, 'p' || cast(id % 3 as varchar)), "
    "cast(id / 4.0 as decimal(9, 2)), timestamp '2026-11-01 10:00:00.123456', "
    "timestamp '2026-11-01 10:00:00.5 Europe/Berlin', date '1969-12-31', x'00ff', "
    "if(id % 4 = 1, null, array['a', null]), if(id = 2, null, cast(row(id, null) as row(x integer, y varchar))) "
    "from unnest(sequence(1, 20)) as r(id)"
)
_HISTORY = [
    f"insert into {{t}} {_ROWS}",
    "delete from {t} where id % 5 = 0",
    "update {t} set price = -price, tags = array['new'] where id % 3 = 0",
    # A row that moves to another partition.
    "update {t} set part = 'p9' where id in (1, 7)",
    "alter table {t} rename column id to key",
    "alter table {t} alter column key set data type bigint",
    "alter table {t} add column more integer",
    "alter table {t} drop column raw",
    # Without a snapshot that has the schema, Trino's next statement fails.
    "insert into {t} (key, part, more) values (29, 'p2', 9)",
    "merge into {t} t using (values (2, 0), (4, 1), (5000000000, 2)) as s(id, more) on t.key = s.id "
    "when matched and s.more = 0 then delete when matched then update set more = s.more "
    "when not matched then insert (key, part, more) values (s.id, 'p1', s.more)",
    "alter table {t} execute optimize",
    "delete from {t} where key = 8",
    # Whole files go.
    "delete from {t} where part = 'p0'",
    "alter table {t} set properties partitioning = ARRAY['bucket(key, 2)']",
    "insert into {t} (key, part) values (30, 'p1'), (31, null)",
    "delete from {t} where key in (31, 11)",
    "alter table {t} execute optimize",
]


@pytest.fixture(scope="module")
def trino(seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """Trino 476, from Maven: a gigabyte that not every machine can have, so its tests are skipped even in CI."""
    try:
        process = Trino(tmp_path_factory.mktemp("trino"), of_seaweed(seaweed))
    except (pytest.fail.Exception, TimeoutExpired) as error:
        pytest.skip(f"Trino can't be had: {error}")
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture
def lake(request: pytest.FixtureRequest) -> Lake:
    return lakes.seaweed(request)


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


def read(trino: Trino, config: IcebergSinkConfig, schema: pa.Schema) -> list[dict[str, Any]]:
    """The table's rows, structs as dicts."""
    return read_as_of(trino, f"db.{config.table}", schema)


def read_as_of(trino: Trino, version: str, schema: pa.Schema) -> list[dict[str, Any]]:
    columns = ", ".join(f'"{name}"' for name in schema.names)
    found = trino.query(f"select {columns} from {version}")
    return [{field.name: named(value, field.type) for field, value in zip(schema, row, strict=True)} for row in found]


def named(value: Any, kind: pa.DataType) -> Any:
    """A value of Trino's client, which gives the fields of a struct in their order, with their names."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: named(each, field.type) for field, each in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return {key: named(each, kind.item_type) for key, each in value.items()}
    if pa.types.is_list(kind):
        return [named(each, kind.value_type) for each in value]
    return value


def test_trino_reads_every_value_of_every_type(trino: Trino, lake: Lake, environment: Environment) -> None:
    config = lake.config()
    catalog = lake.open_plain()
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(config.identifier, with_uuid(to_iceberg_schema(SCHEMA)))
    source = MemorySource(pa.Table.from_pylist(ROWS, schema=SCHEMA), rows_per_epoch=2)
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    for got, want in zip(in_order(read(trino, config, SCHEMA)), in_order(ROWS), strict=True):
        for name in SCHEMA.names:
            assert got[name] == want[name], (name, got["id"])


def test_trino_reads_a_partitioned_table_without_the_rows_that_upserts_replaced(
    trino: Trino, lake: Lake, environment: Environment
) -> None:
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), "count": pa.int64()})
    first = [{"id": id, "city": f"c{id % 3}", "count": 0} for id in range(30)]
    second = [{"id": id, "city": f"c{id % 3}", "count": 1} for id in range(0, 40, 5)]
    rows = pa.Table.from_pylist(first + second, schema=schema)
    mode = Upsert(["id", "city"], strategy="merge_on_read")
    config = lake.config().with_commit_mode(mode).with_partitioning([Partitioning.identity("city")])
    source = MemorySource(rows, rows_per_epoch=len(first))
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    assert lake.table(config).inspect.delete_files().num_rows > 0
    expected = {row["id"]: row for row in first + second}
    assert in_order(read(trino, config, schema)) == in_order(list(expected.values()))
    of_one = trino.query(f"select count(*) from db.{config.table} where city = 'c1'")
    assert of_one == [(sum(row["city"] == "c1" for row in expected.values()),)]


def test_trino_makes_the_schema_of_the_sql(trino: Trino, lake: Lake) -> None:
    config = lake.config()
    evolution = SchemaEvolution("id int, name string, place struct<city: string, zip: int>")
    catalog = lake.open_plain()
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(config.identifier, evolution.apply())
    evolution = (
        evolution.update_type("id", "long")
        .rename("name", "full name")
        .add("at", "timestamp")
        .add("tags", "array<map<string, struct<a: date>>>")
        .add("place.land", "string")
        .drop("place.city")
    )
    for statement in evolution.statements(f"lake.db.{config.table}", "trino"):
        trino.query(statement)
    assert str(lake.table(config).schema().as_struct()) == str(evolution.apply().as_struct())


def test_each_snapshot_of_trino_has_the_rows_that_trino_reads(trino: Trino, lake: Lake) -> None:
    config = lake.config()
    lake.open_plain().create_namespace_if_not_exists("db")
    name = f"lake.db.{config.table}"
    for statement in (_CREATE, *_HISTORY):
        trino.query(statement.format(t=name))
        if "update" in statement:
            deletes = lake.table(config).inspect.delete_files().to_pylist()
            assert {(file["content"], file["file_format"]) for file in deletes} == {(1, "PARQUET")}
    ours = IcebergTable(config)
    for snapshot in (entry.snapshot_id for entry in lake.table(config).snapshots()):
        rows = ours.at(snapshot).to_arrow()
        theirs = read_as_of(trino, f"{name} for version as of {snapshot}", rows.schema)
        assert by_first(rows.to_pylist()) == by_first(theirs), snapshot
    # Those that are left, by hand: without multiples of 5, then without 2, 8, the partition p0, 31 and 11.
    left = ours.rows.select("key", "part", "more").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in by_first(left)] == [
        (1, "p9", None),
        (4, "p1", 1),
        (7, "p9", None),
        (13, "p1", None),
        (14, None, None),
        (16, "p1", None),
        (17, "p2", None),
        (19, "p1", None),
        (29, "p2", 9),
        (30, "p1", None),
        (5000000000, "p1", 2),
    ]


def by_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: next(iter(row.values())))


def test_trino_reads_appended_rows_of_format_3(trino: Trino, lake: Lake, environment: Environment) -> None:
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    rows = [{"id": id, "name": f"n{id}"} for id in range(6)]
    config = lake.config().with_table_properties({"format-version": "3"})
    source = MemorySource(pa.Table.from_pylist(rows, schema=schema), rows_per_epoch=2)
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    IcebergTable(config.ref).compact(rewrite_all=True)
    assert lake.table(config).metadata.format_version == 3
    assert in_order(read(trino, config, schema)) == rows

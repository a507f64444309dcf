"""Tables written by Volley are read back by Trino: through a REST catalog that checks who asks, from S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.servers.seaweed import Seaweed
from tests.servers.trino import Trino
from tests.services import lakes
from tests.services.every_type import ROWS, SCHEMA, in_order, with_uuid
from tests.services.lakes import Lake
from volley import Environment, IcebergSink, IcebergSinkConfig, MemorySource
from volley.iceberg import Partitioning, SchemaEvolution, Upsert
from volley.iceberg.schema.types import to_iceberg_schema

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trino(seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """Trino 470, from Maven: a gigabyte that not every machine can have, so its tests are skipped even in CI."""
    try:
        process = Trino(tmp_path_factory.mktemp("trino"), seaweed)
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
    columns = ", ".join(f'"{name}"' for name in schema.names)
    found = trino.query(f"select {columns} from db.{config.table}")
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

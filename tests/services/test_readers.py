"""Tables written by Volley are read back, value by value, by readers that others wrote."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.services.every_type import ROWS, SCHEMA, in_order, with_uuid
from tests.services.servers import iceberg_spark
from tests.services.servers.downloads import artifact, other_version
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, MemorySource
from volley.iceberg.schema import to_iceberg_schema

# Iceberg's runtime is built for this Spark, not for the one Volley runs on.
PYSPARK = "4.1.4"
JARS = {
    "iceberg-spark-1.12.0": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0:jar",
    "sqlite-jdbc-3.50.3.0": "org.xerial:sqlite-jdbc:3.50.3.0:jar",
}


@dataclass(frozen=True)
class Lake:
    """A folder with tables in a SQLite catalog, as a job has left it."""

    folder: Path

    def config(self, table: str) -> IcebergSinkConfig:
        return IcebergSinkConfig(namespace=["db"], table=table, storage=IcebergStorage.Local(self.folder))

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("volley", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}")

    def table(self, name: str) -> Table:
        return self.catalog().load_table(f"db.{name}")

    def write(self, environment: Environment, name: str, rows: pa.Table) -> None:
        """Two rows an epoch into a table whose column ``uuid`` is one."""
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("db")
        catalog.create_table(f"db.{name}", with_uuid(to_iceberg_schema(rows.schema)))
        source = MemorySource(rows, rows_per_epoch=2)
        environment.from_source(source).to_sink(IcebergSink(self.config(name))).execute(name)


@pytest.fixture(scope="module", params=[True, False], ids=["arrow-native", "general"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The table ``events`` with all types, ``spark_events`` without the one Spark lacks, and ``letters``."""
    folder = tmp_path_factory.mktemp("readers")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"), arrow_native=request.param)
    made = Lake(folder / "lake")
    (folder / "lake").mkdir()
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    # Spark has no type for the time of a day, so neither has the general path.
    spark_rows = rows.drop_columns("clock")
    made.write(environment, "events", rows if request.param else spark_rows)
    made.write(environment, "spark_events", spark_rows)
    return made


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars' native reader plans its scans by pyiceberg: its own planner is another package."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture(scope="module")
def letters(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table of dead letters."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "in.json").write_text('{"id": 1}\nnot json ☃\n{"id": "two"}\n')
    made = Lake(folder / "lake")
    config = made.config("events").with_dead_letter("letters")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    source = FileSource(str(folder / "in.json"), schema="id long")
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    return made


@pytest.fixture(scope="module")
def evolved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table with rows of two schemas."""
    folder = tmp_path_factory.mktemp("evolved")
    made = Lake(folder / "lake")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    full = made.config("evolved").with_schema_evolution("full", {"label": "name", "in.x": "y"}, ["note"])
    for name, config, rows in (("old", made.config("evolved"), OLD), ("new", full, NEW)):
        environment.from_source(MemorySource(rows)).to_sink(IcebergSink(config)).execute(name)
    return made


OLD = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "label": ["a", None],
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "real": pa.array([0.5, None], pa.float32()),
        "in": pa.array([{"x": 1}, None], pa.struct({"x": pa.int32()})),
        "all": pa.array([[{"x": 1}], []], pa.list_(pa.struct({"x": pa.int32()}))),
        "note": ["gone", "gone"],
    }
)
NEW = pa.table(
    {
        "id": pa.array([2**40]),
        "name": ["b"],
        "price": pa.array([Decimal("12345678.25")], pa.decimal128(12, 2)),
        "real": [0.1],
        "in": [{"y": 2**40, "z": "new"}],
        "all": [[{"x": 2**40, "z": "new"}]],
    }
)
SHOWN = [
    {
        "id": 1,
        "name": "a",
        "price": Decimal("1.50"),
        "real": 0.5,
        "in": {"y": 1, "z": None},
        "all": [{"x": 1, "z": None}],
    },
    {"id": 2, "name": None, "price": None, "real": None, "in": None, "all": []},
    *NEW.to_pylist(),
]


def by_pyiceberg(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table(table).scan().to_arrow().to_pylist()
    return rows


def by_duckdb(lake: Lake, table: str) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        # From PyPI: DuckDB would load them from its own site.
        for name in ("avro", "parquet", "iceberg"):
            import_extension(name, con=connection)
            connection.load_extension(name)
        connection.execute("set timezone = 'UTC'")
        where = lake.table(table).metadata_location
        rows: list[dict[str, Any]] = connection.sql(f"from iceberg_scan('{where}')").to_arrow_table().to_pylist()
        return rows


def by_polars_native(lake: Lake, table: str) -> list[dict[str, Any]]:
    return pl.scan_iceberg(lake.table(table), reader_override="native").collect().to_dicts()


def by_polars_pyiceberg(lake: Lake, table: str) -> list[dict[str, Any]]:
    return pl.scan_iceberg(lake.table(table), reader_override="pyiceberg").collect().to_dicts()


class IcebergSpark:
    """Iceberg's own runtime in a Spark of its own; one start for all that is read."""

    def __init__(self) -> None:
        jars = ",".join(str(jar) for name, where in JARS.items() for jar in artifact(name, where).glob("*.jar"))
        own = {"PYTHONPATH": str(other_version("pyspark", PYSPARK)), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "SPARK"))}
        command = [sys.executable, iceberg_spark.__file__, jars]
        self._process = subprocess.Popen(command, env={**kept, **own}, stdin=PIPE, stdout=PIPE, text=True)

    def read(self, lake: Lake, table: str) -> list[dict[str, Any]]:
        """What it reads, as the other readers give it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(f"{lake.folder}/catalog.db db.{table}", file=self._process.stdin, flush=True)
        line = next((line for line in self._process.stdout if line.startswith("FOUND ")), "it has died")
        found = pickle.loads(base64.b64decode(line.removeprefix("FOUND ")))
        assert found["snapshots"] == len(lake.table(table).snapshots())
        rows: list[dict[str, Any]] = found["rows"]
        return rows

    def stop(self) -> None:
        with self._process as process:
            process.kill()


@pytest.fixture(scope="module")
def by_spark() -> Iterator[Reader]:
    process = IcebergSpark()
    try:
        yield process.read
    finally:
        process.stop()


Reader = Callable[[Lake, str], list[dict[str, Any]]]
READERS: list[Reader | str] = [by_pyiceberg, by_duckdb, by_polars_native, by_polars_pyiceberg, "by_spark"]


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Reader:
    """Each reader in turn."""
    reader: Reader = request.getfixturevalue("by_spark") if request.param == "by_spark" else request.param
    return reader


def test_every_value_of_every_type_is_read_back(lake: Lake, read: Reader, request: pytest.FixtureRequest) -> None:
    table = "spark_events" if request.node.callspec.params["read"] == "by_spark" else "events"
    columns = lake.table(table).schema().column_names
    found, expected = in_order(read(lake, table)), in_order(ROWS)
    for got, want in zip(found, expected, strict=True):
        for name in SCHEMA.names:
            if name in columns:
                assert got[name] == want[name], (name, got["id"])
    assert len(lake.table(table).snapshots()) == 3


def test_dead_letters_are_read_back(letters: Lake, read: Reader) -> None:
    found = sorted(read(letters, "letters"), key=lambda row: str(row["payload"]))
    assert [row["payload"] for row in found] == ["not json ☃", '{"id": "two"}']
    assert all(row["error"] and row["job"] == "job" and row["epoch"] == 0 for row in found)


@pytest.mark.parametrize("read", READERS)
def test_rows_of_an_old_schema_are_read_under_the_new_one(evolved: Lake, read: Reader) -> None:
    assert in_order(read(evolved, "evolved")) == in_order(SHOWN)
    assert len(evolved.table("evolved").snapshots()) == 2

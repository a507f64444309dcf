"""Tables that Volley has written, and readers of others for them, in one form that can be compared."""

from __future__ import annotations

import atexit
import base64
import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.duck import query
from tests.servers import iceberg_spark
from tests.servers.downloads import artifact, other_version
from tests.services.every_type import with_uuid
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, MemorySource
from volley.iceberg.schema.types import to_iceberg_schema

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


def by_pyiceberg(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table(table).scan().to_arrow().to_pylist()
    return rows


def by_duckdb(lake: Lake, table: str) -> list[dict[str, Any]]:
    where = lake.table(table).metadata_location
    rows: list[dict[str, Any]] = query(f"from iceberg_scan('{where}')").to_arrow_table().to_pylist()
    return rows


def by_polars_native(lake: Lake, table: str) -> list[dict[str, Any]]:
    return pl.scan_iceberg(lake.table(table), reader_override="native").collect().to_dicts()


def by_polars_pyiceberg(lake: Lake, table: str) -> list[dict[str, Any]]:
    return pl.scan_iceberg(lake.table(table), reader_override="pyiceberg").collect().to_dicts()


def by_spark(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows, snapshots = spark_sql(lake, f"from volley.db.{table}", f"from volley.db.{table}.snapshots")
    assert len(snapshots) == len(lake.table(table).snapshots())
    return rows


def java_commit(
    table: str, deleted: list[dict[str, Any]], added: Sequence[dict[str, Any]] = (), *, partition: str | None = None
) -> dict[str, Any]:
    """A query of `spark_sql`: equality deletes, and rows, that Iceberg's Java library writes in one commit."""
    return {"table": table, "deleted": deleted, "added": added, "partition": partition}


def spark_sql(lake: Lake, *queries: str | dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of each query, by Spark with Iceberg's own runtime; one start for all that is asked."""
    process = _iceberg_spark()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([f"{lake.folder}/catalog.db", *queries]), file=process.stdin, flush=True)
    line = next((line for line in process.stdout if line.startswith("FOUND ")), "it has died")
    found: list[list[dict[str, Any]]] = pickle.loads(base64.b64decode(line.removeprefix("FOUND ")))
    return found


@cache
def _iceberg_spark() -> Popen[str]:
    jars = ",".join(str(jar) for name, where in JARS.items() for jar in artifact(name, where).glob("*.jar"))
    own = {"PYTHONPATH": str(other_version("pyspark", PYSPARK)), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "SPARK"))}
    command = [sys.executable, iceberg_spark.__file__, jars]
    process = Popen(command, env={**kept, **own}, stdin=PIPE, stdout=PIPE, text=True)
    atexit.register(process.kill)
    return process


Reader = Callable[[Lake, str], list[dict[str, Any]]]
READERS: list[Reader] = [by_pyiceberg, by_duckdb, by_polars_native, by_polars_pyiceberg, by_spark]

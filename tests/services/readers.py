"""Tables that Volley has written, and readers of others for them, in one form that can be compared."""

from __future__ import annotations

import base64
import datetime as dt
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import polars as pl
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.services.servers import iceberg_spark
from tests.services.servers.downloads import artifact, other_version
from volley import IcebergSinkConfig, IcebergStorage

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


def by_spark(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows, snapshots = spark_sql(lake, f"from volley.db.{table}", f"from volley.db.{table}.snapshots")
    assert len(snapshots) == len(lake.table(table).snapshots())
    return rows


def spark_sql(lake: Lake, *queries: str) -> list[list[dict[str, Any]]]:
    """The rows of each query, by one session of Spark with Iceberg's own runtime."""
    jars = ",".join(str(jar) for name, where in JARS.items() for jar in artifact(name, where).glob("*.jar"))
    command = [sys.executable, iceberg_spark.__file__, f"{lake.folder}/catalog.db", jars, *queries]
    own = {"PYTHONPATH": str(other_version("pyspark", PYSPARK)), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "SPARK"))}
    done = subprocess.run(command, env={**kept, **own}, capture_output=True, text=True, timeout=300, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert line, done.stderr[-3000:]
    found: list[list[dict[str, Any]]] = pickle.loads(base64.b64decode(line.removeprefix("FOUND ")))
    return found


Reader = Callable[[Lake, str], list[dict[str, Any]]]
READERS: list[Reader] = [by_pyiceberg, by_duckdb, by_polars_native, by_polars_pyiceberg, by_spark]


def plain(value: Any) -> Any:
    """A value in the one form that is compared: readers have types of their own for maps, bytes, UUIDs and zones."""
    match value:
        case bytearray():
            return bytes(value)
        case UUID():
            return value.bytes
        case dt.datetime():
            return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        case [(_, _), *_] | [{"key": _, "value": _}, *_]:
            pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in value]
            return {plain(key): plain(item) for key, item in pairs}
        case list():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()} or []
    return value


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = [plain(row) for row in rows]
    for row in made:
        if isinstance(row.get("uuid"), str):
            row["uuid"] = UUID(row["uuid"]).bytes
    return sorted(made, key=lambda row: (row.get("id", 0), row.get("payload", "")))

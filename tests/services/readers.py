"""Tables that Volley has written, and readers of others for them, in one form that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.duck import query
from tests.servers.iceberg_spark import IcebergSpark
from tests.services.every_type import with_uuid
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, MemorySource
from volley.iceberg import Append
from volley.iceberg.schema.types import to_iceberg_schema


@dataclass(frozen=True)
class Lake:
    """A folder with tables in a SQLite catalog, as a job has left it, and Spark to read and write them."""

    folder: Path
    spark: IcebergSpark

    def config(self, table: str) -> IcebergSinkConfig:
        return IcebergSinkConfig(namespace=["db"], table=table, storage=IcebergStorage.Local(self.folder))

    def appended(self, table: str) -> IcebergSinkConfig:
        """The settings of a sink that appends to a table, which it makes in format version 3."""
        return self.config(table).with_table_properties({"format-version": "3"}).with_commit_mode(Append())

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
    table: str,
    deleted: list[dict[str, Any]],
    added: Sequence[dict[str, Any]] = (),
    *,
    partition: str | None = None,
    form: str = "PARQUET",
) -> dict[str, Any]:
    """A query of `spark_sql`: equality deletes, and rows, that Iceberg's Java library writes in one commit."""
    return {"table": table, "deleted": deleted, "added": added, "partition": partition, "form": form}


def java_column(
    table: str, name: str, kind: str, default: Any, *, parent: str | None = None, required: bool = False
) -> dict[str, Any]:
    """A query of `spark_sql`: a column with a default, as JSON has it, that Iceberg's Java library adds."""
    return {"table": table, "parent": parent, "name": name, "kind": kind, "default": default, "required": required}


def spark_sql(lake: Lake, *queries: str | dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of each query, by Spark with Iceberg's own runtime."""
    return lake.spark.sql(lake.folder / "catalog.db", *queries)


Reader = Callable[[Lake, str], list[dict[str, Any]]]
READERS: list[Reader] = [by_pyiceberg, by_duckdb, by_polars_native, by_polars_pyiceberg, by_spark]

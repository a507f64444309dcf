"""DuckDB, which reads Iceberg tables by code that is neither Volley's nor pyiceberg's."""

from __future__ import annotations

from functools import cache

import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension

__all__ = ["duckdb_with_iceberg", "query"]

_registered: list[str] = []
"""What the last query named: another test must not find it."""


def query(sql: str, **tables: pa.Table) -> duckdb.DuckDBPyRelation:
    """The result of a query; `iceberg_scan` is there, and times are in UTC.

    Args:
        sql: The query.
        tables: The tables that it names. They are there until the next query.
    """
    connection = _connection()
    while _registered:
        connection.unregister(_registered.pop())
    for name, table in tables.items():
        connection.register(name, table)
        _registered.append(name)
    return connection.sql(sql)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb_with_iceberg()
    # Each query reads the files as they are now.
    connection.execute("set enable_external_file_cache = false")
    connection.execute("set timezone = 'UTC'")
    return connection


@cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """The connection of this process: to load the extensions costs more than most queries do."""
    connection = duckdb.connect()
    for name in ("avro", "parquet", "iceberg"):
        # From PyPI: DuckDB would load it from its own site.
        import_extension(name, con=connection)
        connection.load_extension(name)
    return connection

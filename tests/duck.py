"""DuckDB, which reads Iceberg tables by code that is neither Volley's nor pyiceberg's."""

from __future__ import annotations

from functools import cache

import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension

__all__ = ["query"]


def query(sql: str, **tables: pa.Table) -> duckdb.DuckDBPyRelation:
    """The result of a query; `iceberg_scan` is there, and times are in UTC.

    Args:
        sql: The query.
        tables: The tables that it names.
    """
    for name, table in tables.items():
        _connection().register(name, table)
    return _connection().sql(sql)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """The connection of this process: to load the extensions costs more than most queries do."""
    connection = duckdb.connect()
    for name in ("avro", "parquet", "iceberg"):
        # From PyPI: DuckDB would load it from its own site.
        import_extension(name, con=connection)
        connection.load_extension(name)
    # Each query reads the files as they are now.
    connection.execute("set enable_external_file_cache = false")
    connection.execute("set timezone = 'UTC'")
    return connection

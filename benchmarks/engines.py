"""Other engines in this process."""

from __future__ import annotations

from functools import cache

import duckdb
from duckdb_extensions import import_extension

__all__ = ["duckdb_with_iceberg"]


@cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """DuckDB with the extensions from PyPI: it would load them from its own site."""
    connection = duckdb.connect()
    for name in ("avro", "parquet", "iceberg"):
        import_extension(name, con=connection)
        connection.load_extension(name)
    return connection

"""A lake of a benchmark's own: a folder with a SQLite catalog, tables that Volley's sink fills without a job."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from volley import Committer, Epoch, IcebergSink, IcebergSinkConfig, IcebergStorage, Metrics, SinkContext, WriteResult

__all__ = ["QUERY", "Lake", "duckdb_with_iceberg", "open_sink", "write", "write_epoch"]

QUERY = "00000000-benchmark"
"""The query whose epochs are written."""


class Lake:
    """Tables ``b.<name>`` in a folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config = IcebergSinkConfig(namespace="b", table="t", storage=IcebergStorage.Local(str(folder)))

    def catalog(self) -> SqlCatalog:
        """Plain pyiceberg's."""
        return SqlCatalog("volley", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}")

    def table(self, name: str = "t") -> Table:
        """A table as it is now, by plain pyiceberg."""
        catalog = self.catalog()
        try:
            return catalog.load_table(("b", name))
        finally:
            catalog.close()


def open_sink(config: IcebergSinkConfig, schema: pa.Schema) -> Committer:
    """The sink as a job opens it, its table made if it is absent."""
    return IcebergSink(config).open(SinkContext("benchmark", schema, Metrics()))


def write(committer: Committer, epoch: int, batches: Iterable[pa.RecordBatch], task: int = 0) -> WriteResult:
    """What one task does with its batches."""
    writer = committer.writer(Epoch(QUERY, epoch)).open(task)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def write_epoch(config: IcebergSinkConfig, epoch: int, batches: Iterable[pa.RecordBatch]) -> None:
    """One epoch of one task, committed."""
    rest = iter(batches)
    first = next(rest)
    committer = open_sink(config, first.schema)
    committer.commit(Epoch(QUERY, epoch), [write(committer, epoch, chain([first], rest))])


@cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """DuckDB with the extensions from PyPI: it would load them from its own site."""
    connection = duckdb.connect()
    for name in ("avro", "parquet", "iceberg"):
        import_extension(name, con=connection)
        connection.load_extension(name)
    return connection

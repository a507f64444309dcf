"""The format of the files that maintenance writes: the table's settings, or else a sink's defaults."""

from __future__ import annotations

import uuid

from pyiceberg.table import Table, TableProperties

from volley.contracts.epoch import Epoch
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.table import TableRef
from volley.iceberg.write.table_format import TableFormat

__all__ = ["format_of"]


def format_of(table: Table, ref: TableRef) -> TableFormat:
    """Return the format of new files of a table.

    Raises:
        ConfigError: If a ``write.…`` property of the table has a value that can't be used; names it.
    """
    assert isinstance(ref.catalog, CatalogConfig)
    config = IcebergSinkConfig(namespace=ref.identifier[:-1], table=ref.table, storage=ref.storage, catalog=ref.catalog)
    codec = table.properties.get(TableProperties.PARQUET_COMPRESSION, config.compression).lower()
    level = number_in(table.properties, TableProperties.PARQUET_COMPRESSION_LEVEL)
    config = config.with_compression("none" if codec == "uncompressed" else codec, level)  # type: ignore[arg-type]
    return TableFormat.for_table(table, config, Epoch(str(uuid.uuid4()), 0))

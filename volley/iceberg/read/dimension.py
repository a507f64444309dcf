"""Reads an IcebergDimension: one snapshot, whatever becomes of the table meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from volley.dimension import DimensionReader, Version
from volley.iceberg.catalogs.retry import retry_reads
from volley.iceberg.read.reader import read_snapshot, table_schema
from volley.iceberg.read.scope import head_snapshot, is_pinned, pinned_snapshot
from volley.iceberg.source_config import IcebergSourceConfig

__all__ = ["IcebergDimensionReader"]

_THREADS = min(8, os.cpu_count() or 1)


class IcebergDimensionReader(DimensionReader):
    """Reads an Iceberg table; a version is a snapshot of the table with one uuid.

    Args:
        config: The table and what to read of it.

    Raises:
        VolleyError: If the table can't be read.
    """

    def __init__(self, config: IcebergSourceConfig) -> None:
        self._config = config
        self.schema = table_schema(config)

    def version(self) -> Version:
        table = retry_reads(self._config.ref.load)
        pinned = is_pinned(self._config)
        snapshot = pinned_snapshot(table, self._config) if pinned else head_snapshot(table, self._config)
        return {"table": str(table.metadata.table_uuid), "snapshot": snapshot and snapshot.snapshot_id}

    def read(self, version: Version, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if version["snapshot"] is None:
            return iter(())
        return read_snapshot(replace(self._config, columns=columns), _THREADS, version["snapshot"])[1]

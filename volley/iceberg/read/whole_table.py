"""Reads the rows of a table in this process, for people: into one Arrow table."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from volley.checks import count, optional
from volley.iceberg.read.reader import read_snapshot
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.table import TableRef

__all__ = ["THREADS", "read_now", "read_table"]

THREADS = min(8, os.cpu_count() or 1)
"""How many splits are read at the same time."""


def read_table(config: IcebergSourceConfig, limit: int | None) -> pa.Table:
    """Return the rows of a table. Raises like `read_snapshot`.

    Args:
        config: The table, and what to read of it.
        limit: The most rows, in any order; reading ends with them. None = all.
    """
    optional(count)("limit", limit)
    schema, batches = read_snapshot(config, THREADS)
    return pa.Table.from_batches(_first(batches, limit), schema)


def read_now(table: TableRef, limit: int | None) -> pa.Table:
    """Return the rows that a table has now. See `read_table`."""
    return read_table(IcebergSourceConfig(table), limit)


def _first(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, limit)
        if limit is not None:
            limit -= batch.num_rows
            if limit <= 0:
                return

"""Reads a table in this process, without a job: its rows, its columns, and what a job would read of it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue

from volley.checks import count, optional
from volley.contracts.source import SourceContext
from volley.iceberg.read.asked import plan_scan
from volley.iceberg.read.changes import change_schema
from volley.iceberg.read.history import snapshot_of
from volley.iceberg.read.reader import IcebergSplit, reader_of
from volley.iceberg.read.scope import (
    Position,
    TableLoader,
    column_names_of,
    current_snapshot,
    is_pinned,
    pinned_snapshot,
    predicate_of,
    schema_of,
    start_of,
)
from volley.iceberg.schema.types import arrow_schema, readable, rows_schema, with_included
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.table import TableRef
from volley.types.arrow import canonical_schema

__all__ = ["explain", "read_now", "read_snapshot", "read_table", "table_schema"]

# How many splits are read at the same time.
_THREADS = min(8, os.cpu_count() or 1)
_SMALL_SPLITS = 1 << 20
# Of each split that is read at the same time: enough to keep the threads busy.
_READ_AHEAD_BYTES = 32 << 20


def read_snapshot(
    config: IcebergSourceConfig, snapshot_id: int | None = None, threads: int = _THREADS
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows of a source that is read in this process, as they are now.

    Args:
        snapshot_id: The snapshot to read, with the columns that the source has now; None = the source's own.

    Raises:
        VolleyError: Like `open_reader`.
    """
    loader = TableLoader(config.ref)
    table = loader.load()
    if snapshot_id is None:
        start = start_of(table, config)
    else:
        start = Position.at_end(table, snapshot_of(table.metadata, snapshot_id, config.ref.name)).scanning()
    reader = reader_of(loader, table, config, start.to_offset(), SourceContext("", parallelism=_SMALL_SPLITS))
    splits = reader.splits_of(table, start, start.at_its_end())
    return reader.schema, _in_parallel(reader.read, splits, threads)


def _in_parallel(
    read: Callable[[IcebergSplit], Iterator[pa.RecordBatch]], splits: Sequence[IcebergSplit], threads: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all splits in their order; each thread holds a few batches of a split in memory."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(splits)
        running = deque(pool.submit(_some, read(waiting.popleft())) for _ in range(min(threads, len(waiting))))
        while running:
            batches, has_more, rest = running.popleft().result()
            if has_more:
                running.appendleft(pool.submit(_some, rest))
            elif waiting:
                running.append(pool.submit(_some, read(waiting.popleft())))
            yield from batches


def _some(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool, Iterator[pa.RecordBatch]]:
    """Return the next batches of a split, whether there may be more, and the iterator that has them."""
    some, size = [], 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= _READ_AHEAD_BYTES:
            return some, True, batches
    return some, False, batches


def table_schema(config: IcebergSourceConfig) -> pa.Schema:
    """Return the columns that the source has; writes nothing. Raises like `open_reader`."""
    table = config.ref.load()
    # A snapshot after which a stream has started may have expired since.
    schema = schema_of(table, config, pinned_snapshot(table, config).snapshot_id if is_pinned(config) else None)
    predicate_of(config, schema)
    names, known = column_names_of(config, schema), rows_schema(readable(with_included(schema, config.include)))
    follows = config.changes == "follow"
    read = canonical_schema(change_schema(known, config.sequence) if follows else arrow_schema(known))
    return pa.schema([read.field(name) for name in names])


def explain(config: IcebergSourceConfig, context: SourceContext) -> str:
    """Return what a job would read of the current or pinned snapshot. Raises like `open_reader`."""
    loader = TableLoader(config.ref)
    table = loader.load()
    snapshot = current_snapshot(table, config)
    if snapshot is None:
        return "no snapshot yet"
    reader = reader_of(loader, table, config, Position.at_end(table, snapshot).to_offset(), context)
    planned = plan_scan(config.ref, table, snapshot, reader.row_filter, reader.table_schema)
    by_partition, by_statistics = planned.skipped_by_partition, planned.skipped_by_statistics
    every = len(planned.files) + by_partition + by_statistics
    left_out = f"{by_partition:,} left out by partition, {by_statistics:,} by statistics"
    rows = "" if isinstance(reader.row_filter, AlwaysTrue) else f"; files pruned by {reader.row_filter}"
    columns = ", ".join(field.name for field in reader.rows.rows.schema.fields)
    files = f"{len(planned.files):,} of {every:,} data files ({left_out})"
    manifests = f"{planned.manifests:,} of {planned.manifests + planned.skipped_manifests:,} manifests"
    return f"snapshot {snapshot.snapshot_id}: {files}, {manifests}; columns {columns}{rows}"


def read_table(config: IcebergSourceConfig, limit: int | None) -> pa.Table:
    """Return the rows of a table. Raises like `read_snapshot`.

    Args:
        config: The table, and what to read of it.
        limit: The most rows, in any order; reading ends with them. None = all.
    """
    optional(count)("limit", limit)
    schema, batches = read_snapshot(config)
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

"""Reads an IcebergDimension: one snapshot, whatever becomes of the table meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.dimension import DimensionReader, History, Version
from volley.iceberg.catalogs.retry import retry_reads
from volley.iceberg.read.changed_files import change_splits
from volley.iceberg.read.changes import CHANGE_COLUMNS, read_changes
from volley.iceberg.read.history import oldest_of, snapshots_between
from volley.iceberg.read.lookup import snapshot_of
from volley.iceberg.read.reader import read_snapshot, table_schema
from volley.iceberg.read.rows import RowReader
from volley.iceberg.read.scope import filtered, head_snapshot, is_pinned, pinned_snapshot, predicate_of, selected
from volley.iceberg.schema.types import arrow_schema
from volley.iceberg.source_config import IcebergSourceConfig
from volley.plan.expression_nodes import column_names
from volley.types.arrow import canonical_schema

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

    def history(self, version: Version, columns: Sequence[str]) -> History:
        if version["snapshot"] is None:
            return History(iter(()), None)
        table = retry_reads(self._config.ref.load)
        end = snapshot_of(table.metadata, version["snapshot"], self._config.ref.name)
        oldest, is_first = oldest_of(table, end)
        return History(self._events(table, oldest, end, columns), None if is_first else _time(oldest))

    def _events(
        self, table: Table, oldest: Snapshot, end: Snapshot, columns: Sequence[str]
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        config, time = replace(self._config, columns=columns), _time(oldest)
        for batch in read_snapshot(config, _THREADS, oldest.snapshot_id)[1]:
            yield 1, time, batch
        predicate = predicate_of(config, table.schema())
        names = [*columns, *sorted(column_names(predicate) - {*columns})] if predicate is not None else [*columns]
        reader = RowReader.of(table.metadata, selected(table.schema(), names))
        steps = filtered(predicate, columns, canonical_schema(arrow_schema(reader.schema)))
        for snapshot in snapshots_between(table, oldest.snapshot_id, end.snapshot_id):
            # The clocks of writers differ: no snapshot is older than the one before.
            time = max(time, _time(snapshot))
            for split in change_splits(table.io, snapshot, table.metadata):
                for batch in read_changes(table.io, split, reader):
                    # A batch has changes of one kind.
                    weight = 1 if batch.column("_change")[0].as_py() == "insert" else -1
                    yield weight, time, steps(batch.drop_columns(CHANGE_COLUMNS.names))


def _time(snapshot: Snapshot) -> int:
    """Return when a snapshot was committed, in microseconds since 1970."""
    return snapshot.timestamp_ms * 1000

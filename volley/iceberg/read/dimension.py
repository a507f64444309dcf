"""Reads an IcebergDimension: one snapshot, whatever becomes of the table meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.contracts.dimension import DimensionReader, RowHistory, Version
from volley.errors import SnapshotExpiredError, SnapshotNotFoundError, SnapshotRolledBackError
from volley.iceberg.read.changed_files import ChangeSplit, change_splits
from volley.iceberg.read.changes import CHANGE_COLUMNS, read_changes, weight_of
from volley.iceberg.read.history import ancestors_of, oldest_of, snapshot_of, snapshots_between
from volley.iceberg.read.rows import RowReader
from volley.iceberg.read.scope import (
    TableLoader,
    current_snapshot,
    filtered,
    names_needed,
    predicate_of,
    selected,
)
from volley.iceberg.read.whole import read_snapshot, table_schema
from volley.iceberg.schema.types import arrow_schema, with_included
from volley.iceberg.source_config import IcebergSourceConfig
from volley.types.arrow import canonical_schema

__all__ = ["IcebergDimensionReader"]

# What tells that the snapshots between two versions are not there, or not in one line.
_NO_LINE = (SnapshotNotFoundError, SnapshotExpiredError, SnapshotRolledBackError)

# A row of a change costs about as much as two that are read: it is looked for in its bucket, which is written again.
_DEAREST = 2


class IcebergDimensionReader(DimensionReader):
    """Reads an Iceberg table; a version is a snapshot of the table with one uuid, and the oldest one of its history."""

    has_history = True

    def __init__(self, config: IcebergSourceConfig) -> None:
        self._config = config
        # One snapshot alone, as Nessie shows it, is no history.
        self.has_history = config.ref.capabilities.history is not False
        self._loader = TableLoader(config.ref)
        self.schema = table_schema(config)

    def version(self) -> Version:
        table = self._loader.load()
        snapshot = current_snapshot(table, self._config)
        *_, oldest = snapshot, *ancestors_of(snapshot, table.metadata)
        ids = {"snapshot": snapshot and snapshot.snapshot_id, "oldest": oldest and oldest.snapshot_id}
        return {"table": str(table.metadata.table_uuid), **ids}

    def read(self, version: Version, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if version["snapshot"] is None:
            return iter(())
        return read_snapshot(replace(self._config, columns=columns), version["snapshot"])[1]

    def changes(
        self, before: Version, after: Version, columns: Sequence[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]] | None:
        if (before["table"], before["snapshot"]) == (after["table"], after["snapshot"]):
            return iter(())
        table = self._loader.load()
        snapshots = _between(table, before, after)
        if snapshots is None:
            return None
        splits = [split for snapshot in snapshots for split in change_splits(table.io, snapshot, table.metadata)]
        size = _files_size(snapshots[-1]) if snapshots else 0
        if _DEAREST * sum(split.size for split in splits) > size:
            return None
        return self._changes(table, splits, columns)

    def _changes(
        self, table: Table, splits: Sequence[ChangeSplit], columns: Sequence[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        predicate = predicate_of(self._config, table.schema())
        schema = with_included(table.schema(), self._config.include)
        reader = RowReader.of(table.metadata, selected(schema, names_needed(columns, predicate)))
        steps = filtered(predicate, columns, canonical_schema(arrow_schema(reader.schema)))
        for split in splits:
            for batch in read_changes(table.io, split, reader):
                yield weight_of(batch), steps(batch.drop_columns(CHANGE_COLUMNS.names))

    def history(self, version: Version, columns: Sequence[str]) -> RowHistory:
        if version["snapshot"] is None:
            return RowHistory(iter(()), None)
        table = self._loader.load()
        end = snapshot_of(table.metadata, version["snapshot"], self._config.ref.name)
        oldest, is_first = oldest_of(table, end)
        if oldest.snapshot_id != version["oldest"]:
            raise SnapshotNotFoundError(
                f"the history of table {self._config.ref.name} began with snapshot {version['oldest']}, and begins "
                f"with snapshot {oldest.snapshot_id} now",
                hint="keep snapshots longer than a job may stop",
            )
        return RowHistory(self._events(table, _line(table, oldest, end), columns), None if is_first else _time(oldest))

    def later_history(
        self, before: Version, after: Version, columns: Sequence[str]
    ) -> Iterator[tuple[int, int, pa.RecordBatch]] | None:
        if after["oldest"] is None or before.get("oldest") != after["oldest"]:
            return None
        table = self._loader.load()
        if _between(table, before, after) is None:
            return None
        oldest, end = (
            snapshot_of(table.metadata, after[name], self._config.ref.name) for name in ("oldest", "snapshot")
        )
        line = _line(table, oldest, end)
        start = next(place for place, (snapshot, _) in enumerate(line) if snapshot.snapshot_id == before["snapshot"])
        return self._later(table, line[start + 1 :], columns)

    def _events(
        self, table: Table, line: Sequence[tuple[Snapshot, int]], columns: Sequence[str]
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        oldest, time = line[0]
        for batch in read_snapshot(replace(self._config, columns=columns), oldest.snapshot_id)[1]:
            yield 1, time, batch
        yield from self._later(table, line[1:], columns)

    def _later(
        self, table: Table, line: Sequence[tuple[Snapshot, int]], columns: Sequence[str]
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        for snapshot, time in line:
            splits = change_splits(table.io, snapshot, table.metadata)
            for weight, batch in self._changes(table, splits, columns):
                yield weight, time, batch


def _between(table: Table, before: Version, after: Version) -> list[Snapshot] | None:
    """Return the snapshots after one version up to another; None if they are not known, or the columns have changed."""
    uuid, start, end = str(table.metadata.table_uuid), before["snapshot"], after["snapshot"]
    if {before["table"], after["table"]} != {uuid} or start is None or end is None:
        return None
    try:
        first, snapshots = snapshot_of(table.metadata, start, uuid), snapshots_between(table, start, end)
    except _NO_LINE:
        return None
    schemas = {snapshot.schema_id for snapshot in (first, *snapshots)}
    return snapshots if schemas == {table.metadata.current_schema_id} else None


def _line(table: Table, oldest: Snapshot, end: Snapshot) -> list[tuple[Snapshot, int]]:
    """Return the snapshots from the oldest one to the end, each with its time.

    The clocks of writers differ: no snapshot is older than the one before.
    """
    snapshots = [oldest, *snapshots_between(table, oldest.snapshot_id, end.snapshot_id)]
    return list(zip(snapshots, accumulate(map(_time, snapshots), max), strict=True))


def _files_size(snapshot: Snapshot) -> int:
    """Return the size of all files in bytes, as the snapshot's writer says."""
    text = snapshot.summary.get("total-files-size") if snapshot.summary else None
    return int(text) if text and text.isdecimal() else 0


def _time(snapshot: Snapshot) -> int:
    """Return when a snapshot was committed, in microseconds since 1970."""
    return snapshot.timestamp_ms * 1000

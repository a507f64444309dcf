"""The states of a table as full extracts: the current snapshot, then each new one, by the times of their commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from volley.columns.snapshots import PRESENT
from volley.contracts.extracts import Extract, Extracts
from volley.contracts.source import Split, SplitReader
from volley.iceberg.read.history import ancestors_of, snapshot_of
from volley.iceberg.read.reader import IcebergReader
from volley.iceberg.read.scope import Position, current_snapshot
from volley.iceberg.source_config import IcebergSourceConfig

__all__ = ["TableExtracts"]


@dataclass(frozen=True)
class TableExtracts(Extracts):
    """Lists a table's snapshots.

    Args:
        reader: Reads its files.
    """

    config: IcebergSourceConfig
    reader: IcebergReader

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    @property
    def version(self) -> str:
        return str(PRESENT.name)

    @property
    def version_type(self) -> pa.DataType:
        return PRESENT.type

    def listed(self, since: int | None) -> Sequence[Extract]:
        table = self.config.ref.load()
        with self.config.ref.errors():
            snapshots = _dated(table, current_snapshot(table, self.config))
        new = [pair for pair in snapshots if since is None or pair[0] >= since]
        # An overwrite may delete all rows in a snapshot of its own.
        new = [pair for pair in new if pair is new[-1] or not _is_empty(pair[1])]
        return [
            Extract(time, str(snapshot.snapshot_id), f"snapshot {snapshot.snapshot_id} of {self.config.ref.name}")
            for time, snapshot in (new if since is not None else new[-1:])
        ]

    def splits(self, version: int, proof: str, place: Mapping[str, Any]) -> list[Split]:
        table = self.config.ref.load()
        start = Position.at_end(table, snapshot_of(table.metadata, int(proof), self.config.ref.name)).scanning()
        return list(self.reader.splits_of(table, start, start.at_its_end()))

    def size(self, split: Split) -> int | None:
        return self.reader.size(split)

    def split_reader(self) -> SplitReader:
        return self.reader.split_reader()


def _is_empty(snapshot: Snapshot) -> bool:
    """Return True if a snapshot's writer says that it has no rows."""
    return snapshot.summary is not None and snapshot.summary.get("total-records") == "0"


def _dated(table: Table, last: Snapshot | None) -> list[tuple[int, Snapshot]]:
    """Return the snapshots up to one that may have changed rows, oldest first, with their times in microseconds.

    The clocks of writers differ: each snapshot is later than the one before.
    """
    line = [*ancestors_of(last, table.metadata)][::-1]
    times = accumulate((snapshot.timestamp_ms * 1000 for snapshot in line), lambda before, at: max(before + 1, at))
    return [
        (time, snapshot)
        for time, snapshot in zip(times, line, strict=True)
        if snapshot.summary is None or snapshot.summary.operation != Operation.REPLACE
    ]

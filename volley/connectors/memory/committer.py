"""Runs a MemorySink: tasks send their batches to the driver as Arrow streams; each epoch becomes a table there."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, Writer
from volley.task.writers import MemoryWriter, table_of

__all__ = ["MemoryCommitter", "concatenate"]


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables, with the columns of all of them."""
    return pa.concat_tables(tables, promote_options="permissive")


class MemoryCommitter(Committer):
    """Stores each epoch as a table in this process, among those of the sink."""

    can_clear = True

    def __init__(self, epochs: dict[Epoch, pa.Table], schema: pa.Schema) -> None:
        self._epochs = epochs
        self._schema = schema

    def __str__(self) -> str:
        return "memory"

    def last_epoch(self, query_id: str) -> int | None:
        return max((epoch.number for epoch in self._epochs if epoch.query_id == query_id), default=None)

    def landed_offsets(self, epoch: Epoch) -> str | None:
        return next((landed.offsets for landed in self._epochs if landed == epoch), None)

    def clear(self) -> None:
        self._epochs.clear()

    def writer(self, epoch: Epoch) -> Writer:
        return MemoryWriter()

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        self._epochs[epoch] = table_of(results, self._schema)

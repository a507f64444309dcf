"""Sorts the rows that a task writes to a sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from volley.columns.dictionaries import decode_rows
from volley.columns.keys.order import SortKey, sort_indices
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter
from volley.store.rows import RowStore, merged, one_bucket

__all__ = ["SortedRows"]

_RUN_BYTES = 64 << 20
_BATCH_ROWS = 65_536


class SortedRows(TaskWriter):
    """Passes a task's rows on in order, once it has all of them.

    Rows are collected up to `run_bytes` and sorted into a run on local disk, so that a task holds two runs in memory at
    most, and the columns to sort by of all rows while it merges the runs.

    Args:
        writer: Gets the rows.
        keys: What to sort by.
        batch_size: The most rows that the writer gets at once; None = 65,536.
        run_bytes: The size of a run in Arrow bytes.
    """

    def __init__(
        self, writer: TaskWriter, keys: Sequence[SortKey], batch_size: int | None, run_bytes: int = _RUN_BYTES
    ) -> None:
        self._writer = writer
        self._keys = keys
        self._batch_size = batch_size or _BATCH_ROWS
        self._rows = RowStore(run_bytes, lambda rows: one_bucket(rows.take(sort_indices(rows, keys))))

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.check(batch)

    def rejected(self, error: Exception) -> None:
        self._writer.rejected(error)

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows.append(decode_rows(batch))

    def close(self) -> WriteResult:
        for rows in self._sorted():
            for start in range(0, rows.num_rows, self._batch_size):
                self._writer.write(rows.slice(start, self._batch_size))
        return self._writer.close()

    def abort(self) -> None:
        self._writer.abort()

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        runs = self._rows.read(0)
        if len(runs) < 2:
            yield from runs
            return
        columns = [name for name, _ in self._keys]
        order = sort_indices(pa.Table.from_batches([run.select(columns) for run in runs]), self._keys)
        yield from merged(runs, order.to_numpy().astype(np.int64), self._batch_size)

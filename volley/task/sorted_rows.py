"""Sorts the rows that a task writes to a sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from volley.arrow.dictionaries import decode_rows
from volley.arrow.keys.order import SortKey, sort_indices
from volley.epoch import WriteResult
from volley.errors import StorageError
from volley.sink import TaskWriter
from volley.storage.local import local_folder
from volley.task.runs import merged, on_disk

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
        self._run_bytes = run_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[pa.RecordBatch] = []

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.check(batch)

    def rejected(self, error: Exception) -> None:
        self._writer.rejected(error)

    def write(self, batch: pa.RecordBatch) -> None:
        batch = decode_rows(batch)
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._run_bytes:
            self._runs.append(_spilled(self._next_run()))

    def close(self) -> WriteResult:
        if self._waiting:
            self._runs.append(self._next_run())
        for rows in self._sorted():
            for start in range(0, rows.num_rows, self._batch_size):
                self._writer.write(rows.slice(start, self._batch_size))
        self._runs = []
        return self._writer.close()

    def abort(self) -> None:
        self._writer.abort()

    def _next_run(self) -> pa.RecordBatch:
        rows = pa.concat_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        return rows.take(sort_indices(rows, self._keys))

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        if len(self._runs) < 2:
            yield from self._runs
            return
        columns = [name for name, _ in self._keys]
        order = sort_indices(pa.Table.from_batches([run.select(columns) for run in self._runs]), self._keys)
        yield from merged(self._runs, order.to_numpy().astype(np.int64), self._batch_size)


def _spilled(rows: pa.RecordBatch) -> pa.RecordBatch:
    folder = local_folder()
    try:
        return on_disk(rows, folder)
    except OSError as error:
        raise StorageError(
            f"rows can't be sorted on the local disk {folder}: {error}",
            hint="make room there, then start the job again",
        ) from error

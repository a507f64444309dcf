"""Writers of a task: they send rows to the driver, sort them, or divide them among other tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

import numpy as np
import pyarrow as pa

from volley.columns.dictionaries import decode_rows
from volley.columns.keys.buckets import Divided, buckets_of, divided
from volley.columns.keys.order import SortKey, sort_indices
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.store.rows import RowStore, merged, one_bucket

__all__ = ["Exchange", "MemoryTaskWriter", "MemoryWriter", "SortedRows", "table_of"]

_WAITING_BYTES = 16 << 20
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_RUN_BYTES = 64 << 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Exchange:
    """Divides the rows for one sink.

    Args:
        tasks: The number of tasks that write them.
        keys: Rows with equal values in these columns go to one task; none = all tasks get as many rows.
    """

    tasks: int
    keys: tuple[str, ...]

    def open(self, writer: Writer, task: int) -> TaskWriter:
        """Return the writer of a task that reads: it keeps rows for others, and only checks them by the sink's own."""
        return _Divider(self, writer.open(task), task)

    def divide(self, rows: pa.RecordBatch, turn: int) -> Divided:
        """Divide rows among the tasks that write: buckets are tasks.

        Args:
            turn: Without keys: the task that gets the first rows.
        """
        if self.tasks == 1:
            return one_bucket(rows)
        if not self.keys:
            tasks = [(turn + number) % self.tasks for number in range(self.tasks)]
            return Divided(rows, tasks, np.linspace(0, rows.num_rows, self.tasks + 1).astype(int).tolist())
        keys = [rows.column(name) for name in self.keys]
        return divided(rows, buckets_of(keys, self.tasks, rows.num_rows))


class _Collected(TaskWriter):
    """Collects rows that the sink's own writer has checked."""

    def __init__(self, writer: TaskWriter, rows: RowStore) -> None:
        self._writer = writer
        self._rows = rows

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.check(batch)

    def rejected(self, error: Exception) -> None:
        self._writer.rejected(error)

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows.append(decode_rows(batch))

    def abort(self) -> None:
        self._writer.abort()


class _Divider(_Collected):
    def __init__(self, exchange: Exchange, writer: TaskWriter, task: int) -> None:
        turns = count(task)
        rows = RowStore(_WAITING_BYTES, lambda rows: exchange.divide(rows, next(turns)), compressed=True)
        super().__init__(writer, rows)

    def close(self) -> WriteResult:
        self._writer.abort()
        return WriteResult(committables=(_streams(self._rows),))


def _streams(rows: RowStore) -> Iterator[tuple[int, bytes]]:
    """Yield for each task that writes Arrow streams of its rows."""
    for task in rows.buckets:
        for batch in filter(len, rows.read(task)):
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, batch.schema, options=_LZ4) as writer:
                writer.write_batch(batch)
            yield task, stream.getvalue().to_pybytes()


class SortedRows(_Collected):
    """Passes a task's rows on in order, once it has all of them.

    Rows are collected up to `run_bytes` and sorted into a run on local disk, so that a task holds two runs in memory at
    most, and the columns to sort by of all rows while it merges the runs.

    Args:
        writer: Gets the rows.
        batch_size: The most rows that the writer gets at once; None = 65,536.
        run_bytes: The size of a run in Arrow bytes.
    """

    def __init__(
        self, writer: TaskWriter, keys: Sequence[SortKey], batch_size: int | None, run_bytes: int = _RUN_BYTES
    ) -> None:
        super().__init__(writer, RowStore(run_bytes, lambda rows: one_bucket(rows.take(sort_indices(rows, keys)))))
        self._keys = keys
        self._batch_size = batch_size or _BATCH_ROWS

    def close(self) -> WriteResult:
        for rows in self._sorted():
            for start in range(0, rows.num_rows, self._batch_size):
                self._writer.write(rows.slice(start, self._batch_size))
        return self._writer.close()

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        runs = self._rows.read(0)
        if len(runs) < 2:
            yield from runs
            return
        columns = [name for name, _ in self._keys]
        order = sort_indices(pa.Table.from_batches([run.select(columns) for run in runs]), self._keys)
        yield from merged(runs, order.to_numpy().astype(np.int64), self._batch_size)


def table_of(results: Sequence[WriteResult], schema: pa.Schema) -> pa.Table:
    """Return the rows that MemoryWriters have sent to the driver."""
    streams = [stream for result in results for stream in result.committables]
    return pa.Table.from_batches([batch for stream in streams for batch in pa.ipc.open_stream(stream)], schema)


class MemoryWriter(Writer):
    """Opens task writers that send their rows to the driver."""

    suits_driver: ClassVar[bool] = True

    def open(self, task: int) -> MemoryTaskWriter:
        return MemoryTaskWriter()


class MemoryTaskWriter(TaskWriter):
    """Collects a task's batches and sends them to the driver as one Arrow stream."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._result = WriteResult()
        self._began = time.perf_counter()

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        if not self._batches:
            return WriteResult()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        data = sink.getvalue().to_pybytes()
        seconds = time.perf_counter() - self._began
        return replace(self._result, bytes=len(data), seconds=seconds, committables=(data,))

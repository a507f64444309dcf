"""Divides the rows of an epoch's first tasks among others, which write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from volley.columns.dictionaries import decode_rows
from volley.columns.keys.buckets import Divided, buckets_of, divided
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.store.rows import RowStore, one_bucket

__all__ = ["Exchange"]

_WAITING_BYTES = 16 << 20
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


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
            rows: The rows.
            turn: Without keys: the task that gets the first rows.
        """
        if self.tasks == 1:
            return one_bucket(rows)
        if not self.keys:
            tasks = [(turn + number) % self.tasks for number in range(self.tasks)]
            return Divided(rows, tasks, np.linspace(0, rows.num_rows, self.tasks + 1).astype(int).tolist())
        keys = [rows.column(name) for name in self.keys]
        return divided(rows, buckets_of(keys, self.tasks, rows.num_rows))


class _Divider(TaskWriter):
    def __init__(self, exchange: Exchange, writer: TaskWriter, task: int) -> None:
        self._writer = writer
        turns = count(task)
        self._rows = RowStore(_WAITING_BYTES, lambda rows: exchange.divide(rows, next(turns)), compressed=True)

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.check(batch)

    def rejected(self, error: Exception) -> None:
        self._writer.rejected(error)

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows.append(decode_rows(batch))

    def close(self) -> WriteResult:
        self._writer.abort()
        return WriteResult(committables=(_streams(self._rows),))

    def abort(self) -> None:
        self._writer.abort()


def _streams(rows: RowStore) -> Iterator[tuple[int, bytes]]:
    """Yield for each task that writes Arrow streams of its rows."""
    for task in rows.buckets:
        for batch in filter(len, rows.read(task)):
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, batch.schema, options=_LZ4) as writer:
                writer.write_batch(batch)
            yield task, stream.getvalue().to_pybytes()

"""Divides the rows of an epoch's first tasks among others, which write them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

import numpy as np
import pyarrow as pa

from volley.arrow.dictionaries import decode_rows
from volley.arrow.keys.buckets import buckets_of
from volley.epoch import WriteResult
from volley.errors import StorageError
from volley.sink import TaskWriter, Writer
from volley.storage.local import local_folder

__all__ = ["DividedRows", "Exchange"]

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

    def parts(self, batch: pa.RecordBatch, turn: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each task that writes, with its number, from 0.

        Args:
            batch: The rows.
            turn: Without keys: the task that gets the first rows.
        """
        if self.tasks == 1:
            yield 0, batch
        elif self.keys:
            tasks = buckets_of([batch.column(name) for name in self.keys], self.tasks, batch.num_rows)
            for task in np.unique(tasks).tolist():
                yield task, batch.take(pa.array(np.flatnonzero(tasks == task)))
        else:
            bounds = np.linspace(0, batch.num_rows, self.tasks + 1).astype(int).tolist()
            for number, (start, end) in enumerate(pairwise(bounds)):
                if start < end:
                    yield (turn + number) % self.tasks, batch.slice(start, end - start)


class DividedRows:
    """The rows that a task has for others: Arrow streams in a local file without a name, read once."""

    def __init__(self) -> None:
        self._folder = local_folder()
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        self._places: list[tuple[int, int]] = []

    def add(self, task: int, rows: pa.RecordBatch) -> None:
        """Keep rows for a task.

        Raises:
            StorageError: If the local disk is full.
        """
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema, options=_LZ4) as writer:
            writer.write_batch(rows)
        data = stream.getvalue()
        try:
            self._file.write(data)
        except OSError as error:
            raise StorageError(
                f"rows for other tasks can't be kept on the local disk {self._folder}: {error}",
                hint="make room there, then start the job again",
            ) from error
        self._places.append((task, data.size))

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        for task, size in self._places:
            yield task, self._file.read(size)
        self.close()

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


class _Divider(TaskWriter):
    def __init__(self, exchange: Exchange, writer: TaskWriter, turn: int) -> None:
        self._exchange = exchange
        self._writer = writer
        self._turn = turn
        self._rows = DividedRows()

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.check(batch)

    def rejected(self, error: Exception) -> None:
        self._writer.rejected(error)

    def write(self, batch: pa.RecordBatch) -> None:
        for task, rows in self._exchange.parts(decode_rows(batch), self._turn):
            self._rows.add(task, rows)
        self._turn += 1

    def close(self) -> WriteResult:
        self._writer.abort()
        return WriteResult(committables=(self._rows,))

    def abort(self) -> None:
        self._rows.close()
        self._writer.abort()

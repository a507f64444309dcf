"""How a MemorySink commits: batches travel to the driver as Arrow streams, and each epoch becomes a table there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from volley.sink import Committer, Epoch, TaskWriter, Writer, WriteResult

__all__ = ["MemoryCommitter", "MemoryTaskWriter", "MemoryWriter", "table_of", "united"]


def united(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables, with the columns of all."""
    return pa.concat_tables(tables, promote_options="permissive")


def table_of(results: Sequence[WriteResult], schema: pa.Schema) -> pa.Table:
    """The rows that MemoryWriters have sent to the driver."""
    streams = [stream for result in results for stream in result.committables]
    return pa.Table.from_batches([batch for stream in streams for batch in pa.ipc.open_stream(stream)], schema)


class MemoryCommitter(Committer):
    def __init__(self, epochs: dict[Epoch, pa.Table], schema: pa.Schema) -> None:
        self._epochs = epochs
        self._schema = schema

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


class MemoryWriter(Writer):
    """Sends the rows to the driver."""

    def open(self, task: int) -> MemoryTaskWriter:
        return MemoryTaskWriter()


class MemoryTaskWriter(TaskWriter):
    """Collects batches; they travel to the driver as one Arrow stream."""

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

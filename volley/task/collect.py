"""Sends the rows of tasks to the driver as Arrow streams, for sinks that live in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer

__all__ = ["MemoryTaskWriter", "MemoryWriter", "table_of"]


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

"""How a FunctionSink calls its function: in the tasks, or on the driver with all rows of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.connectors._memory_committer import MemoryWriter, table_of
from volley.connectors.function import FunctionSink
from volley.sink import Committer, Epoch, TaskWriter, Writer, WriteResult

__all__ = ["FunctionCommitter"]


@dataclass(frozen=True)
class FunctionCommitter(Committer):
    """Calls the function of `sink` with rows of `schema`."""

    sink: FunctionSink
    schema: pa.Schema

    def writer(self, epoch: Epoch) -> Writer:
        return MemoryWriter() if self.sink.on_driver else _FunctionWriter(self.sink, epoch)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        if self.sink.on_driver and any(result.rows for result in results):
            self.sink.call(table_of(results, self.schema), epoch)


@dataclass(frozen=True)
class _FunctionWriter(Writer):
    sink: FunctionSink
    epoch: Epoch

    def open(self, task: int) -> TaskWriter:
        return _FunctionTaskWriter(self.sink, self.epoch)


class _FunctionTaskWriter(TaskWriter):
    def __init__(self, sink: FunctionSink, epoch: Epoch) -> None:
        self._sink = sink
        self._epoch = epoch
        self._result = WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.call(batch, self._epoch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        return self._result

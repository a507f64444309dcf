"""Runs a FunctionSink: calls its function in the tasks, or on the driver with all rows of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from volley.columns.user_code import failed
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, TaskWriter, Writer
from volley.task.collect import MemoryWriter, table_of

__all__ = ["FunctionCommitter"]


@dataclass(frozen=True)
class NamedFunction:
    """A user's function, with its name for errors."""

    name: str
    function: Callable[[Any, Epoch], object]

    def __call__(self, rows: pa.RecordBatch | pa.Table, epoch: Epoch) -> None:
        """Call the function.

        Raises:
            JobError: If the function raises; names the line in the user's code.
        """
        try:
            self.function(rows, epoch)
        except Exception as error:
            raise failed(self.name, error, f"{rows.num_rows} rows of epoch {epoch.number}") from error


@dataclass(frozen=True)
class FunctionCommitter(Committer):
    """Calls a function with the rows, which have the columns of `schema`, on the driver or in the tasks."""

    function: NamedFunction
    on_driver: bool
    schema: pa.Schema

    def __str__(self) -> str:
        return self.function.name

    def writer(self, epoch: Epoch) -> Writer:
        return MemoryWriter() if self.on_driver else _FunctionWriter(self.function, epoch)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        if self.on_driver and any(result.rows for result in results):
            self.function(table_of(results, self.schema), epoch)


@dataclass(frozen=True)
class _FunctionWriter(Writer):
    function: NamedFunction
    epoch: Epoch

    def open(self, task: int) -> TaskWriter:
        return _FunctionTaskWriter(self.function, self.epoch)


class _FunctionTaskWriter(TaskWriter):
    def __init__(self, function: NamedFunction, epoch: Epoch) -> None:
        self._function = function
        self._epoch = epoch
        self._result = WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        self._function(batch, self._epoch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        return self._result

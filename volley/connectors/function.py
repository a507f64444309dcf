"""FunctionSink: calls a Python function, for targets without a sink of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.checks import flag, function, keep
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, Sink, SinkContext, TaskWriter, Writer
from volley.html_table import settings_html

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FunctionSink"]


@dataclass(frozen=True)
class FunctionSink(Sink):
    """Calls a function with the rows, at least once.

    After a crash the epoch is repeated, and Spark retries failed tasks: both call the function again with the same
    rows. For exactly once, store the epoch's `query_id` and `number` with the rows, in the same transaction, and skip
    an epoch that is already stored.

    Args:
        function: Called with a `pyarrow.RecordBatch` and the `Epoch`, on the executors, so it must be picklable. With
            `on_driver` it is called once per epoch that has rows, with a `pyarrow.Table` of all of them.
        on_driver: True: call it on the driver. All rows are sent there, so use it for few rows.

    Raises:
        ConfigError: If `function` is not callable.

    Example:
        >>> seen = []
        >>> sink = FunctionSink(lambda rows, epoch: seen.append((epoch.number, rows.num_rows)), on_driver=True)
    """

    function: Callable[[Any, Epoch], object]
    on_driver: bool = False

    def __post_init__(self) -> None:
        keep(self, on_driver=flag)
        function("for example FunctionSink(lambda batch, epoch: print(batch.num_rows))")("function", self.function)

    @property
    def label(self) -> str:
        """The sink's name in metrics and errors, with the function's name."""
        return f"FunctionSink({getattr(self.function, '__qualname__', type(self.function).__name__)})"

    def open(self, context: SinkContext) -> Committer:
        return _FunctionCommitter(_NamedFunction(self.label, self.function), self.on_driver, context.schema)

    def __repr__(self) -> str:
        return self.label

    _repr_html_ = settings_html


@dataclass(frozen=True)
class _NamedFunction:
    """A user's function, with its name for errors."""

    name: str
    function: Callable[[Any, Epoch], object]

    def __call__(self, rows: pa.RecordBatch | pa.Table, epoch: Epoch) -> None:
        """Call the function; raise JobError, with the line in the user's code, if it raises."""
        from volley.columns.user_code import failed

        try:
            self.function(rows, epoch)
        except Exception as error:
            raise failed(self.name, error, f"{rows.num_rows} rows of epoch {epoch.number}") from error


@dataclass(frozen=True)
class _FunctionCommitter(Committer):
    """Calls a function with rows of a schema: in the tasks, or on the driver with all rows of an epoch."""

    function: _NamedFunction
    on_driver: bool
    schema: pa.Schema

    def __str__(self) -> str:
        return self.function.name

    def writer(self, epoch: Epoch) -> Writer:
        from volley.task.writers import MemoryWriter

        return MemoryWriter() if self.on_driver else _FunctionWriter(self.function, epoch)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        from volley.task.writers import table_of

        if self.on_driver and any(result.rows for result in results):
            self.function(table_of(results, self.schema), epoch)


@dataclass(frozen=True)
class _FunctionWriter(Writer):
    function: _NamedFunction
    epoch: Epoch

    def open(self, task: int) -> TaskWriter:
        return _FunctionTaskWriter(self.function, self.epoch)


class _FunctionTaskWriter(TaskWriter):
    def __init__(self, function: _NamedFunction, epoch: Epoch) -> None:
        self._function = function
        self._epoch = epoch
        self._result = WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        self._function(batch, self._epoch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        return self._result

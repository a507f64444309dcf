"""FunctionSink: calls a Python function, for targets without a sink of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.checks import flag, keep
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.errors import ConfigError

if TYPE_CHECKING:
    from volley.contracts.epoch import Epoch

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
        if not callable(self.function):
            raise ConfigError(
                f"FunctionSink takes a function, not {type(self.function).__name__}",
                hint="for example FunctionSink(lambda batch, epoch: print(batch.num_rows))",
            )

    @property
    def label(self) -> str:
        """The sink's name in metrics and errors, with the function's name."""
        return f"FunctionSink({getattr(self.function, '__qualname__', type(self.function).__name__)})"

    def open(self, context: SinkContext) -> Committer:
        from volley.connectors.function.committer import FunctionCommitter, NamedFunction

        return FunctionCommitter(NamedFunction(self.label, self.function), self.on_driver, context.schema)

    def __repr__(self) -> str:
        return self.label

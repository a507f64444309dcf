"""A sink that calls a Python function: for targets that Volley has no sink for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.checks import flag, keep
from volley.errors import ConfigError
from volley.sink import Committer, Sink, SinkContext

if TYPE_CHECKING:
    from volley.epoch import Epoch

__all__ = ["FunctionSink"]


@dataclass(frozen=True)
class FunctionSink(Sink):
    """Calls a function with the rows: at least once.

    An epoch that is repeated after a crash, and a task that Spark tries again, call it again with the same rows. A
    target that must have each row once can keep the epoch's `query_id` and `number` beside the rows, in the same
    transaction, and leave out what it has.

    Args:
        function: Called with a `pyarrow.RecordBatch` and the `Epoch`, on the executors, so it must be picklable; with
            `on_driver` called once an epoch that has rows, with a `pyarrow.Table` of all of them.
        on_driver: True calls it on the driver: for few rows, which all travel there.

    Raises:
        ConfigError: If `function` can't be called.

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
        """The function's name."""
        return f"FunctionSink({getattr(self.function, '__qualname__', type(self.function).__name__)})"

    def open(self, context: SinkContext) -> Committer:
        from volley.connectors.function.committer import FunctionCommitter, NamedFunction

        return FunctionCommitter(NamedFunction(self.label, self.function), self.on_driver, context.schema)

    def __repr__(self) -> str:
        return self.label

"""MemorySink: rows collected on the driver, for tests, examples and notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.checks import keep, text
from volley.epoch import Epoch
from volley.errors import ConfigError
from volley.sink import Committer, Sink, SinkContext

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MemorySink"]


@dataclass(frozen=True)
class MemorySink(Sink):
    """Rows collected on the driver, where `rows` and `table` show them; they live as long as the sink.

    Args:
        name: What tells it from others; sinks of one name are equal but collect by themselves.

    Example:
        >>> MemorySink("out").rows()
        []
    """

    name: str = "memory"
    _epochs: dict[Epoch, pa.Table] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        keep(self, name=text)

    def open(self, context: SinkContext) -> Committer:
        from volley.connectors.memory.committer import MemoryCommitter

        return MemoryCommitter(self._epochs, context.schema)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all epochs so far, epoch by epoch; a date beyond the years 1 to 9999 is text."""
        from volley.arrow.python_values import readable_rows

        return [row for table in list(self._epochs.values()) for row in readable_rows(table)]

    def table(self) -> pa.Table:
        """The rows as an Arrow table; if jobs with different columns have filled it, with the columns of all.

        Raises:
            ConfigError: If there was no epoch yet, so that the schema is not known.
        """
        from volley.connectors.memory.committer import united

        tables = list(self._epochs.values())
        if not tables:
            raise ConfigError(f"{self!r} has no rows yet", hint="run the pipeline first")
        return united(tables)

    def clear(self) -> None:
        """Forget the rows, not which epochs there were."""
        for epoch, table in list(self._epochs.items()):
            self._epochs[epoch] = table.slice(0, 0)

    def __repr__(self) -> str:
        return f"MemorySink({self.name!r})"

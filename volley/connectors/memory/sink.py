"""MemorySink: collects rows on the driver, for tests, examples and notebooks."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.checks import count, keep, optional, text
from volley.columns.rows import Rows
from volley.contracts.epoch import Epoch
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MemorySink"]

_SHOWN_ROWS = 10


@dataclass(frozen=True)
class MemorySink(Sink, Rows):
    """Collects rows on the driver: `rows` and `table` return them. They live as long as the sink.

    Args:
        name: The sink's name; two sinks of one name are equal, but each collects its own rows.

    Raises:
        ConfigError: If `name` is empty.

    Example:
        >>> MemorySink("out").rows()
        []
    """

    has_table = True

    name: str = "memory"
    _epochs: dict[Epoch, pa.Table] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        keep(self, name=text)

    def open(self, context: SinkContext) -> Committer:
        from volley.connectors.memory.committer import MemoryCommitter

        return MemoryCommitter(self._epochs, context.schema)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all epochs so far, in the order of the epochs.

        A date or time outside the years 1 to 9999 is returned as text.
        """
        from volley.columns.readable import readable_rows

        return [row for table in list(self._epochs.values()) for row in readable_rows(table)]

    def table(self) -> pa.Table:
        """Return the rows as an Arrow table; if jobs had different columns, it has all of them.

        Raises:
            ConfigError: If no epoch has been committed yet, so that the schema is unknown.
        """
        from volley.connectors.memory.committer import concatenate

        tables = list(self._epochs.values())
        if not tables:
            raise ConfigError(f"{self!r} has no rows yet", hint="run the pipeline first")
        return concatenate(tables)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows as an Arrow table. Raises like `table`.

        Args:
            limit: The most rows; None = all.
        """
        return self.table().slice(0, optional(count)("limit", limit))

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        from volley.columns.show import html_rows

        title = f"<b>{html.escape(repr(self))}</b>"
        return title + (html_rows(self.table(), _SHOWN_ROWS) if self._epochs else " no rows yet")

    def clear(self) -> None:
        """Delete the rows, but remember which epochs were committed."""
        for epoch, table in list(self._epochs.items()):
            self._epochs[epoch] = table.slice(0, 0)

    def __repr__(self) -> str:
        return f"MemorySink({self.name!r})"

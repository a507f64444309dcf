"""Rows in memory as a source and as a sink: for tests, examples and notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley._checks import count, keep, optional, text
from volley._types import schema_setting
from volley.connectors._memory_rows import ABORT, EOF, Marker, checked
from volley.errors import ConfigError
from volley.sink import Committer, Epoch, Sink, SinkContext
from volley.source import Reader, Source, SourceContext

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ABORT", "EOF", "MemorySink", "MemorySource"]


@dataclass(frozen=True, repr=False)
class MemorySource(Source):
    """Rows given as Python values or Arrow data; bounded.

    Args:
        rows: Dicts (with ABORT and EOF between them, if wanted), a `pyarrow.Table`, one or more
            `pyarrow.RecordBatch`, or a frame of pandas (NaN is null, an index with a name a column) or polars.
        schema: Their columns; None = taken from the Arrow data or frame, or inferred from the dicts.
        rows_per_epoch: The most rows of one epoch; None = all.
        name: What tells it from other sources in memory: a checkpoint is bound to it.

    Raises:
        ConfigError: If `rows` are no rows, `schema` is no schema, or `rows_per_epoch` is not positive.

    Example:
        >>> MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)
        MemorySource(2 rows)
    """

    rows: Any = field(hash=False)
    schema: Any = None
    rows_per_epoch: int | None = None
    name: str = "memory"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", checked(self.rows))
        keep(self, schema=optional(schema_setting), rows_per_epoch=optional(count), name=text)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"memory:{self.name}"

    def preview(self, context: SourceContext) -> pa.Schema:
        return self.open(context).schema

    def open(self, context: SourceContext) -> Reader:
        """Make one Arrow table of the rows.

        Raises:
            SourceError: If the rows do not fit one schema; names the column.
        """
        from volley.connectors._memory_reader import MemoryReader, tabled

        table, markers = tabled(self.rows, self.schema)
        return MemoryReader(table, table.schema, markers, self.identity, context.state, self.rows_per_epoch)

    def __repr__(self) -> str:
        if isinstance(self.rows, tuple):
            count = sum(getattr(row, "num_rows", 1) for row in self.rows if not isinstance(row, Marker))
        else:
            count = self.rows.num_rows
        return f"MemorySource({count} row{'' if count == 1 else 's'})"


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
        from volley.connectors._memory_committer import MemoryCommitter

        return MemoryCommitter(self._epochs, context.schema)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all epochs so far, epoch by epoch; a date beyond the years 1 to 9999 is text."""
        from volley._readable import readable_rows

        return [row for table in list(self._epochs.values()) for row in readable_rows(table)]

    def table(self) -> pa.Table:
        """The rows as an Arrow table; if jobs with different columns have filled it, with the columns of all.

        Raises:
            ConfigError: If there was no epoch yet, so that the schema is not known.
        """
        from volley.connectors._memory_committer import united

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

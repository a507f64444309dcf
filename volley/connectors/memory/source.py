"""Rows in memory as a source and as a sink: for tests, examples and notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.checks import count, keep, optional, text
from volley.connectors.memory.rows import ABORT, EOF, Marker, checked
from volley.source import Reader, Source, SourceContext
from volley.types.schemas import schema_setting

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ABORT", "EOF", "MemorySource"]


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
        from volley.connectors.memory.reader import MemoryReader, tabled

        table, markers = tabled(self.rows, self.schema)
        return MemoryReader(table, table.schema, markers, self.identity, context.state, self.rows_per_epoch)

    def __repr__(self) -> str:
        if isinstance(self.rows, tuple):
            count = sum(getattr(row, "num_rows", 1) for row in self.rows if not isinstance(row, Marker))
        else:
            count = self.rows.num_rows
        return f"MemorySource({count} row{'' if count == 1 else 's'})"

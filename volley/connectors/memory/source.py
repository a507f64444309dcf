"""MemorySource: rows of this process, for tests, examples and notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.checks import count, keep, optional, text
from volley.connectors.memory.rows import ABORT, EOF, Marker, checked
from volley.contracts.source import Reader, Source, SourceContext
from volley.types.schemas import schema_setting

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.types.names import SchemaLike

__all__ = ["ABORT", "EOF", "MemorySource"]


@dataclass(frozen=True, repr=False)
class MemorySource(Source):
    """Reads rows given as Python values or Arrow data; bounded.

    Args:
        rows: Dicts (optionally with ABORT and EOF between them), a `pyarrow.Table`, one or more
            `pyarrow.RecordBatch`, a pandas or polars DataFrame, anything else with ``__arrow_c_stream__`` (a relation
            of DuckDB), or a generator of dicts, which is read at once. In pandas, NaN is null and a named index is
            a column.
        schema: The columns: a text such as ``"id long, name string"``, a dict of names and types, a dataclass, a
            pydantic model or a `pyarrow.Schema`. None = those of the Arrow data or DataFrame, or inferred from the
            dicts.
        rows_per_epoch: The maximum number of rows per epoch; None = all rows in one epoch.
        name: The source's name: a checkpoint is bound to it.

    Raises:
        ConfigError: If `rows` or `schema` has a wrong type, or `rows_per_epoch` is not positive.

    Example:
        >>> MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)
        MemorySource(2 rows)
    """

    rows: Any = field(hash=False)
    schema: SchemaLike | None = None
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
        """Convert the rows to one Arrow table, and return its reader.

        Raises:
            SourceError: If the rows don't fit one schema; names the column.
        """
        from volley.connectors.memory.reader import MemoryReader, to_table

        table, markers = to_table(self.rows, self.schema)
        return MemoryReader(table, table.schema, markers, self.identity, context.state, self.rows_per_epoch)

    def __repr__(self) -> str:
        if isinstance(self.rows, tuple):
            count = sum(getattr(row, "num_rows", 1) for row in self.rows if not isinstance(row, Marker))
        else:
            count = self.rows.num_rows
        return f"MemorySource({count} row{'' if count == 1 else 's'})"

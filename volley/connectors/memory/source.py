"""MemorySource: rows of this process, for tests, examples and notebooks; MemoryDimension: the same, to be joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

from volley.checks import count, keep, optional, text
from volley.contracts.dimension import Dimension, DimensionReader
from volley.contracts.source import Reader, Source, SourceContext
from volley.errors import ConfigError
from volley.html_table import text_html
from volley.types.schemas import column_names, schema_setting

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.types.names import SchemaLike

__all__ = ["ABORT", "EOF", "Marker", "MemoryDimension", "MemorySource"]


class Marker(Enum):
    """Markers between the rows of a MemorySource, for tests; modelled on bytewax's TestingSource."""

    ABORT = "ABORT"
    EOF = "EOF"

    def __repr__(self) -> str:
        return self.value


ABORT = Marker.ABORT
"""Makes the epoch that has it fail once, after its rows; later runs with the same checkpoint ignore it."""

EOF = Marker.EOF
"""Ends this run of the source; the next run with the same checkpoint starts with the rows after it."""

_FEW_ROWS = 1000
_NAME = "memory"


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
            dicts. A column or field that it lacks is an error.
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
    name: str = _NAME

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _checked(self.rows))
        keep(self, schema=optional(schema_setting), rows_per_epoch=optional(count), name=text)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"memory:{self.name}"

    def is_small(self) -> bool:
        # A dict or a marker is one row, a batch has many.
        parts = self.rows if isinstance(self.rows, tuple) else (self.rows,)
        return len(parts) <= _FEW_ROWS and sum(getattr(part, "num_rows", 1) for part in parts) <= _FEW_ROWS

    def preview(self, context: SourceContext) -> pa.Schema:
        return self.open(context).schema

    def open(self, context: SourceContext) -> Reader:
        """Convert the rows to one Arrow table, and return its reader.

        Raises:
            SourceError: If the rows don't fit one schema; names the column.
        """
        from volley.connectors.memory.reader import Markers, MemoryReader, to_table

        rows, ends, aborts = _separated(self.rows)
        table, markers = to_table(rows, self.schema), Markers(ends, aborts)
        return MemoryReader(table, table.schema, markers, self.identity, context.state, self.rows_per_epoch)

    def __repr__(self) -> str:
        if isinstance(self.rows, tuple):
            count = sum(getattr(row, "num_rows", 1) for row in self.rows if not isinstance(row, Marker))
        else:
            count = self.rows.num_rows
        return f"MemorySource({count} row{'' if count == 1 else 's'})"

    _repr_html_ = text_html


@dataclass(frozen=True, repr=False)
class MemoryDimension(Dimension):
    """The rows of a MemorySource, for small tables that change with the program."""

    source: MemorySource

    @property
    def identity(self) -> str:
        # Of several tables without a name each has other columns.
        return self.source.identity if self.source.name != _NAME else f"{self.source.identity}: {_columns(self.source)}"

    @property
    def earlier_identity(self) -> str | None:
        # Until 0.2.0 a job could join one table without a name.
        return self.source.identity if self.source.name == _NAME else None

    @property
    def selection(self) -> str:
        # Other rows are another version.
        return ""

    def open(self) -> DimensionReader:
        from volley.connectors.memory.reader import MemoryDimensionReader, to_table

        rows, _, _ = _separated(self.source.rows)
        return MemoryDimensionReader(to_table(rows, self.source.schema))

    def __repr__(self) -> str:
        return repr(self.source)


def _columns(source: MemorySource) -> list[str]:
    """Return the names of a source's columns; of rows without a schema, those of all rows."""
    if source.schema is not None:
        return column_names(source.schema)
    rows = source.rows if isinstance(source.rows, tuple) else (source.rows,)
    names = (row.schema.names if _is_arrow(row) else row for row in rows if not isinstance(row, Marker))
    return list(dict.fromkeys(chain.from_iterable(names)))


def _is_arrow(value: Any) -> bool:
    """Return True for an Arrow table or batch; checks the module's name, so that pyarrow is not imported."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def _checked(rows: Any) -> Any:
    """Return a table or batch unchanged, a pandas or polars frame as a table, and other rows as a tuple of copies."""
    if _is_arrow(rows):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        from volley.connectors.memory.reader import table_from_frame

        return table_from_frame(rows)
    if isinstance(rows, Mapping | str | bytes | type) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"rows are of type {type(rows).__name__}",
            hint="give a list of dicts, a pyarrow.Table, or a pandas or polars DataFrame",
        )
    rows = tuple(dict(row) if isinstance(row, Mapping) else row for row in rows)
    for row in rows:
        if not isinstance(row, dict | Marker) and not _is_arrow(row):
            raise ConfigError(f"a row is of type {type(row).__name__}", hint='rows are dicts: [{"id": 1}, {"id": 2}]')
    are_arrow = [_is_arrow(row) for row in rows]
    if any(are_arrow) and not all(are_arrow):
        raise ConfigError("Arrow data stands among dicts or markers", hint="give only dicts, or only batches")
    return rows


def _separated(rows: Any) -> tuple[Any, tuple[int, ...], tuple[tuple[int, bool], ...]]:
    """Return rows without markers, and the positions of these, as `Markers` has them."""
    if not isinstance(rows, tuple):
        return rows, (), ()
    data = [row for row in rows if not isinstance(row, Marker)]
    ends: list[int] = []
    aborts: list[tuple[int, bool]] = []
    position = len(data)
    is_last = True
    # In reverse order, so that what follows an ABORT is known.
    for row in reversed(rows):
        if row is EOF:
            ends.append(position)
            is_last = True
        elif row is ABORT:
            aborts.insert(0, (position, is_last))
        else:
            position -= 1
            is_last = False
    return data, tuple(ends), tuple(aborts)

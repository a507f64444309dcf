"""Checks the rows of a MemorySource, and the markers between them, without importing Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from volley.errors import ConfigError

__all__ = ["ABORT", "EOF", "Marker", "checked"]


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


def _is_arrow(value: Any) -> bool:
    """Return True for an Arrow table or batch; checks the module's name, so that pyarrow is not imported."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def checked(rows: Any) -> Any:
    """Return a table or batch unchanged, a pandas or polars frame as a table, and other rows as a tuple of copies.

    Args:
        rows: The rows as the user gave them.

    Raises:
        ConfigError: If `rows` is anything else.
    """
    if _is_arrow(rows):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        from volley.connectors.memory.table import table_from_frame

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

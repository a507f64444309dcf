"""What a MemorySource is given, checked and made unchangeable: rows, and the markers between them. Needs no Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from volley.errors import ConfigError

__all__ = ["ABORT", "EOF", "Marker", "checked"]


class Marker(Enum):
    """What may stand between the rows of a MemorySource, to test what happens there (after bytewax's TestingSource)."""

    ABORT = "ABORT"
    EOF = "EOF"

    def __repr__(self) -> str:
        return self.value


ABORT = Marker.ABORT
"""The epoch that has it fails, once, after its rows; later runs with the same checkpoint pass over it."""

EOF = Marker.EOF
"""The source ends here for this run; the next run with the same checkpoint goes on behind it."""


def _is_arrow(value: Any) -> bool:
    """True for a table or batch; asked without importing Arrow, since who has one has imported it."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def checked(rows: Any) -> Any:
    """A table or batch as it is, a frame of pandas or polars as a table, other rows as a tuple that nobody changes.

    Args:
        rows: What somebody gave as rows.

    Raises:
        ConfigError: If it is anything else.
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
    found = [_is_arrow(row) for row in rows]
    if any(found) and not all(found):
        raise ConfigError("Arrow data stands among dicts or markers", hint="give only dicts, or only batches")
    return rows

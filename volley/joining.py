"""Checks the arguments of `DataStream.join`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from volley.checks import names, of_type, one_of, optional
from volley.connectors.memory.dimension import MemoryDimension
from volley.connectors.memory.source import MemorySource
from volley.dimension import Dimension
from volley.errors import ConfigError
from volley.plan.joins import How, TableJoin

__all__ = ["MAX_BYTES", "table_join"]

MAX_BYTES = 256 << 20
"""The most bytes of a joined table by default; each process that joins maps them, and a machine has them once."""

# A column of texts in one Arrow batch has offsets of 31 bits.
_LARGEST = (1 << 31) - 1


def table_join(
    table: Any,
    on: str | Sequence[str] | Mapping[str, str],
    how: How,
    as_of: tuple[str, str] | None,
    columns: Sequence[str] | None,
    suffix: str,
    max_bytes: int,
) -> TableJoin:
    """Return the join of a stream with a table; `DataStream.join` describes the arguments.

    Raises:
        ConfigError: If an argument is wrong.
    """
    one_of(("inner", "left"))("how", how)
    of_type(str, 'suffix="_customer"')("suffix", suffix)
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or not 0 < max_bytes <= _LARGEST:
        raise ConfigError(f"max_bytes {max_bytes!r} is not valid", hint=f"1 to {_LARGEST}; by default {MAX_BYTES}")
    chosen = optional(names)("columns", columns)
    if chosen is not None and (not chosen or len(set(chosen)) < len(chosen)):
        raise ConfigError(
            f"columns are {columns!r}", hint="name each column of the table once; None = all but its keys"
        )
    return TableJoin(_dimension(table), _keys(on), how, _as_of(as_of), chosen, suffix, max_bytes)


def _keys(on: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in names("on", on))
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise ConfigError(
            f"join on {on!r}", hint='on="id", on=["id", "country"], or on={"the stream\'s": "the table\'s"}'
        )
    return pairs


def _as_of(as_of: Any) -> tuple[str, str] | None:
    if as_of is None:
        return None
    if not isinstance(as_of, tuple) or len(as_of) != 2 or not all(isinstance(name, str) for name in as_of):
        raise ConfigError(f"as_of is {as_of!r}", hint='the stream\'s time and the table\'s: as_of=("at", "valid_from")')
    return as_of


def _dimension(table: Any) -> Dimension:
    if isinstance(table, MemorySource):
        return MemoryDimension(table)
    from volley.iceberg.dimension import iceberg_dimension

    dimension = iceberg_dimension(table)
    if dimension is None:
        raise ConfigError(
            f"a stream is joined with a table, not with {type(table).__name__}",
            hint='IcebergTable(TableRef("db", "customers", storage)), or a MemorySource for rows of this program',
        )
    return dimension

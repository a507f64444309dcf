"""Checks the arguments of `DataStream.join`: with a table, and with another stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from volley.checks import Duration, duration_or_zero, names, of_type, one_of, optional
from volley.connectors.memory.source import MemoryDimension, MemorySource
from volley.contracts.dimension import Dimension
from volley.errors import ConfigError
from volley.plan.joins import How, StreamJoin, TableJoin
from volley.plan.windows import Timing

__all__ = ["MAX_AHEAD", "MAX_BYTES", "check_untimed", "stream_join", "table_join"]

MAX_BYTES = 256 << 20
"""The most bytes of a joined table in memory by default; each process that joins maps them, a machine has them once."""

MAX_AHEAD = timedelta(days=1)
"""How far ahead of the clock a row may be by default."""

# A column of texts in one Arrow batch has offsets of 31 bits.
_LARGEST = (1 << 31) - 1


def table_join(
    table: Any,
    on: str | Sequence[str] | Mapping[str, str],
    how: How,
    as_of: tuple[str, str] | str | None,
    columns: Sequence[str] | None,
    suffix: str,
    max_bytes: int,
) -> TableJoin:
    """Return the join of a stream with a table; `DataStream.join` describes the arguments.

    Raises:
        ConfigError: If an argument is wrong.
    """
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or not 0 < max_bytes <= _LARGEST:
        raise ConfigError(f"max_bytes {max_bytes!r} is not valid", hint=f"1 to {_LARGEST}; by default {MAX_BYTES}")
    by_key = _by_key(on, how, columns, suffix)
    return TableJoin(**by_key, table=_dimension(table), as_of=_as_of(as_of), max_bytes=max_bytes)


def stream_join(
    on: str | Sequence[str] | Mapping[str, str],
    how: How,
    as_of: tuple[str, str] | str | None,
    max_bytes: int,
    within: Duration | tuple[Duration, Duration] | None,
    time: str | tuple[str, str] | None,
    columns: Sequence[str] | None,
    suffix: str,
    timing: Timing,
) -> StreamJoin:
    """Return the join of a stream with another one; `DataStream.join` describes the arguments.

    Raises:
        ConfigError: If an argument is wrong.
    """
    if as_of is not None or max_bytes != MAX_BYTES:
        raise ConfigError(
            f"a join with a stream has as_of={as_of!r}, max_bytes={max_bytes!r}",
            hint='these are for a table; a stream is joined within a bound of time: within="10m", time="at"',
        )
    by_key = _by_key(on, how, columns, suffix)
    before, after = _spans(within)
    return StreamJoin(**by_key, times=_times(time), before=before, after=after, timing=timing)


def check_untimed(within: Any, time: Any, timing: Timing) -> None:
    """Raise ConfigError if a join with a table has settings of one with a stream."""
    wrong = [repr(value) for value in (within, time) if value is not None]
    if wrong or timing != Timing(max_ahead=MAX_AHEAD):
        raise ConfigError(
            f"a join with a table has a bound of time: {', '.join(wrong) or timing}",
            hint="within=, time=, lateness= and so on are for a stream: environment.from_source(…); a table is joined "
            'as of a time: as_of=("at", "valid_from")',
        )


def _by_key(
    on: str | Sequence[str] | Mapping[str, str], how: How, columns: Sequence[str] | None, suffix: str
) -> dict[str, Any]:
    """Return the checked arguments of a `KeyJoin`."""
    one_of(("inner", "left"))("how", how)
    of_type(str, 'suffix="_customer"')("suffix", suffix)
    chosen = optional(names)("columns", columns)
    if chosen is not None and (not chosen or len(set(chosen)) < len(chosen)):
        raise ConfigError(
            f"columns are {columns!r}", hint="name each column of the right side once; None = all but its keys"
        )
    return {"on": _keys(on), "how": how, "columns": chosen, "suffix": suffix}


def _spans(within: Any) -> tuple[timedelta, timedelta]:
    """Return how much earlier, and how much later, a row of the other side may be."""
    if within is None:
        raise ConfigError(
            "a join of two streams has no bound of time",
            hint='within="10m", the most time between two rows that match; or how much earlier and later than the '
            'stream\'s row the other one may be: within=("0s", "10m")',
        )
    spans = within if isinstance(within, tuple) else (within, within)
    if len(spans) != 2:
        raise ConfigError(f"within is {within!r}", hint='one span, or two: within=("0s", "10m")')
    return duration_or_zero("within", spans[0]), duration_or_zero("within", spans[1])


def _times(time: Any) -> tuple[str, str]:
    times = (time, time) if isinstance(time, str) else time
    if not isinstance(times, tuple) or len(times) != 2 or not all(isinstance(name, str) and name for name in times):
        raise ConfigError(
            f"time is {time!r}", hint='the time columns of both sides: time="at", or time=("at", "paid_at")'
        )
    return times


def _keys(on: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in names("on", on))
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise ConfigError(
            f"join on {on!r}", hint='on="id", on=["id", "country"], or on={"the stream\'s": "the table\'s"}'
        )
    return pairs


def _as_of(as_of: Any) -> tuple[str, str] | str | None:
    if as_of is None or (isinstance(as_of, str) and as_of):
        return as_of
    if not isinstance(as_of, tuple) or len(as_of) != 2 or not all(isinstance(name, str) for name in as_of):
        raise ConfigError(
            f"as_of is {as_of!r}",
            hint='the stream\'s time and the table\'s: as_of=("at", "valid_from"); or the stream\'s: as_of="at"',
        )
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

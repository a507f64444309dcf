"""Warns, once, of what Debezium may have made up."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from volley.formats.changes.wire import Wire

__all__ = ["warn_of_defaults", "warn_of_zeros", "warn_once"]

_log = logging.getLogger(__name__)


def warn_of_zeros(keys: Sequence[pa.Array]) -> None:
    """Warn of deletions whose key is zero or empty, as it is made up where the identity lacks the primary key.

    Args:
        keys: The columns of the key, of deletions.
    """
    if keys and len(keys[0]) and all(_has_zero(values) for values in keys):
        warn_once(
            "a deletion has a key of zeros or empty texts: if the table has REPLICA IDENTITY USING INDEX, or NOTHING, "
            "Debezium makes the key up, and the row that was deleted stays"
        )


def warn_of_defaults(wires: Mapping[str, Wire], snapshot: pa.Array | None) -> None:
    """Warn of columns of which a null may be written as their default.

    Args:
        snapshot: ``source.snapshot`` of messages. Its own default is "false", which streamed messages have only if
            defaults are written.
    """
    columns = [name for name, wire in wires.items() if wire.has_default]
    if columns and snapshot is not None and pc.any(pc.equal(snapshot, "false")).as_py():
        warn_once(
            f"columns {', '.join(map(repr, columns[:10]))} have defaults, which Kafka Connect's converter writes for "
            "nulls too: value.converter.replace.null.with.default=false has it write nulls"
        )


@lru_cache(maxsize=100)
def warn_once(message: str) -> None:
    """Log a warning, if this process has not logged it yet."""
    _log.warning(message)


def _has_zero(values: pa.Array) -> bool:
    if pa.types.is_integer(values.type):
        return bool(pc.any(pc.equal(values, 0)).as_py())
    return pa.types.is_string(values.type) and bool(pc.any(pc.equal(values, "")).as_py())

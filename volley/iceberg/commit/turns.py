"""Lets the commits of one process to a table take turns: those of epochs and of maintenance don't conflict."""

from __future__ import annotations

from threading import RLock

from volley.iceberg.table import TableRef

__all__ = ["turn"]

_locks: dict[tuple[str, str], RLock] = {}


def turn(table: TableRef) -> RLock:
    """Return the lock of a table; whoever holds it from the loading of the metadata to the commit meets no conflict.

    Reentrant, since a commit can nest in another.

    Args:
        table: The table, on any branch.
    """
    # `setdefault` is atomic.
    return _locks.setdefault((table.address, table.name), RLock())

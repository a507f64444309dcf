"""The snapshot that a branch stands at."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

__all__ = ["head_of"]


def head_of(table: Table, branch: str) -> Snapshot | None:
    """The snapshot that the next one of a branch is made from: a new branch begins where main is."""
    if branch in table.metadata.refs:
        return table.metadata.snapshot_by_name(branch)
    return table.current_snapshot()

"""Finds the snapshot that the next one of a branch is based on."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

__all__ = ["head_of"]


def head_of(table: Table, branch: str) -> Snapshot | None:
    """Return the snapshot that the next one of a branch is based on; for a new branch, main's last snapshot."""
    if branch in table.metadata.refs:
        return table.metadata.snapshot_by_name(branch)
    return table.current_snapshot()

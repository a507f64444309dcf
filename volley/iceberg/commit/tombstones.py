"""Commits tombstones to their branch, with the epoch that they belong to."""

from __future__ import annotations

from pyiceberg.table import Transaction
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from volley.iceberg.commit.loop import new_snapshot_id, write_manifests
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.upsert.tombstones import tombstone_branch
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["forget", "remember"]

_FOR_EVER = 2**63 - 1
_MARK = "volley.tombstones"
"""In a snapshot's summary: it has the tombstones of this branch."""


def remember(transaction: Transaction, changes: SnapshotFiles, branch: str) -> None:
    """Add the tombstones of an epoch to those of a branch, and remove what it forgets."""
    name, snapshot_id = tombstone_branch(branch), new_snapshot_id()
    is_new = name not in transaction.table_metadata.refs
    files = SnapshotFiles(changes.tombstones, removed=changes.forgotten)
    write_manifests(transaction, files, snapshot_id, {_MARK: branch}, name, apart=True)
    if is_new:
        # Whoever expires snapshots keeps the last one, for as long as the table is there.
        kept = {"max-ref-age-ms": _FOR_EVER, "max-snapshot-age-ms": 1, "min-snapshots-to-keep": 1}
        head = {"ref-name": name, "type": "branch", "snapshot-id": snapshot_id}
        stage(transaction, SetSnapshotRefUpdate.model_validate({**head, **kept}))


def forget(transaction: Transaction, branch: str) -> None:
    """Remove all tombstones of a branch, if it has any."""
    name = tombstone_branch(branch)
    if name in transaction.table_metadata.refs:
        stage(transaction, RemoveSnapshotRefUpdate.model_validate({"ref-name": name}))

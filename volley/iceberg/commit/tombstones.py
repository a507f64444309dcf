"""Commits tombstones to their branch, with the epoch that they belong to."""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableRequirement

from volley.iceberg.commit.loop import new_snapshot_id, unchanged, write_manifests
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.upsert.tombstones import tombstone_branch
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["as_settled", "forget", "remember"]

_FOR_EVER = 2**63 - 1
_MARK = "volley.tombstones"
"""In a snapshot's summary: it has the tombstones of this branch."""


def as_settled(table: Table, branch: str) -> list[TableRequirement]:
    """Return the requirements that both a branch and its tombstones are as an epoch was settled for.

    An epoch that changes only one of them must not land after a change of the other.
    """
    refs = table.metadata.refs
    # The first snapshot of a table is main's: none can have tombstones before it.
    names = (branch, tombstone_branch(branch)) if table.metadata.snapshots else (MAIN_BRANCH,)
    return [unchanged(name, refs[name].snapshot_id if name in refs else None) for name in names]


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

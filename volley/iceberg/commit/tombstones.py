"""Commits tombstones to their branch, with the epoch that they belong to."""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from volley.iceberg.commit.loop import new_snapshot_id, unchanged, write_manifests
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.upsert.tombstones import tombstone_branch, tombstones_start
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["as_settled", "forgetting", "published", "remember"]

_FOR_EVER = 2**63 - 1
_READ_FOR = 600_000
"""How long expiry leaves the tombstones of before, in milliseconds: other jobs may be settling an epoch by them."""
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
    origin = tombstones_start(transaction.table_metadata, branch)
    files = SnapshotFiles(changes.tombstones, removed=changes.forgotten)
    write_manifests(transaction, files, snapshot_id, {_MARK: branch}, name, origin=origin)
    if is_new:
        stage(transaction, _head(name, snapshot_id))


def _head(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    # Whoever expires snapshots keeps the last one, for as long as the table is there.
    kept = {"max-ref-age-ms": _FOR_EVER, "max-snapshot-age-ms": _READ_FOR, "min-snapshots-to-keep": 1}
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": "branch", "snapshot-id": snapshot_id, **kept})


def forgetting(metadata: TableMetadata, branch: str) -> list[TableUpdate]:
    """Return the updates that remove all tombstones of a branch; none if it has none."""
    name = tombstone_branch(branch)
    return [RemoveSnapshotRefUpdate.model_validate({"ref-name": name})] if name in metadata.refs else []


def published(metadata: TableMetadata, source: str, target: str) -> list[SetSnapshotRefUpdate]:
    """Return the update by which a branch takes the tombstones of another with its rows; none if it has them."""
    ours, theirs = (metadata.refs.get(tombstone_branch(branch)) for branch in (target, source))
    if theirs is None or (ours and ours.snapshot_id == theirs.snapshot_id):
        return []
    return [_head(tombstone_branch(target), theirs.snapshot_id)]

"""Commits tombstones to their branch, with the epoch that they belong to."""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from volley.contracts.epoch import Epoch
from volley.errors import CommitConflictError
from volley.iceberg.commit.loop import unchanged, write_manifests
from volley.iceberg.commit.marks import snapshot_id_of
from volley.iceberg.modes import KeyedMode
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.upsert.tombstones import (
    REMEMBERED_BY,
    TOMBSTONES,
    remembered_by,
    remembers,
    tombstone_branch,
    tombstones_start,
)
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["as_settled", "begins", "forgetting", "published", "remember", "tombstones_with"]

_FOR_EVER = 2**63 - 1
_READ_FOR = 600_000
"""How long expiry leaves the tombstones of before, in milliseconds: other jobs may be settling an epoch by them."""
_INCLUDES = "volley.tombstones-include"
"""In the summary of tombstones of another branch than main: the snapshot of those of main that they include."""
_PART = "-tombstones"


def as_settled(table: Table, branch: str) -> list[TableRequirement]:
    """Return the requirements that both a branch and its tombstones are as an epoch was settled for.

    An epoch that changes only one of them must not land after a change of the other.
    """
    refs = table.metadata.refs
    # The first snapshot of a table is main's: none can have tombstones before it.
    names = (branch, tombstone_branch(branch)) if table.metadata.snapshots else (MAIN_BRANCH,)
    return [unchanged(name, refs[name].snapshot_id if name in refs else None) for name in names]


def begins(metadata: TableMetadata, branch: str) -> bool:
    """Return True if a branch has to note which of main's tombstones it begins with."""
    return branch != MAIN_BRANCH and bool(metadata.snapshots) and not remembers(metadata, branch)


def remember(transaction: Transaction, changes: SnapshotFiles, branch: str, mode: KeyedMode, epoch: Epoch) -> None:
    """Add the tombstones of an epoch to those of a branch, and remove what it forgets."""
    metadata, name = transaction.table_metadata, tombstone_branch(branch)
    snapshot_id = snapshot_id_of(metadata.table_uuid, epoch, _PART)
    is_new, origin = name not in metadata.refs, tombstones_start(metadata, branch)
    files = SnapshotFiles(changes.tombstones, removed=changes.forgotten)
    summary = {TOMBSTONES: branch, REMEMBERED_BY: remembered_by(mode, metadata.schema())} | _beginning(metadata, branch)
    write_manifests(transaction, files, snapshot_id, summary, name, origin=origin)
    if is_new:
        stage(transaction, _head(name, snapshot_id))


def _beginning(metadata: TableMetadata, branch: str) -> dict[str, str]:
    """Return which of main's tombstones those of another branch are known to include."""
    if branch == MAIN_BRANCH:
        return {}
    ours, mains = (metadata.snapshot_by_name(tombstone_branch(name)) for name in (branch, MAIN_BRANCH))
    if ours is None or (mains and mains.snapshot_id == ours.snapshot_id):
        return {_INCLUDES: str(mains.snapshot_id if mains else None)}
    return {_INCLUDES: _included(ours)}


def _included(tombstones: Snapshot) -> str:
    return str(tombstones.summary[_INCLUDES]) if tombstones.summary and _INCLUDES in tombstones.summary else ""


def tombstones_with(metadata: TableMetadata, epoch: Epoch) -> Snapshot | None:
    """Return the snapshot with the tombstones of an epoch; None if it has none."""
    return metadata.snapshot_by_id(snapshot_id_of(metadata.table_uuid, epoch, _PART))


def _head(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    # Whoever expires snapshots keeps the last one, for as long as the table is there.
    kept = {"max-ref-age-ms": _FOR_EVER, "max-snapshot-age-ms": _READ_FOR, "min-snapshots-to-keep": 1}
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": "branch", "snapshot-id": snapshot_id, **kept})


def forgetting(metadata: TableMetadata, branch: str) -> list[TableUpdate]:
    """Return the updates that remove all tombstones of a branch; none if it has none."""
    removal = RemoveSnapshotRefUpdate.model_validate({"ref-name": tombstone_branch(branch)})
    return [removal] if remembers(metadata, branch) else []


def published(metadata: TableMetadata, source: str, target: str) -> list[SetSnapshotRefUpdate]:
    """Return the update by which a branch takes the tombstones of another with its rows; none if it has them.

    Raises:
        CommitConflictError: If it has remembered others since.
    """
    ours, theirs = (
        metadata.snapshot_by_name(tombstone_branch(branch)) if remembers(metadata, branch) else None
        for branch in (target, source)
    )
    if theirs is None or (ours and ours.snapshot_id == theirs.snapshot_id):
        return []
    if ours and _included(theirs) != str(ours.snapshot_id):
        raise CommitConflictError(
            f"branch {source!r} was not published: branch {target!r} has remembered deletions meanwhile, by which the "
            f"rows of {source!r} were not settled",
            hint="write the branch anew from main: remove it and start the job with a new checkpoint",
        )
    return [_head(tombstone_branch(target), theirs.snapshot_id)]

"""Keeps the snapshots that a stream has not read yet from expiring, by a tag at the last one that it has read.

Volley's expiry keeps that snapshot and all later ones of its branch. Other engines' keep the snapshots of a branch that
are younger than the branch's own setting says, so the branch that is read gets that setting, too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from volley.iceberg.commit.loop import Stage, Staged, commit_to, unchanged
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.table import TableRef

__all__ = ["HOLD", "Hold", "hold_name", "is_held", "released"]

HOLD = "volley-hold-"
"""The prefix of the tags' names: an expiry keeps such a snapshot, and all later ones of its branch."""

_SECONDS_BETWEEN = 60.0


def hold_name(state: str) -> str:
    """Return the name of the tag of a job's source.

    Args:
        state: The URL of the source's state folder; no part of it can be read from the name.
    """
    return HOLD + hashlib.sha256(state.encode()).hexdigest()[:16]


def is_held(metadata: TableMetadata, branch: SnapshotRef) -> bool:
    """Return True if a hold has set how long other engines keep the snapshots of a branch."""
    return branch.max_snapshot_age_ms is not None and branch.max_snapshot_age_ms in _ages(metadata)


def released(metadata: TableMetadata, dropped: Collection[str]) -> list[SetSnapshotRefUpdate]:
    """Return the updates that give branches back what they had before holds that are dropped."""
    ages = _ages(metadata, dropped)
    return [
        _branch(name, ref, max(ages, default=None))
        for name, ref in metadata.refs.items()
        if is_held(metadata, ref) and ref.max_snapshot_age_ms not in ages and name not in dropped
    ]


def _ages(metadata: TableMetadata, without: Collection[str] = ()) -> set[int]:
    """Return the ages, in milliseconds, of the holds of a table."""
    holds = (ref for name, ref in metadata.refs.items() if name.startswith(HOLD) and name not in without)
    return {ref.max_ref_age_ms for ref in holds if ref.max_ref_age_ms is not None}


def _branch(name: str, ref: SnapshotRef, max_age: int | None) -> SetSnapshotRefUpdate:
    """Return the update that makes a branch keep its snapshots up to an age in milliseconds."""
    kept = {"min-snapshots-to-keep": ref.min_snapshots_to_keep, "max-ref-age-ms": ref.max_ref_age_ms}
    head = {"ref-name": name, "type": ref.snapshot_ref_type, "snapshot-id": ref.snapshot_id}
    return SetSnapshotRefUpdate.model_validate({**head, **kept, "max-snapshot-age-ms": max_age})


@dataclass
class Hold:
    """Moves the tag to the last snapshot that the job has read, at most once a minute.

    Args:
        max_age: The age of the snapshot from which on an expiry drops the tag.
    """

    ref: TableRef
    name: str
    max_age: timedelta
    _moved: tuple[float, int | None] = field(default=(-_SECONDS_BETWEEN, None), repr=False)

    def __call__(self, snapshot_id: int | None) -> None:
        """Move the tag to a snapshot; do nothing if it was moved in the last minute, or the snapshot has expired."""
        at, before = self._moved
        if snapshot_id is None or snapshot_id == before or time.monotonic() - at < _SECONDS_BETWEEN:
            return
        commit_to(self.ref, _HoldMove(self, snapshot_id))
        self._moved = time.monotonic(), snapshot_id


@dataclass(frozen=True)
class _HoldMove(Stage[Staged]):
    action = "holding snapshots"

    hold: Hold
    snapshot_id: int

    def stage(self, table: Table) -> Staged | None:
        metadata, name, branch_name = table.metadata, self.hold.name, self.hold.ref.branch
        if self._is_done(metadata) or metadata.snapshot_by_id(self.snapshot_id) is None:
            return None
        existing, branch = metadata.refs.get(name), metadata.refs.get(branch_name)
        transaction = table.transaction()
        tag = {"ref-name": name, "type": SnapshotRefType.TAG, "snapshot-id": self.snapshot_id}
        stage(transaction, SetSnapshotRefUpdate.model_validate({**tag, "max-ref-age-ms": self._age}))
        requirements = [unchanged(name, existing.snapshot_id if existing else None)]
        if branch is not None and self._lacks_age(metadata):
            stage(transaction, _branch(branch_name, branch, self._age))
            requirements.append(unchanged(branch_name, branch.snapshot_id))
        return Staged(transaction, requirements=requirements)

    def landed(self, table: Table, staged: Staged) -> bool:
        return self._is_done(table.metadata)

    def _is_done(self, metadata: TableMetadata) -> bool:
        tag = metadata.refs.get(self.hold.name)
        return tag is not None and tag.snapshot_id == self.snapshot_id and not self._lacks_age(metadata)

    def _lacks_age(self, metadata: TableMetadata) -> bool:
        """Return True if other engines may drop snapshots of the branch too early; a setting of a user's stays."""
        branch = metadata.refs.get(self.hold.ref.branch)
        if branch is None or branch.snapshot_ref_type != SnapshotRefType.BRANCH:
            return False
        age = branch.max_snapshot_age_ms
        return age is None or (age < self._age and is_held(metadata, branch))

    @property
    def _age(self) -> int:
        return self.hold.max_age // timedelta(milliseconds=1)

"""Keeps the snapshots that a stream has not read yet from expiring, by a tag at the last one that it has read."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from volley.iceberg.commit.metadata import MetadataChange, Staged, commit_change, unchanged
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.table import TableRef

__all__ = ["HOLD", "Hold", "hold_name"]

HOLD = "volley-hold-"
"""The prefix of the tags' names: an expiry keeps such a snapshot, and all later ones of its branch."""

_SECONDS_BETWEEN = 60.0


def hold_name(state: str) -> str:
    """Return the name of the tag of a job's source.

    Args:
        state: The URL of the source's state folder; no part of it can be read from the name.
    """
    return HOLD + hashlib.sha256(state.encode()).hexdigest()[:16]


@dataclass
class Hold:
    """Moves the tag to the last snapshot that the job has read, at most once a minute.

    Args:
        ref: The table.
        name: The tag's name.
        max_age: The age of the snapshot from which on an expiry drops the tag.
    """

    ref: TableRef
    name: str
    max_age: timedelta
    _moved: tuple[float, int | None] = field(default=(-_SECONDS_BETWEEN, None), repr=False)

    def __call__(self, snapshot_id: int | None) -> None:
        """Move the tag to a snapshot; do nothing if it was moved in the last minute, or the snapshot has expired.

        Raises:
            CommitConflictError: If other writers changed the table during each attempt.
            VolleyError: If the catalog can't be reached or refuses.
        """
        at, before = self._moved
        if snapshot_id is None or snapshot_id == before or time.monotonic() - at < _SECONDS_BETWEEN:
            return
        move = partial(self._staged, snapshot_id), partial(self._is_at, snapshot_id)
        commit_change(self.ref, MetadataChange("holding snapshots", *move))
        self._moved = time.monotonic(), snapshot_id

    def _is_at(self, snapshot_id: int, table: Table) -> bool:
        tag = table.metadata.refs.get(self.name)
        return tag is not None and tag.snapshot_id == snapshot_id

    def _staged(self, snapshot_id: int, table: Table) -> Staged | None:
        if self._is_at(snapshot_id, table) or table.metadata.snapshot_by_id(snapshot_id) is None:
            return None
        existing = table.metadata.refs.get(self.name)
        transaction = table.transaction()
        update = SetSnapshotRefUpdate.model_validate(
            {
                "ref-name": self.name,
                "type": SnapshotRefType.TAG,
                "snapshot-id": snapshot_id,
                "max-ref-age-ms": self.max_age // timedelta(milliseconds=1),
            }
        )
        stage(transaction, update)
        return Staged(transaction, [unchanged(self.name, existing.snapshot_id if existing else None)])

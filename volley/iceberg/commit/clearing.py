"""Deletes what a job has written to a table, and its marks, in one commit: it starts over."""

from __future__ import annotations

import uuid
from warnings import catch_warnings

from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table, Transaction

from volley.iceberg.commit.marks import JOB, MARKS, RUN, queries_of
from volley.iceberg.commit.metadata import Staged
from volley.iceberg.commit.overwrite import overwrite
from volley.iceberg.commit.snapshot import write_manifests
from volley.iceberg.modes import Overwrite
from volley.iceberg.pyiceberg_private.access import snapshot_ids
from volley.iceberg.storage.errors import storage_errors

__all__ = ["Clearing"]


class Clearing:
    """The attempts to delete the rows and marks of a job.

    Args:
        branch: The branch whose rows are deleted.
        job: The job.
        shared: True to delete the rows of this job alone, by the column `job`.
    """

    def __init__(self, branch: str, job: str, shared: bool) -> None:
        self._branch = branch
        self._job = job
        self._shared = shared
        self._snapshots: set[int] = set()

    def stage(self, table: Table) -> Staged | None:
        """Return an attempt for a freshly loaded table; None if it has neither rows nor marks."""
        stale = self._marks(table)
        with storage_errors(table.location()):
            transaction = table.transaction()
            if stale:
                transaction.remove_properties(*stale)
            self._delete_rows(table, transaction)
        added = snapshot_ids(transaction)
        self._snapshots |= added
        return Staged(transaction) if stale or added else None

    def has_landed(self, table: Table) -> bool:
        """Return True if a freshly loaded table has one of the attempts."""
        if self._snapshots:
            return any(table.metadata.snapshot_by_id(snapshot_id) for snapshot_id in self._snapshots)
        return not self._marks(table)

    def _marks(self, table: Table) -> list[str]:
        names = (f"{mark}.{query}" for query in queries_of(table, self._job) for mark in (*MARKS, RUN))
        return [name for name in names if name in table.properties]

    def _delete_rows(self, table: Table, transaction: Transaction) -> None:
        summary = {JOB: self._job}
        if self._shared:
            # By the column, not by the names of files: a compaction puts rows of several jobs into one file.
            ours = EqualTo.model_validate({"type": "eq", "term": "job", "value": self._job})
            with catch_warnings(action="ignore", category=UserWarning):
                transaction.delete(ours, summary, branch=self._branch)
        elif emptying := overwrite(Overwrite(), (), self._branch, table):
            write_manifests(transaction, emptying, uuid.uuid4().int >> 65, summary, self._branch)

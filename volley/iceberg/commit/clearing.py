"""Deletes what a job has written to a table, and its marks, in one commit: it starts over."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from warnings import catch_warnings

from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table, Transaction

from volley.iceberg.commit.loop import Stage, Staged
from volley.iceberg.commit.marks import JOB, MARKS, RUN, queries_of
from volley.iceberg.commit.overwrite import overwrite
from volley.iceberg.commit.snapshot import write_manifests
from volley.iceberg.modes import Overwrite
from volley.iceberg.pyiceberg_private.access import snapshot_ids
from volley.iceberg.storage.errors import storage_errors

__all__ = ["Clearing"]


@dataclass(frozen=True)
class Clearing(Stage[Staged]):
    """Deletes the rows and marks of a job.

    Args:
        branch: The branch whose rows are deleted.
        job: The job.
        shared: True to delete the rows of this job alone, by the column `job`.
    """

    action = "deleting the rows"

    branch: str
    job: str
    shared: bool

    def stage(self, table: Table) -> Staged | None:
        stale = self._marks(table)
        with storage_errors(table.location()):
            transaction = table.transaction()
            if stale:
                transaction.remove_properties(*stale)
            self._delete_rows(table, transaction)
        return Staged(transaction) if stale or snapshot_ids(transaction) else None

    def landed(self, table: Table, staged: Staged) -> bool:
        return super().landed(table, staged) if snapshot_ids(staged.transaction) else not self._marks(table)

    def _marks(self, table: Table) -> list[str]:
        names = (f"{mark}.{query}" for query in queries_of(table, self.job) for mark in (*MARKS, RUN))
        return [name for name in names if name in table.properties]

    def _delete_rows(self, table: Table, transaction: Transaction) -> None:
        summary = {JOB: self.job}
        if self.shared:
            # By the column, not by the names of files: a compaction puts rows of several jobs into one file.
            ours = EqualTo.model_validate({"type": "eq", "term": "job", "value": self.job})
            with catch_warnings(action="ignore", category=UserWarning):
                transaction.delete(ours, summary, branch=self.branch)
        elif emptying := overwrite(Overwrite(), (), self.branch, table):
            write_manifests(transaction, emptying, uuid.uuid4().int >> 65, summary, self.branch)

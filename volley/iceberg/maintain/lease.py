"""The lease of a table's maintenance: several jobs that write to one table agree through its catalog."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table, Transaction

from volley.iceberg.commit.loop import Stage, Staged, commit_to
from volley.iceberg.pyiceberg_private.access import checks_itself, still
from volley.iceberg.table import TableRef

__all__ = ["LEASE", "Lease"]

LEASE = "volley.maintainer"
"""Table property: the time in milliseconds since 1970 up to which a job holds the lease, and the job's name."""


class Lease:
    """The right of one job to maintain a table for a time; a table property.

    It saves work and keeps nothing safe: compactions of two jobs don't harm each other, the later one drops what the
    earlier one has replaced. So it is enough that the drivers' clocks differ by less than half of the lease's time.
    With a catalog that can't check a property in a commit, two jobs that take an expired lease in the same moment may
    both think that they hold it, until one of them looks again.

    Args:
        job: The job's name; after a crash, its next run has the lease at once.
        seconds: How long it lasts. An expired lease is anyone's.
    """

    def __init__(self, table: TableRef, job: str, seconds: float) -> None:
        self._table = table
        self._seconds = seconds
        self._job = job
        self._held = False

    def take(self) -> bool:
        """Take or renew the lease; return False if another job holds it."""
        after = commit_to(self._table, _Taking(self._job, self._seconds)).table
        self._held = _holder(after.properties)[1] == self._job
        return self._held

    def release(self) -> None:
        """Let others take the lease at once, if it was taken."""
        if self._held:
            commit_to(self._table, _Release(self._job))
            self._held = False


@dataclass(frozen=True)
class _Taking(Stage[Staged]):
    action = "taking the lease of maintenance"

    job: str
    seconds: float

    def stage(self, table: Table) -> Staged | None:
        until, holder = _holder(table.properties)
        remaining = until - time.time()
        if remaining > (self.seconds / 2 if holder == self.job else 0):
            return None
        transaction = table.transaction()
        transaction.set_properties({LEASE: f"{int((time.time() + self.seconds) * 1000)} {self.job}"})
        return _staged(table, transaction)

    def landed(self, table: Table, staged: Staged) -> bool:
        return _holder(table.properties)[1] == self.job


@dataclass(frozen=True)
class _Release(Stage[Staged]):
    action = "releasing the lease"

    job: str

    def stage(self, table: Table) -> Staged | None:
        if _holder(table.properties)[1] != self.job:
            return None
        transaction = table.transaction()
        transaction.remove_properties(LEASE)
        return _staged(table, transaction)

    def landed(self, table: Table, staged: Staged) -> bool:
        return _holder(table.properties)[1] != self.job


def _staged(table: Table, transaction: Transaction) -> Staged:
    """Return an attempt that fails if the lease was changed meanwhile, where the catalog can check that."""
    before = table.properties.get(LEASE)
    same = still(lambda metadata: metadata.properties.get(LEASE) == before)
    return Staged(transaction, requirements=[same] if checks_itself(table.catalog) else ())


def _holder(properties: Mapping[str, str]) -> tuple[float, str]:
    """Return the time up to which a job has the lease, and the job; 0 and no name if none does."""
    until, _, job = properties.get(LEASE, "").partition(" ")
    return (int(until) / 1000, job) if until.isdecimal() else (0.0, "")

"""Commits changes of a table's metadata that write no rows: references, expired snapshots, schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableRequirement
from tenacity import RetryCallState, retry_if_exception_type

from volley.errors import CatalogUnreachableError, CommitConflictError, CommitStateUnknownError, VolleyError
from volley.iceberg.catalogs.retry import ATTEMPTS, commit_retry, retry_reads
from volley.iceberg.commit.attempts import Outcome, UnknownOutcome, message_of
from volley.iceberg.commit.turns import turn
from volley.iceberg.pyiceberg_private.access import commit_once, delete_merged_manifests
from volley.iceberg.pyiceberg_private.cached import share_metadata
from volley.iceberg.table import TableRef

__all__ = ["MetadataChange", "Staged", "commit_change", "unchanged"]


@dataclass(frozen=True)
class Staged:
    """One attempt, ready to commit.

    Args:
        transaction: The transaction with the change.
        requirements: What the catalog checks besides the transaction's own requirements.
    """

    transaction: Transaction
    requirements: Sequence[TableRequirement] = ()


@dataclass(frozen=True)
class MetadataChange:
    """A change of a table's metadata.

    Args:
        action: The change, for messages, as in "expiring snapshots".
        stage: Returns an attempt for a freshly loaded table; None = nothing is to be done. Each attempt calls it again.
        landed: Returns True if a freshly loaded table shows that an earlier attempt has landed after all.
    """

    action: str
    stage: Callable[[Table], Staged | None]
    landed: Callable[[Table], bool]


def unchanged(ref: str, snapshot_id: int | None) -> TableRequirement:
    """Return the requirement that a branch or tag is still at this snapshot; None = it still does not exist."""
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def commit_change(ref: TableRef, change: MetadataChange, catalog: Catalog | None = None) -> Table:
    """Commit a change of a table's metadata, and return the table as the commit left it.

    Every attempt starts with fresh metadata. The first one stages while epochs of this process commit, so that they
    need not wait; if one of them was faster, the next attempt takes its `turn` before it loads the table.

    Args:
        ref: The table.
        change: The change.
        catalog: Its catalog, if it is open already.

    Raises:
        CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
        CommitStateUnknownError: If the change may or may not have landed.
        VolleyError: If the table can't be loaded, or `stage` raises it.
    """
    attempts = _MetadataAttempts(ref, change, catalog or retry_reads(ref.load_catalog))
    return commit_retry(
        retry=retry_if_exception_type((CommitFailedException, CatalogUnreachableError, UnknownOutcome)),
        retry_error_callback=attempts.give_up,
    )(attempts.attempt)


@dataclass
class _MetadataAttempts(Outcome):
    ref: TableRef
    change: MetadataChange
    catalog: Catalog

    def attempt(self) -> Table:
        if not self.may_have_landed:
            return self._attempt()
        # An epoch of this process was faster: it waits now.
        with turn(self.ref):
            return self._attempt()

    def _attempt(self) -> Table:
        with self.before_commit():
            table = self._load()
        if self.may_have_landed and self.change.landed(table):
            return table
        self.clear()
        with self.before_commit():
            staged = self.change.stage(table)
        if staged is None:
            return table
        # A table that was dropped and made anew is another one.
        same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
        with turn(self.ref), self.classified(staged.transaction, self.ref.errors()):
            commit_once(table, staged.transaction, same_table, *staged.requirements)
        delete_merged_manifests(table, staged.transaction)
        return table

    def give_up(self, state: RetryCallState) -> Table:
        """Find out whether an attempt has landed after all, once the last one has failed."""
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None
        if not self.may_have_landed:
            raise error  # no commit was sent
        try:
            table = self._load()
        except VolleyError as load_error:
            raise self._unknown(load_error) from error
        if self.change.landed(table):
            return table
        if self.in_doubt:
            raise self._unknown(error) from error
        self.fail(error, self._conflict)

    def _conflict(self, error: BaseException) -> CommitConflictError:
        return CommitConflictError(
            f"{self.change.action} failed: other writers changed table {self.ref.name} during each of {ATTEMPTS} "
            f"attempts: {error}",
            hint="nothing was changed; try again",
        )

    def _load(self) -> Table:
        with self.ref.errors():
            return share_metadata(self.catalog.load_table(self.ref.identifier))

    def _unknown(self, error: BaseException) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"{self.change.action} may or may not have changed table {self.ref.name}: the catalog gave no clear answer "
            f"in {ATTEMPTS} attempts: {message_of(error)}",
            hint="no file was deleted; look at the table when the catalog answers, then try again if need be",
        )

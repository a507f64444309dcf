"""The one loop that commits: refresh, has it landed, stage, commit once, classify the error, from the top.

Epochs, views and maintenance differ only in their `Stage`. Nothing below the loop may retry a commit.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableRequirement
from tenacity import RetryCallState, retry_if_exception_type

from volley.errors import (
    CatalogUnreachableError,
    CommitConflictError,
    CommitStateUnknownError,
    ConfigError,
    VolleyError,
    message_of,
)
from volley.iceberg.catalogs.answers import ATTEMPTS, commit_retry, never_sent, refuses, retry_reads
from volley.iceberg.pyiceberg_private.access import (
    commit_once,
    delete_manifests,
    delete_merged_manifests,
    snapshot_ids,
)
from volley.iceberg.pyiceberg_private.guarded import share_metadata
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot, targets_of_vectors
from volley.iceberg.read.planning import concerns
from volley.iceberg.table import TableRef
from volley.iceberg.write.vectors import check_form
from volley.iceberg.write.written import SnapshotFiles

__all__ = [
    "Attempts",
    "Commit",
    "Ready",
    "Stage",
    "Staged",
    "UnknownOutcome",
    "commit_to",
    "fresh_table",
    "new_snapshot_id",
    "sending",
    "turn",
    "unchanged",
    "write_manifests",
]


@dataclass(frozen=True)
class Staged:
    """One attempt, ready to commit; a stage extends it by what it needs to know once the attempt has landed.

    Args:
        requirements: What the catalog checks besides the transaction's own requirements.
    """

    transaction: Transaction
    requirements: Sequence[TableRequirement] = field(default=(), kw_only=True)


S = TypeVar("S", bound=Staged)


class Stage(ABC, Generic[S]):
    """What one commit changes in a table; all its attempts call the same value."""

    action: str
    """The change, for messages, as in "expiring snapshots"."""
    in_turn: ClassVar[bool] = False
    """True to stage while no other commit of this process to the table runs. Others stage their first attempt while
    epochs commit, so that those need not wait; if one of them was faster, they take their turn, too."""
    conflict_hint: ClassVar[str] = "nothing was changed; try again"
    unknown_hint: ClassVar[str] = (
        "no file was deleted; look at the table when the catalog answers, then try again if need be"
    )

    @abstractmethod
    def stage(self, table: Table) -> S | None:
        """Return an attempt for a freshly loaded table; None = nothing is to be done. Each attempt calls it again."""

    def landed(self, table: Table, staged: S) -> bool:
        """Return True if a freshly loaded table has an attempt; by default, if it has a snapshot of it."""
        return any(table.metadata.snapshot_by_id(snapshot_id) for snapshot_id in snapshot_ids(staged.transaction))

    def committed(self) -> None:
        """Called once an attempt is committed; after an error here the table tells whether it has landed."""

    def discard(self) -> None:
        """Delete the files that were written for the commit: it has failed, and no attempt has landed."""

    def retry(self) -> None:
        """Note that another attempt follows."""


@dataclass(frozen=True)
class Commit(Generic[S]):
    """A commit that was made.

    Args:
        staged: The attempt that has landed; None = nothing was to be done.
        is_final: False if an earlier attempt, which got no answer, may still land.
    """

    table: Table
    staged: S | None
    is_final: bool = True


def unchanged(ref: str, snapshot_id: int | None) -> TableRequirement:
    """Return the requirement that a branch or tag is still at this snapshot; None = it still does not exist."""
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def fresh_table(ref: TableRef, catalog: Catalog) -> Table:
    """Load a table: its metadata, and credentials that the catalog vends for a limited time."""
    with ref.errors():
        return share_metadata(catalog.load_table(ref.identifier))


def commit_to(
    ref: TableRef, stage: Stage[S], catalog: Catalog | None = None, load: Callable[[], Table] | None = None
) -> Commit[S]:
    """Commit a change of a table; each attempt starts with fresh metadata.

    Args:
        catalog: Its catalog, if it is open already.
        load: Loads the table; None = `fresh_table`.

    Raises:
        CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
        CommitStateUnknownError: If the change may or may not have landed; no file was deleted.
        VolleyError: If the table can't be loaded, or `stage` raises it.
    """
    attempts = Attempts(ref, stage)
    try:
        attempts.load = load or partial(fresh_table, ref, catalog or retry_reads(ref.load_catalog))
        return commit_retry(
            retry=retry_if_exception_type((CommitFailedException, CatalogUnreachableError, UnknownOutcome)),
            before_sleep=lambda state: stage.retry(),
            retry_error_callback=attempts.give_up,
        )(attempts.attempt)
    except BaseException:
        if not attempts.may_have_landed:
            stage.discard()
        raise


@dataclass(frozen=True)
class Ready(Generic[S]):
    """An attempt that is to be committed to a freshly loaded table."""

    table: Table
    staged: S

    @property
    def requirements(self) -> Sequence[TableRequirement]:
        """What the catalog checks besides the transaction's own requirements."""
        # A table that was dropped and made anew is another one.
        return (AssertTableUUID(uuid=self.table.metadata.table_uuid), *self.staged.requirements)


class UnknownOutcome(Exception):
    """Raised if the table has to tell whether an attempt has landed: it ended without a response, or was refused."""


class Attempts(Generic[S]):
    """The attempts of one commit, and what is known of their outcome.

    Args:
        names: For messages, all tables that are committed together; None = it is one.
    """

    load: Callable[[], Table]

    def __init__(self, ref: TableRef, stage: Stage[S], names: str | None = None) -> None:
        self.ref = ref
        self._stage = stage
        self._names = names or ref.name
        # The newest first. One without a response may land after the table was looked at.
        self.sent: list[S] = []
        # Those of them that were refused. A gateway that repeats a request passes on the refusal of one that has
        # landed, so their manifests are kept until the table shows that it has not.
        self.refused: list[S] = []

    @property
    def may_have_landed(self) -> bool:
        """True if an attempt may have landed or may still land: no file may be deleted then."""
        return bool(self.sent)

    def attempt(self) -> Commit[S]:
        with turn(self.ref) if self._stage.in_turn or self.may_have_landed else nullcontext():
            return self._attempt()

    def _attempt(self) -> Commit[S]:
        ready = self.prepare()
        if isinstance(ready, Commit):
            return ready
        with turn(self.ref), sending(self.ref, [(self, ready.staged)]):
            commit_once(ready.table, ready.staged.transaction, *ready.requirements)
            self._stage.committed()
        delete_merged_manifests(ready.table, ready.staged.transaction)
        return Commit(ready.table, ready.staged)

    def prepare(self) -> Commit[S] | Ready[S]:
        """Return what is to be committed; or the commit that has landed, or that nothing is to be done."""
        with self._before_commit():
            table = self.load()
        if (landed := self._landed(table)) is not None:
            return Commit(table, landed)
        self._forget_refused()
        with self._before_commit():
            staged = self._stage.stage(table)
        if staged is None:
            return Commit(table, None, is_final=not self.may_have_landed)
        return Ready(table, staged)

    def _landed(self, table: Table) -> S | None:
        return next((staged for staged in self.sent if self._stage.landed(table, staged)), None)

    @contextmanager
    def _before_commit(self) -> Iterator[None]:
        """Treat an error as an unknown outcome if an earlier attempt may have landed."""
        try:
            yield
        except VolleyError as error:
            if self.may_have_landed:
                raise UnknownOutcome(message_of(error)) from error
            raise

    def _forget_refused(self) -> None:
        """Forget the refused attempts, since none of them is in the table."""
        while self.refused:
            self.forget(self.refused.pop())

    def forget(self, staged: S) -> None:
        """Forget an attempt that is not in the table."""
        self.sent.remove(staged)
        delete_manifests(staged.transaction)

    def give_up(self, state: RetryCallState) -> Commit[S]:
        """Find out whether an attempt has landed after all, once the last one has failed."""
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None
        if not self.may_have_landed:
            raise error  # no commit was sent
        try:
            table = self.load()
        except VolleyError as load_error:
            raise self._unknown(load_error) from error
        if (landed := self._landed(table)) is not None:
            return Commit(table, landed)
        self._forget_refused()
        if self.may_have_landed:
            raise self._unknown(error) from error
        self._fail(error)

    def _fail(self, error: BaseException) -> NoReturn:
        """Raise the error of a commit whose attempts were all refused, once the table has shown that none landed."""
        if isinstance(error, CommitFailedException):
            raise CommitConflictError(
                f"{self._stage.action} failed: other writers changed table {self._names} during each of {ATTEMPTS} "
                f"attempts: {error}",
                hint=self._stage.conflict_hint,
            ) from error
        raise (isinstance(error, UnknownOutcome) and error.__cause__) or error

    def _unknown(self, error: BaseException) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"{self._stage.action} may or may not have changed table {self._names}: the catalog gave no clear "
            f"answer in {ATTEMPTS} attempts: {message_of(error)}",
            hint=self._stage.unknown_hint,
        )


@contextmanager
def sending(ref: TableRef, sent: Sequence[tuple[Attempts[Any], Staged]], names: str | None = None) -> Iterator[None]:
    """Classify the errors of a commit; whichever it is, the next attempt looks at the tables first.

    Args:
        ref: A table of the catalog.
        sent: What is committed in one request.
        names: For messages, all tables; None = it is one.
    """
    for attempts, staged in sent:
        attempts.sent.insert(0, staged)
    try:
        with ref.errors(names):
            yield
    except CommitStateUnknownError:
        raise
    except ConfigError as error:
        # It was refused before anything was sent.
        if _forget_all(sent):
            raise UnknownOutcome(str(error)) from error
        raise
    except CommitFailedException:
        _note_refusal(sent)
        raise
    except Exception as error:
        if never_sent(error):
            _forget_all(sent)
            raise
        if refuses(error):
            _note_refusal(sent)
        raise UnknownOutcome(message_of(error)) from error


def _forget_all(sent: Sequence[tuple[Attempts[Any], Staged]]) -> bool:
    """Forget what was not sent; return True if an earlier attempt may have landed."""
    for attempts, staged in sent:
        attempts.forget(staged)
    return any(attempts.may_have_landed for attempts, _ in sent)


def _note_refusal(sent: Sequence[tuple[Attempts[Any], Staged]]) -> None:
    for attempts, staged in sent:
        attempts.refused.append(staged)


_locks: dict[tuple[str, str], RLock] = {}


def turn(table: TableRef) -> RLock:
    """Return the lock of a table; whoever holds it from the loading of the metadata to the commit meets no conflict.

    Reentrant, since a commit can nest in another.
    """
    # `setdefault` is atomic.
    return _locks.setdefault((table.address, table.name), RLock())


def new_snapshot_id() -> int:
    """Return a random id: 63 bits, as Iceberg's are signed."""
    return uuid.uuid4().int >> 65


def write_manifests(
    transaction: Transaction,
    changes: SnapshotFiles,
    snapshot_id: int,
    summary: dict[str, str],
    branch: str,
    rewritten_at: int | None = None,
    origin: str | None = MAIN_BRANCH,
    forgets_bounds: bool = False,
) -> None:
    """Write the manifests of one snapshot and add it to the transaction; it is visible once that is committed.

    Args:
        origin: The branch whose files a new one starts with; None = it starts without any.
        forgets_bounds: True leaves out the bounds of removed files.

    Raises:
        LayoutChangedError: If there are position-delete files, but the table has deletion vectors by now.
    """
    deletes = [file.data_file for file in changes.deletes]
    check_form(transaction.table_metadata.format_version, deletes)
    add_snapshot(
        transaction,
        added=[file.data_file for file in changes.added],
        deletes=deletes,
        removed=changes.removed,
        snapshot_id=snapshot_id,
        summary=summary,
        branch=branch,
        concerned=partial(
            concerns,
            paths={*(file.file_path for file in changes.removed), *changes.removed_deletes},
            targets=targets_of_vectors(deletes),
        ),
        rewritten_at=rewritten_at,
        removed_deletes=changes.removed_deletes,
        origin=origin,
        forgets_bounds=forgets_bounds,
    )

"""Commits changes of several tables in one request to their catalog: all of them are visible, or none."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from tenacity import RetryCallState, retry_if_exception_type

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer
from volley.errors import CatalogUnreachableError, CommitStateUnknownError, VolleyError, message_of
from volley.iceberg.catalogs.answers import commit_retry, retry_reads
from volley.iceberg.commit.creation import capabilities_of
from volley.iceberg.commit.loop import Attempts, Commit, Ready, Stage, UnknownOutcome, sending, turn
from volley.iceberg.pyiceberg_private.access import delete_manifests, delete_merged_manifests
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog
from volley.iceberg.pyiceberg_private.transactions import TableChange, commit_all, load_committed
from volley.iceberg.table import TableRef

__all__ = ["Change", "GroupedCommitter", "commit_together", "group_of", "takes_tables"]

Submit = Callable[[Callable[[], Any]], "Future[Any]"]

_THREADS = 32
_NAMED = 3


def _nothing() -> None:
    return


def _itself(error: Exception) -> Exception:
    return error


@dataclass(frozen=True)
class Change:
    """What is to be committed to one table.

    Args:
        identity: The table's uuid: a catalog that ignores case has a table under several names.
        load: Loads the table.
        finish: Called with the commit that was made.
        submit: Runs work in the thread that has the table's catalog client; None = any thread may use it.
        failed: Returns the error to raise for one of loading or staging; called in that thread.
        discard: Deletes files that only this commit needs, once it has failed.
    """

    ref: TableRef
    identity: str
    stage: Stage[Any]
    load: Callable[[], Table]
    finish: Callable[[Commit[Any]], None]
    submit: Submit | None = None
    failed: Callable[[Exception], Exception] = _itself
    discard: Callable[[], None] = _nothing


def group_of(ref: TableRef, catalog: Catalog) -> object | None:
    """Return what tables have in common that can be committed together; None = their catalog takes them one by one.

    Raises:
        CatalogError: If the catalog does not announce it, and can't be asked.
    """
    return ref.group if takes_tables(ref, catalog) else None


def takes_tables(ref: TableRef, catalog: Catalog) -> bool:
    """Return True if a catalog takes several tables in one commit: it announces it, or answers so.

    Raises:
        CatalogError: If it does not announce it, and can't be asked.
    """
    known = capabilities_of(ref, catalog).transactions
    if known is not None or not isinstance(catalog, GuardedCatalog):
        return bool(known)

    def ask() -> bool:
        with ref.errors():
            return catalog.commits_tables()

    return retry_reads(ask)


class GroupedCommitter(Committer):
    """A committer of Iceberg tables, which commits together with others where their catalog takes that."""

    @abstractmethod
    def changes(self, epoch: Epoch, results: Sequence[WriteResult]) -> Sequence[Change]:
        """Return what is to be committed for an epoch.

        Raises:
            VolleyError: If it can't be; nothing is committed then.
        """

    def committed(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Called once all `changes` are committed. The default does nothing."""

    def commit_together(self, epoch: Epoch, parts: Sequence[tuple[Committer, Sequence[WriteResult]]]) -> None:
        changes: list[Change] = []
        for committer, results in parts:
            assert isinstance(committer, GroupedCommitter)
            changes += committer.changes(epoch, results)
        commit_together(changes)
        for committer, results in parts:
            assert isinstance(committer, GroupedCommitter)
            committer.committed(epoch, results)


def commit_together(changes: Sequence[Change]) -> None:
    """Commit changes of several tables of one catalog, as `commit_to` does with one: all of them, or none.

    Each attempt loads all tables, and stages what they lack. A table is once in a request, since Iceberg's own adapter
    makes the first change of a table alone: where two sinks write to one table, the second one's follow in another.

    Raises:
        CommitConflictError: If other writers changed one of the tables during each attempt; nothing is changed then.
        CommitStateUnknownError: If the changes may or may not have landed, or some have; no file was deleted.
        VolleyError: If a table can't be loaded, or the `stage` of one raises it; nothing is changed then.
    """
    rounds: list[dict[str, Change]] = []
    for change in changes:
        free = next((tables for tables in rounds if change.identity not in tables), None)
        if free is None:
            rounds.append(free := {})
        free[change.identity] = change
    for number, tables in enumerate(rounds):
        _Group([*tables.values()], has_landed=number > 0).commit()


class _Group:
    """The attempts of one commit of several tables, by their places.

    Args:
        has_landed: True if some tables have the commit.
    """

    _pool: ThreadPoolExecutor

    def __init__(self, changes: Sequence[Change], has_landed: bool) -> None:
        self._changes = changes
        self._names = _brief([change.ref.name for change in changes])
        self._attempts = [_attempts(change, self._names) for change in changes]
        # Of the last attempt, the tables that have the commit, or need none.
        self._settled: dict[int, Commit[Any]] = {}
        self._has_landed = has_landed

    def commit(self) -> None:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="volley-commit") as self._pool:
            try:
                commits = commit_retry(
                    retry=retry_if_exception_type((CommitFailedException, CatalogUnreachableError, UnknownOutcome)),
                    before_sleep=lambda state: self._retry(),
                    retry_error_callback=self._give_up,
                )(self._attempt)
            except BaseException as error:
                self._discard()
                if (doubt := self._in_doubt(error)) is not error:
                    raise doubt from error
                raise
        for place, change in enumerate(self._changes):
            try:
                change.finish(commits[place])
            except VolleyError as error:
                raise self._half_done(error) from error

    @property
    def _may_have_landed(self) -> bool:
        """True if an attempt may have landed or may still land, in whichever table: no file may be deleted then."""
        return any(attempts.may_have_landed for attempts in self._attempts)

    def _attempt(self) -> dict[int, Commit[Any]]:
        with ExitStack() as turns:
            # Always in one order: two that wait for each other's tables would wait for ever.
            for ref in sorted((change.ref for change in self._changes), key=lambda ref: (ref.address, ref.name)):
                turns.enter_context(turn(ref))
            self._settled = {}
            prepared = self._prepare()
            ready = {place: each for place, each in prepared.items() if isinstance(each, Ready)}
            self._settled = {place: each for place, each in prepared.items() if isinstance(each, Commit)}
            if ready:
                self._send(ready)
        for each in ready.values():
            delete_merged_manifests(each.table, each.staged.transaction)
        return self._settled | {place: Commit(each.table, each.staged) for place, each in ready.items()}

    def _prepare(self) -> dict[int, Commit[Any] | Ready[Any]]:
        """Load and stage all tables, several at a time."""
        futures = self._run({place: attempts.prepare for place, attempts in enumerate(self._attempts)})
        errors = {place: error for place, future in futures.items() if (error := future.exception()) is not None}
        outcomes = {place: future.result() for place, future in futures.items() if place not in errors}
        self._has_landed |= any(isinstance(each, Commit) and each.staged is not None for each in outcomes.values())
        if errors:
            # None of them is sent, since one of them can't be.
            for each in outcomes.values():
                if isinstance(each, Ready):
                    delete_manifests(each.staged.transaction)
            with self._unknown_if_sent():
                raise self._failed(errors)
        return outcomes

    def _failed(self, errors: dict[int, BaseException]) -> BaseException:
        """Return the error to raise; the first of those that no retry mends, if there is one."""
        told: list[BaseException] = []
        for place, error in errors.items():
            if isinstance(error, Exception):
                told.append(self._run({place: partial(self._changes[place].failed, error)})[place].result())
            else:
                told.append(error)
        return min(told, key=lambda error: isinstance(error, CatalogUnreachableError | UnknownOutcome))

    @contextmanager
    def _unknown_if_sent(self) -> Iterator[None]:
        """Treat an error as an unknown outcome if an earlier attempt may have landed, in whichever table."""
        try:
            yield
        except VolleyError as error:
            if self._may_have_landed:
                raise UnknownOutcome(message_of(error)) from error
            raise

    def _send(self, ready: dict[int, Ready[Any]]) -> None:
        parts = {
            place: TableChange(each.table, each.staged.transaction, each.requirements) for place, each in ready.items()
        }
        sent = [(self._attempts[place], each.staged) for place, each in ready.items()]
        with sending(self._changes[0].ref, sent, self._names):
            commit_all([*parts.values()])
            loads = self._run({place: partial(load_committed, part) for place, part in parts.items()})
            for load in loads.values():
                load.result()
            for place in ready:
                self._changes[place].stage.committed()

    def _run(self, work: dict[int, Callable[[], Any]]) -> dict[int, Future[Any]]:
        """Do work for some tables, several at a time; return it when all of it has ended."""
        futures = {place: (self._changes[place].submit or self._pool.submit)(each) for place, each in work.items()}
        for future in futures.values():
            future.exception()
        return futures

    def _retry(self) -> None:
        """Tell the stages that another attempt follows."""
        for change in self._changes:
            change.stage.retry()

    def _give_up(self, state: RetryCallState) -> dict[int, Commit[Any]]:
        """Find out whether an attempt has landed after all, once the last one has failed."""
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None
        sent = {place: attempts for place, attempts in enumerate(self._attempts) if attempts.may_have_landed}
        looks = self._run({place: partial(attempts.give_up, state) for place, attempts in sent.items()})
        commits = dict(self._settled)
        for place, look in looks.items():
            if (failure := look.exception()) is None:
                commits[place] = look.result()
                self._has_landed = True
            else:
                error = failure
        if len(commits) == len(self._changes):
            return commits
        raise error

    def _in_doubt(self, error: BaseException) -> BaseException:
        """Return the error of a commit; one that deletes no file if some tables have it, and some have not."""
        if not self._has_landed or not isinstance(error, VolleyError) or isinstance(error, CommitStateUnknownError):
            return error
        return self._half_done(error)

    def _half_done(self, error: VolleyError) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"a part of one commit to tables {self._names} is made, and the rest failed: {error.message}",
            hint="nothing was deleted; start the job again, it finds out which tables have the epoch, and goes on",
        )

    def _discard(self) -> None:
        """Delete the files that were written for the commit, unless an attempt may have landed."""
        if self._may_have_landed:
            return
        for change in self._changes:
            change.stage.discard()
            change.discard()


def _attempts(change: Change, names: str) -> Attempts[Any]:
    attempts: Attempts[Any] = Attempts(change.ref, change.stage, names)
    attempts.load = change.load
    return attempts


def _brief(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")

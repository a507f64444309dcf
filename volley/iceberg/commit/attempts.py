"""The attempts of one commit, and what is known of their outcome."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction

from volley.epoch import Epoch
from volley.errors import CommitConflictError, CommitStateUnknownError, ConfigError, VolleyError
from volley.iceberg.catalogs.answers import never_sent, refuses
from volley.iceberg.catalogs.retry import ATTEMPTS
from volley.iceberg.pyiceberg_private.access import delete_manifests
from volley.iceberg.upsert.parked import ParkedFile
from volley.iceberg.write.changes import Changes
from volley.iceberg.write.written import WrittenFile

__all__ = ["Attempts", "Outcome", "UnknownOutcome", "message_of"]


class UnknownOutcome(Exception):
    """Raised if the table has to tell whether an attempt has landed: it ended without a response, or was refused."""


def message_of(error: BaseException) -> str:
    """Return the message of an error without its hint, which is about another request."""
    return error.message if isinstance(error, VolleyError) else str(error)


@dataclass
class Outcome:
    """What is known of the attempts of one commit.

    Args:
        refused: Attempts that the catalog refused, for a conflict or another reason. A gateway that repeats a request
            passes on the refusal of one that has landed, so their manifests are kept until the table shows that it has
            not.
        in_doubt: True once an attempt had no response: it may land after the table was looked at.
    """

    refused: list[Transaction] = field(default_factory=list, kw_only=True)
    in_doubt: bool = field(default=False, kw_only=True)

    @property
    def may_have_landed(self) -> bool:
        """True if an attempt may have landed or may still land: no file may be deleted then."""
        return self.in_doubt or bool(self.refused)

    @contextmanager
    def before_commit(self) -> Iterator[None]:
        """Treat an error as an unknown outcome if an earlier attempt may have landed."""
        try:
            yield
        except VolleyError as error:
            if self.may_have_landed:
                raise UnknownOutcome(message_of(error)) from error
            raise

    @contextmanager
    def classified(self, transaction: Transaction, errors: AbstractContextManager[None]) -> Iterator[None]:
        """Classify the errors of a commit; whichever it is, the next attempt looks at the table first.

        Args:
            transaction: What is committed.
            errors: Translates exceptions of the catalog.
        """
        try:
            with errors:
                yield
        except CommitStateUnknownError:
            raise
        except ConfigError as error:
            # It was refused before anything was sent.
            if self.may_have_landed:
                raise UnknownOutcome(str(error)) from error
            raise
        except CommitFailedException:
            self.refused.append(transaction)
            raise
        except Exception as error:
            if never_sent(error):
                delete_manifests(transaction)
                raise
            if refuses(error):
                self.refused.append(transaction)
            else:
                self.in_doubt = True
            raise UnknownOutcome(message_of(error)) from error

    def fail(self, error: BaseException, conflict: Callable[[BaseException], VolleyError]) -> NoReturn:
        """Raise the error of a commit whose attempts were all refused, once the table has shown that none landed.

        Args:
            error: The last attempt's.
            conflict: Returns the error to raise for a conflict.
        """
        self.clear()
        if isinstance(error, CommitFailedException):
            raise conflict(error) from error
        raise (isinstance(error, UnknownOutcome) and error.__cause__) or error

    def clear(self) -> None:
        """Delete the manifests of refused attempts; call it once none of them is in the table."""
        while self.refused:
            delete_manifests(self.refused.pop())


@dataclass
class Attempts(Outcome):
    """The state that all attempts to commit one epoch share.

    Args:
        epoch: The epoch.
        table: The table's dotted name, for messages.
        files: The files that its tasks wrote.
        changes: Returns the changes for the current table; each attempt calls it again.
        commit_id: Distinguishes our commit from another driver's commit of the same epoch.
    """

    epoch: Epoch
    table: str
    files: Sequence[WrittenFile | ParkedFile]
    changes: Callable[[Table], Changes]
    commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def unknown(self, error: BaseException) -> CommitStateUnknownError:
        """Return the error for an epoch whose outcome is unknown after the last attempt."""
        return CommitStateUnknownError(
            f"epoch {self.epoch.number} may or may not be in table {self.table}: the catalog gave no clear answer "
            f"in {ATTEMPTS} attempts: {message_of(error)}",
            hint="nothing was deleted; start the job again when the catalog answers, it finds out and goes on",
        )

    def conflict(self, error: BaseException) -> CommitConflictError:
        """Return the error for an epoch whose attempts were all conflicts."""
        return CommitConflictError(
            f"epoch {self.epoch.number} could not be committed to table {self.table}: other writers changed the table "
            f"during each of {ATTEMPTS} attempts: {error}",
            hint="start the job again, it repeats the epoch; if it recurs, let fewer writers commit less often",
        )

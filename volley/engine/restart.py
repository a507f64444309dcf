"""What happens when a job fails: whether it starts again, how often, and after which wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from volley.checks import Duration, count_or_zero, duration, keep, one_of
from volley.errors import (
    ConfigError,
    ExpectationError,
    ExpressionError,
    MissingDependencyError,
    PlanError,
    SchemaMismatchError,
    SessionLostError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    SnapshotRolledBackError,
    SourceNotFoundError,
    TableNotFoundError,
    TableReplacedError,
    VolleyError,
)
from volley.html_table import settings_html

__all__ = ["Restart", "WaitForMakers", "may_pass"]

# The next attempt would fail in the same way.
_LASTING = (
    *(ConfigError, ExpectationError, ExpressionError, MissingDependencyError, PlanError, SchemaMismatchError),
    *(SessionLostError, SnapshotExpiredError, SnapshotNotFoundError, SnapshotRolledBackError, TableReplacedError),
)
# Before a job's first epoch: its settings name what nobody has made.
_MISSING = (SourceNotFoundError, TableNotFoundError)
_LONGEST_WAIT = 300.0
# A wait that has doubled that often is above the longest one, whatever the first was.
_MOST_DOUBLINGS = 32


@dataclass(frozen=True)
class Restart:
    """What happens when a job fails: ``start("events", restart=Restart())``.

    A job starts again after a failure that may pass: a catalog, broker or storage that can't be reached, is busy or
    refuses credentials (which may be renewed), a lost executor, a conflict, an exception of a function in a step. It
    stays down after one that would only be repeated: wrong settings or expressions, rows that do not meet an
    expectation, a missing package, a schema that does not fit the table, another pipeline's checkpoint, a snapshot that
    is gone; and, before the first epoch since it was started, a folder, topic or table that is not there. It goes on
    behind its last epoch, each row exactly once, as after any other start.

    Args:
        policy: ``"on_failure"``: it starts again after what may pass. ``"always"``: after every failure, to wait for a
            folder, topic or table that another program makes. ``"never"``: it stays down.
        limit: How often in a row, without an epoch in between.
        backoff: The wait before the first restart: seconds, a timedelta or a text such as ``"5s"``; it doubles each
            time, up to five minutes.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> Restart(backoff="2s").backoff
        datetime.timedelta(seconds=2)
    """

    policy: Literal["on_failure", "always", "never"] = "on_failure"
    limit: int = 5
    backoff: Duration = timedelta(seconds=5)

    def __post_init__(self) -> None:
        keep(self, policy=one_of(("on_failure", "always", "never")), limit=count_or_zero, backoff=duration)

    def allows(self, failure: VolleyError, failures: int, had_epochs: bool = False) -> bool:
        """Return True if a job starts again.

        Args:
            failure: Its last failure.
            failures: How often it has failed in a row, this time included.
            had_epochs: True if it has had an epoch since it was started.
        """
        heals = self.policy == "always" or (self.policy == "on_failure" and may_pass(failure, had_epochs))
        return heals and failures <= self.limit

    def seconds(self, failures: int) -> float:
        """Return the wait before the next start, in seconds, after so many failures in a row."""
        assert isinstance(self.backoff, timedelta)
        doubled = self.backoff.total_seconds() * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        return min(doubled, _LONGEST_WAIT)

    _repr_html_ = settings_html


class WaitForMakers(Restart):
    """A `Restart` of a job whose table another job makes, which has begun at the same time."""

    def allows(self, failure: VolleyError, failures: int, had_epochs: bool = False) -> bool:
        return super().allows(failure, failures, True)


def may_pass(failure: VolleyError, had_epochs: bool = False) -> bool:
    """Return True if the next attempt may succeed, although nothing of the job has changed.

    Args:
        had_epochs: True if the job has had an epoch: a folder that is missing now, for example, may be mounted again.
    """
    return not isinstance(failure, _LASTING if had_epochs else (*_LASTING, *_MISSING))

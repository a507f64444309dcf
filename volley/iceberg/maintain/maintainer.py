"""Maintains the table of a sink while its job runs, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from volley.epoch import WriteResult
from volley.errors import ConfigError, VolleyError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.actions import Action, actions
from volley.iceberg.maintain.budget import Budget
from volley.iceberg.maintain.lease import Lease
from volley.iceberg.maintenance import Maintenance
from volley.maintenance import MaintenanceReport, MaintenanceRun
from volley.sink import ExecutorTask, SinkContext

__all__ = ["Maintainer"]

_log = logging.getLogger(__name__)
_RUNS_KEPT = 100
_SECONDS_TO_STOP = 10.0
_SECONDS_OF_A_LOOK = 0.1


class _Stopping(Exception):
    """Raised between two tasks to end an action when the job stops."""


class Maintainer:
    """Maintains a table: after some commits, delete files or time, and within its share of the time.

    A failure is logged, and the action is tried again the next time; if the table does not allow it, never again.

    Args:
        config: The settings of the sink.
        maintenance: What is to be done, and when.
        context: The sink's context in the job.
        turns: Held while it works: one at a time of those that share it.
    """

    def __init__(
        self, config: IcebergSinkConfig, maintenance: Maintenance, context: SinkContext, turns: threading.Lock
    ) -> None:
        assert isinstance(maintenance.every, timedelta)
        self._settings = maintenance
        self._every = maintenance.every.total_seconds()
        self._context = context
        self._turns = turns
        self._table = config.table_name
        self._actions = actions(config, maintenance, self._run_tasks)
        # Long enough for two turns: the holder renews it in each.
        self._lease = Lease(config.ref, context.job, 2 * self._every)
        self._state = threading.Condition()
        self._stopping = False
        self._commits = self._delete_files = 0
        self._budget = Budget(maintenance.budget, self._every)
        self._due_at = self._earliest = time.monotonic() + self._every
        self._runs: deque[MaintenanceRun] = deque(maxlen=_RUNS_KEPT)
        self._thread = threading.Thread(target=self._loop, name=f"volley-maintenance-{self._table}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._earliest = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End the running action before its next task, and wait for the thread, ten seconds at most."""
        with self._state:
            self._stopping = True
            self._state.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_SECONDS_TO_STOP)

    def committed(self, delete_files: int) -> None:
        """Count a commit of the job, and the delete files that it added."""
        with self._state:
            self._commits += 1
            self._delete_files += delete_files
            self._state.notify_all()

    @property
    def report(self) -> MaintenanceReport:
        """What was done lately, and when more is due."""
        with self._state:
            left = self._seconds_left()
            more = self._settings.commits - self._commits
        due = f"after {max(more, 1):,} more commits" if left is None else f"in {max(left, 0):.0f} s"
        if left is not None and more > 0:
            due += f", or after {more:,} more commits"
        return MaintenanceReport(tuple(self._runs), {self._table: due})

    def _loop(self) -> None:
        while self._wait() and self._take_turn():
            began = time.monotonic()
            try:
                self._maintain()
            except _Stopping:
                break
            except Exception as error:
                _log.warning("%s: maintenance of table %s failed: %s", self._context.job, self._table, _text(error))
            finally:
                self._turns.release()
            now = time.monotonic()
            self._budget.spend(now - began)
            with self._state:
                self._due_at = began + self._every
                self._earliest = now + self._budget.rest
        self._release()

    def _wait(self) -> bool:
        """Wait until maintenance is due; return False if the job stops."""
        with self._state:
            while not self._stopping:
                left = self._seconds_left()
                if left is not None and left <= 0:
                    self._commits = self._delete_files = 0
                    return True
                self._state.wait(left)
            return False

    def _take_turn(self) -> bool:
        """Wait until no other table is maintained; return False if the job stops."""
        while not self._turns.acquire(timeout=_SECONDS_OF_A_LOOK):
            if self._stopping:
                return False
        return True

    def _seconds_left(self) -> float | None:
        """Return the time until maintenance is due; None = not before another commit."""
        if not self._commits:
            return None
        settings = self._settings
        is_due = self._commits >= settings.commits or self._delete_files >= settings.delete_files
        return max(0.0 if is_due else self._due_at, self._earliest) - time.monotonic()

    def _maintain(self) -> None:
        for action in list(self._actions):
            if self._stopping:
                return
            if not self._lease.take():
                return
            self._run(action)

    def _run(self, action: Action) -> None:
        at, began = datetime.now(UTC), time.monotonic()
        try:
            outcome, succeeded = action.run(), True
        except _Stopping:
            raise
        except Exception as error:
            outcome, succeeded = _text(error), False
            if isinstance(error, ConfigError):
                # The table does not allow it: nothing changes that but its owner.
                self._actions.remove(action)
        if outcome is not None:
            run = MaintenanceRun(self._table, action.name, at, time.monotonic() - began, outcome, succeeded)
            self._runs.append(run)
            self._context.metrics.record_maintenance(run.seconds, succeeded)
            _log.log(logging.INFO if succeeded else logging.WARNING, "%s: %s", self._context.job, run)

    def _run_tasks(self, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        results: list[WriteResult] = []
        for task in tasks:
            if self._stopping:
                raise _Stopping
            results += self._context.run_beside([task])
        return results

    def _release(self) -> None:
        try:
            self._lease.release()
        except VolleyError as error:
            # It expires.
            _log.info("%s: the lease of table %s was not released: %s", self._context.job, self._table, error.message)


def _text(error: Exception) -> str:
    if isinstance(error, VolleyError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return f"{type(error).__name__}: {error}"

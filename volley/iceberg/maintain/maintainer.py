"""Maintains the table of a sink while its job runs."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from volley.contracts.epoch import WriteResult
from volley.contracts.reports import MaintenanceReport, MaintenanceRun
from volley.contracts.sink import ExecutorTask, SinkContext
from volley.errors import ConfigError, VolleyError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.actions import Action, actions
from volley.iceberg.maintain.budget import Budget
from volley.iceberg.maintain.lease import Lease
from volley.iceberg.maintain.thread import MaintenanceThread
from volley.iceberg.maintenance import Maintenance

__all__ = ["Maintainer"]

_log = logging.getLogger(__name__)
_RUNS_KEPT = 100
_SECONDS_TO_STOP = 10.0


class _Stopping(Exception):
    """Raised between two tasks to end an action when the job stops."""


class Maintainer:
    """Maintains a table: after some commits, delete files or time, and within its share of the time.

    A failure is logged, and the action is tried again the next time; if the table does not allow it, never again.

    Args:
        maintenance: What is to be done, and when.
        context: The sink's context in the job.
        thread: Calls `maintain` when it is due.
    """

    def __init__(
        self, config: IcebergSinkConfig, maintenance: Maintenance, context: SinkContext, thread: MaintenanceThread
    ) -> None:
        assert isinstance(maintenance.every, timedelta)
        self._settings = maintenance
        self._every = maintenance.every.total_seconds()
        self._context = context
        self._thread = thread
        self._table = config.table_name
        self._actions = actions(config, maintenance, self._run_tasks)
        # Long enough for two turns: the holder renews it in each.
        self._lease = Lease(config.ref, context.job, 2 * self._every)
        self._counts = threading.Lock()
        self._commits = self._delete_files = 0
        self._budget = Budget(maintenance.budget, self._every)
        self._due_at = self._earliest = time.monotonic() + self._every
        self._runs: deque[MaintenanceRun] = deque(maxlen=_RUNS_KEPT)
        self._started = self._stopping = False

    def start(self) -> None:
        """Let the thread maintain the table."""
        self._started = True
        self._earliest = time.monotonic()
        self._thread.add(self)

    def stop(self) -> None:
        """End the running action before its next task, and wait for its end, ten seconds at most."""
        self._stopping = True
        if self._started:
            self._started = False
            if self._thread.remove(self, _SECONDS_TO_STOP):
                self._release()

    def committed(self, delete_files: int) -> None:
        """Count a commit of the job, and the delete files that it added."""
        with self._counts:
            self._commits += 1
            self._delete_files += delete_files
        self._thread.wake(self.due)

    @property
    def due(self) -> float:
        """When maintenance is due, by `time.monotonic`; infinite = not before another commit."""
        if not self._commits:
            return math.inf
        settings = self._settings
        is_due = self._commits >= settings.commits or self._delete_files >= settings.delete_files
        return max(0.0 if is_due else self._due_at, self._earliest)

    @property
    def report(self) -> MaintenanceReport:
        """What was done lately, and when more is due."""
        left = self.due - time.monotonic()
        more = self._settings.commits - self._commits
        due = f"after {max(more, 1):,} more commits" if left == math.inf else f"in {max(left, 0):.0f} s"
        if left != math.inf and more > 0:
            due += f", or after {more:,} more commits"
        return MaintenanceReport(tuple(self._runs), {self._table: due})

    def maintain(self) -> None:
        """Maintain the table once; a failure is logged."""
        with self._counts:
            self._commits = self._delete_files = 0
        began = time.monotonic()
        try:
            self._maintain()
        except _Stopping:
            return
        except Exception as error:
            _log.warning("%s: maintenance of table %s failed: %s", self._context.job, self._table, _text(error))
        now = time.monotonic()
        self._budget.spend(now - began)
        self._due_at = began + self._every
        self._earliest = now + self._budget.rest

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
        except Exception as error:
            # It expires.
            _log.info("%s: the lease of table %s was not released: %s", self._context.job, self._table, _text(error))


def _text(error: Exception) -> str:
    if isinstance(error, VolleyError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return f"{type(error).__name__}: {error}"

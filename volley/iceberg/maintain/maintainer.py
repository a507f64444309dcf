"""Maintains the tables of a sink while its job runs: what is done, when, and by which thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pyiceberg.table.metadata import TableMetadata

from volley.contracts.epoch import WriteResult
from volley.contracts.reports import MaintenanceReport, MaintenanceRun
from volley.contracts.sink import ExecutorTask, SinkContext
from volley.errors import ConfigError, VolleyError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.aging import delete_old_rows
from volley.iceberg.maintain.compaction import compact
from volley.iceberg.maintain.deletes import rewrite_deletes
from volley.iceberg.maintain.expiry import Expired, Rule, expire
from volley.iceberg.maintain.lease import Lease
from volley.iceberg.maintain.manifests import rewrite_manifests
from volley.iceberg.maintain.options import CompactionOptions, DeleteOptions, ManifestOptions, Runner
from volley.iceberg.maintain.values import Compaction, DeleteRewrite, Expiry
from volley.iceberg.modes import Maintenance
from volley.lineage.running import within

__all__ = ["Action", "Budget", "MaintainedTable", "Maintainer", "MaintenanceThread", "actions"]

_log = logging.getLogger(__name__)
_RUNS_KEPT = 100
_SECONDS_TO_STOP = 10.0


class _JobStops(Exception):
    """Raised between two tasks to end an action when the job stops."""


class Maintainer:
    """Maintains a table: after some commits, delete files or time, and within its share of the time.

    A failure is logged, and the action is tried again the next time; if the table does not allow it, never again.
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
        seconds = self.due - time.monotonic()
        more = self._settings.commits - self._commits
        due = f"after {max(more, 1):,} more commits" if seconds == math.inf else f"in {max(seconds, 0):.0f} s"
        if seconds != math.inf and more > 0:
            due += f", or after {more:,} more commits"
        return MaintenanceReport(tuple(self._runs), {self._table: due})

    def maintain(self) -> None:
        """Maintain the table once; a failure is logged."""
        with self._counts:
            self._commits = self._delete_files = 0
        began = time.monotonic()
        try:
            self._maintain()
        except _JobStops:
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
            with within(self._context.job):
                outcome, succeeded = action.run(), True
        except _JobStops:
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
                raise _JobStops
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


# A table that gets one file a commit then has some 8 + log2(files) small files a partition.
_LEAST_FILES = 8
_MIB = 1 << 20
_SPARED = timedelta(hours=1)


@dataclass(frozen=True)
class Action:
    """An action of maintenance.

    Args:
        run: Does what is to be done, and describes it; returns None if there was nothing.
    """

    name: str
    run: Callable[[], str | None]


def actions(config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> list[Action]:
    """Return the actions in their order: the files that a compaction has replaced expire after it."""
    chosen = []
    if maintenance.row_ttl is not None:
        chosen.append(Action("row_ttl", _RowTtl(config, maintenance, run)))
    if maintenance.compact_below is not None:
        chosen.append(Action("compaction", lambda: _compact(config, maintenance, run)))
    if maintenance.deletes:
        chosen.append(Action("deletes", lambda: _merge_deletes(config, maintenance, run)))
    if maintenance.manifests:
        chosen.append(Action("manifests", lambda: _manifests(config)))
    if maintenance.expire_after is not None or maintenance.retain_most is not None:
        chosen.append(Action("expiry", lambda: _expire(config, maintenance)))
    return chosen


# A table is looked through once in so many parts of the age of its oldest rows.
_PARTS_OF_TTL = 100


class _RowTtl:
    """Deletes old rows, each time that the time before which they are old has come on by a part of the age."""

    def __init__(self, config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> None:
        assert isinstance(maintenance.row_ttl, timedelta)
        assert maintenance.row_ttl_column is not None
        self._ref = config.ref
        self._column = maintenance.row_ttl_column
        self._ttl = maintenance.row_ttl
        self._run = run
        self._before: datetime | None = None

    def __call__(self) -> str | None:
        before = datetime.now(UTC) - self._ttl
        if self._before is not None and before - self._before < self._ttl / _PARTS_OF_TTL:
            return None
        done = delete_old_rows(self._ref, self._column, before, self._run)
        self._before = before
        if done.snapshot_id is None:
            return None
        lines = f"{done.rows:,} rows with {self._column} before {before:%Y-%m-%d %H:%M} were deleted"
        return f"{lines}, with {done.files:,} whole files" if done.files else lines


def _compact(config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> str | None:
    assert isinstance(maintenance.compact_below, int)
    target = int(config.target_file_size_mb * _MIB)
    options = CompactionOptions(
        target_size=target,
        # One file a task: an epoch may wait for the core of one.
        group_size=target * 9 // 10,
        small_bytes=maintenance.compact_below,
        least_files=_LEAST_FILES,
        # Large files stay: other writers may want them so.
        large_above=1000,
        deletes_above=maintenance.deletes_above,
        max_time=maintenance.every,
        run=run,
    )
    done = compact(config.ref, options)
    return _line(done) if done.snapshots else None


def _merge_deletes(config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> str | None:
    done = rewrite_deletes(config.ref, DeleteOptions(max_time=maintenance.every, run=run))
    return _line(done) if done.snapshot_id else None


def _manifests(config: IcebergSinkConfig) -> str | None:
    done = rewrite_manifests(config.ref, ManifestOptions())
    return str(done) if done.replaced else None


def _expire(config: IcebergSinkConfig, maintenance: Maintenance) -> str | None:
    now = datetime.now(UTC)
    rules = []
    if maintenance.expire_after is not None:
        assert isinstance(maintenance.expire_after, timedelta)
        rules.append(Rule(now, now - maintenance.expire_after, maintenance.retain_last, table=config.table_name))
    if maintenance.retain_most is not None:
        rules.append(Rule(now, now - _SPARED, maintenance.retain_most, table=config.table_name))

    def plan(metadata: TableMetadata) -> Expired:
        return _union([rule.expired(metadata) for rule in rules])

    done = expire(config.ref, plan, outside=False)
    return _line(done) if done.snapshots or done.refs else None


def _line(done: Compaction | DeleteRewrite | Expiry) -> str:
    return str(done).replace("\n", "; ")


def _union(parts: list[Expired]) -> Expired:
    snapshots = {snapshot.snapshot_id: snapshot for part in parts for snapshot in part.snapshots}
    return Expired(tuple(snapshots.values()), tuple(sorted({ref for part in parts for ref in part.refs})))


class MaintainedTable(Protocol):
    """A table, as the thread sees it."""

    @property
    def due(self) -> float:
        """When the thread is to call `maintain`, by `time.monotonic`; infinite = not before `wake`."""

    def maintain(self) -> None:
        """Maintain the table. Must not raise."""


class MaintenanceThread:
    """Maintains tables when they are due; the thread lives while there are any."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._tables: list[MaintainedTable] = []
        self._current: MaintainedTable | None = None
        self._waits_until = math.inf
        self._runs = False

    def add(self, table: MaintainedTable) -> None:
        """Maintain one more table."""
        with self._changed:
            self._tables.append(table)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._changed.notify_all()

    def remove(self, table: MaintainedTable, seconds: float) -> bool:
        """Maintain a table no more; wait while it is maintained, and return False if that takes too long."""
        with self._changed:
            self._tables.remove(table)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._current is not table, seconds)

    def wake(self, due: float) -> None:
        """Note that a table is due at another time than before."""
        with self._changed:
            if due < self._waits_until:
                self._changed.notify_all()

    def _run(self) -> None:
        while (table := self._next()) is not None:
            table.maintain()

    def _next(self) -> MaintainedTable | None:
        """Wait until a table is due, and return it; None if there is no table left, which ends the thread."""
        with self._changed:
            self._current = None
            self._changed.notify_all()
            while self._tables:
                table = min(self._tables, key=lambda table: table.due)
                self._waits_until = table.due
                seconds = self._waits_until - time.monotonic()
                if seconds <= 0:
                    self._current = table
                    return table
                self._changed.wait(None if seconds == math.inf else seconds)
            self._runs = False
            return None


class Budget:
    """Limits work to a share of the time, on average over a window: a token bucket.

    Short turns follow one another without a rest after a long one, as long as the window has time left.

    Args:
        share: The largest share of the time, above 0 and at most 1.
        window: The window in seconds.
    """

    def __init__(self, share: float, window: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._most = self._left = share * window
        self._clock = clock
        self._at = clock()

    def spend(self, seconds: float) -> None:
        """Count work that has just ended."""
        now = self._clock()
        earned = (now - self._at) * self._share
        self._left = min(self._left + earned, self._most) - seconds
        self._at = now

    @property
    def rest(self) -> float:
        """The seconds without work that are due after the last `spend`."""
        return max(-self._left / self._share, 0.0)

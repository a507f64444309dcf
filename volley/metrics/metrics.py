"""The counters of a running job and of its sinks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from volley.contracts.reports import Lag
from volley.metrics.figures import EpochProgress, TableFigures
from volley.metrics.snapshot import Figures, Labelled, MetricsSnapshot

if TYPE_CHECKING:
    from volley.contracts.epoch import WriteResult

__all__ = ["Metrics"]

# More series are too many for Prometheus.
_TABLES = 100
_OTHER_TABLES = "other"
_COUNTERS = frozenset(field.name for field in fields(MetricsSnapshot) if field.type == "int")


class Metrics(Figures):
    """The counters of a running job; thread-safe.

    Every counter of MetricsSnapshot is an attribute of Metrics, too.

    Args:
        labels: Prometheus labels of these counters: label → value.

    Example:
        >>> metrics = Metrics()
        >>> metrics.record_commit(0.25, succeeded=True)
        >>> metrics.commits_success, metrics.avg_commit_latency_ms()
        (1, 250.0)
    """

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._labels = dict(labels or {})
        self._lock = threading.Lock()
        self._now = MetricsSnapshot()
        self._last_commit: float | None = None
        self._all = [self]
        self._sinks: dict[str, Metrics] = {}
        self._in_use: set[str] = set()
        self._running: Callable[[], EpochProgress | None] = lambda: None
        self._lags: dict[str, Lag] = {}
        self._read: dict[str, int] = {}
        self._tables: dict[str, TableFigures] = {}
        self._last_epoch: int | None = None
        self._state: str | None = None
        self._restarts = 0
        self._watermark: datetime | None = None

    @property
    def state(self) -> str | None:
        """What the job does: ``running``, or ``restarting`` after a failure; None without a job."""
        return self._state

    @property
    def restarts(self) -> int:
        """How often the job was started again after a failure."""
        return self._restarts

    @property
    def last_epoch(self) -> int | None:
        """The number of the last epoch that is in every sink; None before the first of this run."""
        return self._last_epoch

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the job's windows, or joins of streams, after the last epoch: older rows count as late.

        None before the first row of this run, and without either. With several of them, that of the last; each sink
        has its own in `by_sink`.
        """
        return self._watermark

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How far the job is behind each source that can tell, by the source's name, since the last epoch."""
        with self._lock:
            return dict(self._lags)

    @property
    def by_sink(self) -> Mapping[str, Metrics]:
        """The counters of each sink and dead letter, by its label."""
        return dict(self._sinks)

    @property
    def by_source(self) -> Mapping[str, int]:
        """The rows read of each source, by its name, good and bad ones; of an epoch once it is in every sink."""
        with self._lock:
            return dict(self._read)

    @property
    def by_table(self) -> Mapping[str, TableFigures]:
        """The figures of each table of a sink with many, by its name; those after the first hundred under ``other``."""
        with self._lock:
            return dict(self._tables)

    def of_sink(self, label: str) -> Metrics:
        """Return the counters of one sink, from 0 or from an earlier run; what they count also counts here.

        Args:
            label: The sink's label; a second sink with the same label gets a number behind it.
        """
        number, name = 1, label
        while name in self._in_use:
            number += 1
            name = f"{label} {number}"
        self._in_use.add(name)
        if name in self._sinks:
            return self._sinks[name]
        metrics = Metrics({**self._labels, "sink": name})
        metrics._lock = self._lock
        metrics._all = [metrics, self]
        self._sinks[name] = metrics
        return metrics

    def begin_run(self) -> None:
        """Let `of_sink` return the same counters again: a job that starts again asks for them in the same order."""
        self._in_use.clear()

    def follow(self, running: Callable[[], EpochProgress | None]) -> None:
        """Read the progress of the running epoch from this function from now on."""
        self._running = running

    @property
    def running(self) -> EpochProgress | None:
        return self._running()

    def record_state(self, state: Literal["running", "restarting"]) -> None:
        """Note what the job does; ``restarting`` counts a restart."""
        with self._lock:
            self._restarts += state == "restarting"
            self._state = state

    def record_write(self, result: WriteResult) -> None:
        """Count what one task wrote."""
        self._count(lambda now: now.with_write(result))

    def record_commit(self, seconds: float, succeeded: bool) -> None:
        """Count one commit.

        Args:
            seconds: Its duration with all attempts, in seconds.
            succeeded: True if it is known to have landed.
        """
        self._count(lambda now: now.with_commit(seconds, succeeded), committed=succeeded)

    def record_retry(self) -> None:
        """Count one commit attempt after the first."""
        self._count(lambda now: replace(now, commit_retries=now.commit_retries + 1))

    def record_maintenance(self, seconds: float, succeeded: bool) -> None:
        """Count one action of maintenance.

        Args:
            seconds: Its duration, in seconds.
            succeeded: False if it failed.
        """
        self._count(
            lambda now: replace(
                now,
                maintenance_runs=now.maintenance_runs + succeeded,
                maintenance_failed=now.maintenance_failed + (not succeeded),
                maintenance_us=now.maintenance_us + round(seconds * 1_000_000),
            )
        )

    def record_epoch(self, number: int) -> None:
        """Keep the number of an epoch that is in every sink."""
        self._last_epoch = number

    def record_table(self, name: str, rows: int) -> None:
        """Count a commit to one of the tables of a sink.

        Args:
            name: The table's name.
            rows: The rows committed.
        """
        with self._lock:
            label = self._label_of(name)
            self._tables[label] = self._tables.get(label, TableFigures()).with_commit(rows)

    def record_parked(self, rows: Mapping[str, int]) -> None:
        """Keep how many rows wait for tables of a sink, by the tables' names; none wait for any other."""
        with self._lock:
            parked = dict.fromkeys(self._tables, 0)
            for name, count in rows.items():
                label = self._label_of(name)
                parked[label] = parked.get(label, 0) + count
            for label, count in parked.items():
                self._tables[label] = replace(self._tables.get(label, TableFigures()), records_parked=count)

    def _label_of(self, table: str) -> str:
        return table if table in self._tables or len(self._tables) < _TABLES else _OTHER_TABLES

    def record_read(self, source: str, rows: int) -> None:
        """Count rows read of a source.

        Args:
            source: The source's name.
            rows: Their number.
        """
        self._count(lambda now: replace(now, records_read=now.records_read + rows))
        with self._lock:
            self._read[source] = self._read.get(source, 0) + rows

    def record_lag(self, lag: Lag) -> None:
        """Keep how far a source has been read."""
        with self._lock:
            self._lags[lag.source] = lag

    def record_misfits(self, late: int, ahead: int, untimed: int) -> None:
        """Count rows that a step which keeps state by key leaves out."""
        self._count(
            lambda now: replace(
                now,
                rows_late=now.rows_late + late,
                rows_ahead=now.rows_ahead + ahead,
                rows_untimed=now.rows_untimed + untimed,
            )
        )

    def record_lost(self, losses: int) -> None:
        """Count losses of input that a source passed over."""
        self._count(lambda now: replace(now, inputs_lost=now.inputs_lost + losses))

    def record_watermark(self, watermark: datetime | None) -> None:
        """Keep the watermark after an epoch."""
        with self._lock:
            for metrics in self._all:
                metrics._watermark = watermark

    def record_failed(self, rows: int) -> None:
        """Count rows that went to a dead letter, or those of an epoch that could not be committed."""
        self._count(lambda now: replace(now, records_failed=now.records_failed + rows))

    def snapshot(self) -> MetricsSnapshot:
        """Return the current counters."""
        with self._lock:
            return self._current()

    def snapshot_and_reset(self) -> MetricsSnapshot:
        """Return the current counters and reset them to 0, atomically: nothing counts twice or gets lost.

        The counters of the job's sinks are reset, too.
        """
        with self._lock:
            snapshot = self._current()
            for metrics in (self, *self._sinks.values()):
                metrics._now = MetricsSnapshot()
            return snapshot

    def _labelled(self) -> list[Labelled]:
        with self._lock:
            return [(metrics._labels, metrics._current()) for metrics in self._sinks.values() or (self,)]

    def _tabled(self) -> list[tuple[dict[str, str], str, TableFigures]]:
        sinks = (self, *self._sinks.values())
        return [(sink._labels, name, now) for sink in sinks for name, now in sink.by_table.items()]

    def _count(self, change: Callable[[MetricsSnapshot], MetricsSnapshot], committed: bool = False) -> None:
        with self._lock:
            for metrics in self._all:
                metrics._now = change(metrics._now)
                if committed:
                    metrics._last_commit = time.monotonic()

    def _current(self) -> MetricsSnapshot:
        since = None if self._last_commit is None else time.monotonic() - self._last_commit
        return replace(self._now, seconds_since_last_commit=since)

    def __getattr__(self, name: str) -> int:
        if name not in _COUNTERS:
            raise AttributeError(f"Metrics has no {name!r}; its counters are those of MetricsSnapshot")
        counter: int = getattr(self.snapshot(), name)
        return counter

    def __repr__(self) -> str:
        return f"Metrics({self.snapshot()!r})"

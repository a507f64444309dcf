"""The counters of a job and of its sinks, frozen snapshots of them, and the progress of the running epoch."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from volley.exposition import Exposed, Series, exposition
from volley.figures import EpochProgress, Histogram, Lag, TableFigures
from volley.html_table import html_table

if TYPE_CHECKING:
    from volley.epoch import WriteResult

__all__ = ["Metrics", "MetricsSnapshot"]

_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# More series are too many for Prometheus.
_TABLES = 100
_OTHER_TABLES = "other"
_BATCH_RECORDS = (10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, 1_000_000.0)


class Figures(ABC):
    """Averages, rates and exports of the counters, for Metrics and MetricsSnapshot alike."""

    @abstractmethod
    def snapshot(self) -> MetricsSnapshot:
        """Return the current counters."""

    def avg_commit_latency_ms(self) -> float:
        """Return the mean time of a commit with all its attempts, in milliseconds; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.commit_latency_us, now.commits) / 1000

    def avg_write_latency_ms(self) -> float:
        """Return the mean time of writing a batch, in milliseconds; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.write_latency_us, now.batches_flushed) / 1000

    def success_rate(self) -> float:
        """Return the share of commits that landed, 0 to 1; 1 before the first."""
        now = self.snapshot()
        return now.commits_success / now.commits if now.commits else 1.0

    def retry_rate(self) -> float:
        """Return the mean number of retries per commit; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.commit_retries, now.commits)

    def bytes_per_second(self, seconds: float) -> float:
        """Return the bytes written per second over a time of `seconds`; 0 if that is not above 0."""
        return _ratio(self.snapshot().bytes_written, seconds)

    def records_per_second(self, seconds: float) -> float:
        """Return the rows written per second over a time of `seconds`; 0 if that is not above 0."""
        return _ratio(self.snapshot().records_written, seconds)

    def avg_batch_size(self) -> float:
        """Return the mean number of rows per batch; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.batch_size_sum, now.batches_flushed)

    def to_dict(self) -> dict[str, Any]:
        """Return the counters and histograms as a dict of JSON values."""
        return asdict(self.snapshot())

    def to_json(self) -> str:
        """Return the counters and histograms as one line of JSON."""
        return json.dumps(self.to_dict())

    def _repr_html_(self) -> str:
        """Return the counters as a table, for notebooks."""
        return html_table({name: value for name, value in self.to_dict().items() if isinstance(value, int | float)})

    def to_prometheus_format(self, prefix: str = "volley") -> str:
        """Return the metrics in Prometheus' text format; every name starts with ``<prefix>_iceberg_``.

        Args:
            prefix: Letters, digits and underscores, a letter or underscore first.

        Raises:
            ConfigError: If the prefix is not valid in a metric's name.

        Example:
            >>> text = MetricsSnapshot(records_written=3).to_prometheus_format("volley")
            >>> "volley_iceberg_records_written_total 3.0" in text
            True
        """
        return exposition(self.exposed(), prefix)

    def exposed(self) -> Exposed:
        """Return the metrics for Prometheus: one series a sink, or one for a job without sinks."""
        running = self.running
        series = [now.series(labels) for labels, now in self._labelled()]
        lags = [asdict(lag) for lag in self.lags.values()]
        tables = [({**labels, "table": name}, asdict(now)) for labels, name, now in self._tabled()]
        return Exposed(series, asdict(running) if running else None, lags, self.last_epoch, self.watermark, tables)

    def _labelled(self) -> list[_Labelled]:
        return [({}, self.snapshot())]

    def _tabled(self) -> list[tuple[dict[str, str], str, TableFigures]]:
        """Return the labels of each sink with many tables, with the name and the figures of each table."""
        return []

    @property
    def running(self) -> EpochProgress | None:
        """The progress of the running epoch; None between epochs."""
        return None

    @property
    def last_epoch(self) -> int | None:
        """The number of the last epoch that is in every sink; a snapshot of the counters does not have it."""
        return None

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the job's windows; a snapshot of the counters does not have it."""
        return None

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How far the job is behind its sources; a snapshot of the counters does not have it."""
        return {}


_NO_COMMITS = Histogram.empty(_COMMIT_SECONDS)
_NO_BATCHES = Histogram.empty(_BATCH_RECORDS)


@dataclass(frozen=True)
class MetricsSnapshot(Figures):
    """The counters at one moment: frozen, comparable, exportable as JSON.

    Args:
        records_written, bytes_written: Rows written, and their encoded bytes.
        records_failed: Rows in a dead letter, and rows of epochs that could not be committed.
        commits_success, commits_failed: Commits that landed, and those that did not, or may not have.
        commit_retries: Commit attempts after the first.
        files_created, batches_flushed: Files written, and Arrow batches passed to writers.
        commit_latency_us, write_latency_us: Time spent committing, and writing in all tasks; sums in microseconds.
        batch_size_min, batch_size_max, batch_size_sum: Rows of the smallest batch, the largest one, and all.
        maintenance_runs, maintenance_failed: Actions of maintenance that did something, and that failed.
        maintenance_us: Time spent on both, in microseconds.
        worker_memory_bytes: The largest peak memory of a Python worker, in bytes.
        rows_late, rows_ahead, rows_untimed: Rows that are in no window: late ones, ones too far ahead of the clock, and
            ones without a time.
        seconds_since_last_commit: Seconds since the last commit that landed; None before the first. Not compared.
        commit_durations, records_per_batch: Histograms of the seconds per commit, and of the rows per batch.

    Example:
        >>> snapshot = MetricsSnapshot(records_written=300, batches_flushed=2, batch_size_sum=300)
        >>> snapshot.avg_batch_size(), snapshot.records_per_second(seconds=60)
        (150.0, 5.0)
    """

    records_written: int = 0
    records_failed: int = 0
    bytes_written: int = 0
    commits_success: int = 0
    commits_failed: int = 0
    commit_retries: int = 0
    files_created: int = 0
    batches_flushed: int = 0
    commit_latency_us: int = 0
    write_latency_us: int = 0
    batch_size_min: int = 0
    batch_size_max: int = 0
    batch_size_sum: int = 0
    maintenance_runs: int = 0
    maintenance_failed: int = 0
    maintenance_us: int = 0
    worker_memory_bytes: int = 0
    rows_late: int = 0
    rows_ahead: int = 0
    rows_untimed: int = 0
    seconds_since_last_commit: float | None = field(default=None, compare=False)
    commit_durations: Histogram = _NO_COMMITS
    records_per_batch: Histogram = _NO_BATCHES

    @property
    def commits(self) -> int:
        """All commits, whether they landed or not."""
        return self.commits_success + self.commits_failed

    def snapshot(self) -> MetricsSnapshot:
        """Return the snapshot itself."""
        return self

    def series(self, labels: Mapping[str, str]) -> Series:
        """Return the counters, averages and histograms under these labels, for Prometheus."""
        averages = {
            "batches_committed": self.commits_success,
            "commit_seconds": self.commit_latency_us / 1e6,
            "write_seconds": self.write_latency_us / 1e6,
            "maintenance_seconds": self.maintenance_us / 1e6,
            "commit_latency_avg_ms": self.avg_commit_latency_ms(),
            "write_latency_avg_ms": self.avg_write_latency_ms(),
            "success_rate": self.success_rate(),
            "retry_rate": self.retry_rate(),
            "batch_size_avg": self.avg_batch_size(),
        }
        histograms = {"commit_duration_seconds": self.commit_durations, "records_per_batch": self.records_per_batch}
        buckets = {name: (histogram.cumulated(), histogram.total) for name, histogram in histograms.items()}
        return Series(labels, {**vars(self), **averages}, buckets)


_COUNTERS = frozenset(field.name for field in fields(MetricsSnapshot) if field.type == "int")

_Labelled = tuple[dict[str, str], MetricsSnapshot]
"""Labels, and the counters under them."""


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
        self._running: Callable[[], EpochProgress | None] = lambda: None
        self._lags: dict[str, Lag] = {}
        self._tables: dict[str, TableFigures] = {}
        self._last_epoch: int | None = None
        self._watermark: datetime | None = None

    @property
    def last_epoch(self) -> int | None:
        """The number of the last epoch that is in every sink; None before the first of this run."""
        return self._last_epoch

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the job's windows after the last epoch: all windows that end there or before are closed.

        None before the first row of this run, and without windows. With several windowed aggregates, that of the last;
        each sink has its own in `by_sink`.
        """
        return self._watermark

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How far the job is behind each source that knows it, by the source's name, since the last epoch."""
        with self._lock:
            return dict(self._lags)

    @property
    def by_sink(self) -> Mapping[str, Metrics]:
        """The counters of each sink and dead letter, by its label."""
        return dict(self._sinks)

    @property
    def by_table(self) -> Mapping[str, TableFigures]:
        """The figures of each table of a sink with many, by its name; those after the first hundred under ``other``."""
        with self._lock:
            return dict(self._tables)

    def of_sink(self, label: str) -> Metrics:
        """Add counters for one sink and return them; what they count also counts here.

        Args:
            label: The sink's label; a second sink with the same label gets a number behind it.
        """
        number, name = 1, label
        while name in self._sinks:
            number += 1
            name = f"{label} {number}"
        metrics = Metrics({**self._labels, "sink": name})
        metrics._lock = self._lock
        metrics._all = [metrics, self]
        self._sinks[name] = metrics
        return metrics

    def follow(self, running: Callable[[], EpochProgress | None]) -> None:
        """Read the progress of the running epoch from this function from now on."""
        self._running = running

    @property
    def running(self) -> EpochProgress | None:
        return self._running()

    def record_write(self, result: WriteResult) -> None:
        """Count what one task wrote."""
        self._count(lambda now: _with_batches(_with_rows(now, result), result))

    def record_commit(self, seconds: float, succeeded: bool) -> None:
        """Count one commit.

        Args:
            seconds: Its duration with all attempts, in seconds.
            succeeded: True if it is known to have landed.
        """
        self._count(lambda now: _with_commit(now, seconds, succeeded), committed=succeeded)

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

    def record_lag(self, lag: Lag) -> None:
        """Keep how far a source has been read."""
        with self._lock:
            self._lags[lag.source] = lag

    def record_misfits(self, late: int, ahead: int, untimed: int) -> None:
        """Count rows that are in no window."""
        self._count(
            lambda now: replace(
                now,
                rows_late=now.rows_late + late,
                rows_ahead=now.rows_ahead + ahead,
                rows_untimed=now.rows_untimed + untimed,
            )
        )

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

    def _labelled(self) -> list[_Labelled]:
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


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0


def _with_commit(now: MetricsSnapshot, seconds: float, succeeded: bool) -> MetricsSnapshot:
    return replace(
        now,
        commits_success=now.commits_success + succeeded,
        commits_failed=now.commits_failed + (not succeeded),
        commit_latency_us=now.commit_latency_us + round(seconds * 1e6),
        commit_durations=now.commit_durations.observe(seconds),
    )


def _with_rows(now: MetricsSnapshot, result: WriteResult) -> MetricsSnapshot:
    return replace(
        now,
        records_written=now.records_written + result.rows,
        bytes_written=now.bytes_written + result.bytes,
        files_created=now.files_created + result.files,
        write_latency_us=now.write_latency_us + round(result.seconds * 1e6),
        worker_memory_bytes=max(now.worker_memory_bytes, result.worker_memory),
    )


def _with_batches(now: MetricsSnapshot, result: WriteResult) -> MetricsSnapshot:
    if not result.batches:
        return now
    least = result.batch_size_min
    return replace(
        now,
        batches_flushed=now.batches_flushed + result.batches,
        batch_size_min=min(now.batch_size_min, least) if now.batches_flushed else least,
        batch_size_max=max(now.batch_size_max, result.batch_size_max),
        batch_size_sum=now.batch_size_sum + result.rows,
        records_per_batch=_with_sizes(now.records_per_batch, result),
    )


def _with_sizes(sizes: Histogram, result: WriteResult) -> Histogram:
    """Add a task's batches: its smallest and largest, and for each other one the mean of the others."""
    between = result.batches - 2
    sizes = sizes.observe(result.batch_size_max)
    if between >= 0:
        sizes = sizes.observe(result.batch_size_min)
    if between > 0:
        rest = result.rows - result.batch_size_min - result.batch_size_max
        sizes = sizes.observe(rest / between, between)
    return sizes

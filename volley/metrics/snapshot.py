"""The counters of a job at one moment: their averages, rates and exports."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from volley.contracts.reports import Lag
from volley.html_table import html_table
from volley.metrics.exposition import Exposed, Series, exposition
from volley.metrics.figures import EpochProgress, Histogram, TableFigures

if TYPE_CHECKING:
    from volley.contracts.epoch import WriteResult

__all__ = ["Figures", "Labelled", "MetricsSnapshot"]

_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BATCH_RECORDS = (10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, 1_000_000.0)

Labelled = tuple[dict[str, str], "MetricsSnapshot"]
"""Labels, and the counters under them."""


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
        epoch = asdict(running) if running else None
        job = (self.last_epoch, self.watermark, tables, self.state, self.restarts, self.by_source)
        return Exposed(series, epoch, lags, *job)

    def _labelled(self) -> list[Labelled]:
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
    def state(self) -> str | None:
        """What the job does: ``running``, or ``restarting`` after a failure; a snapshot does not have it."""
        return None

    @property
    def restarts(self) -> int:
        """How often the job was started again after a failure; a snapshot does not have it."""
        return 0

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the job's windows and joins; a snapshot of the counters does not have it."""
        return None

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How far the job is behind its sources; a snapshot of the counters does not have it."""
        return {}

    @property
    def by_source(self) -> Mapping[str, int]:
        """The rows read of each source; a snapshot of the counters has only their sum."""
        return {}


_NO_COMMITS = Histogram.empty(_COMMIT_SECONDS)
_NO_BATCHES = Histogram.empty(_BATCH_RECORDS)


@dataclass(frozen=True)
class MetricsSnapshot(Figures):
    """The counters at one moment: frozen, comparable, exportable as JSON.

    Args:
        records_read: Rows read of all sources; of a job only, not of one of its sinks.
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
        rows_late, rows_ahead, rows_untimed: Rows that windows and joins leave out: late ones, ones too far ahead of the
            clock, and ones without a time.
        inputs_lost: Losses that a source passed over as it was told to, as a topic that is gone.
        seconds_since_last_commit: Seconds since the last commit that landed; None before the first. Not compared.
        commit_durations, records_per_batch: Histograms of the seconds per commit, and of the rows per batch.

    Example:
        >>> snapshot = MetricsSnapshot(records_written=300, batches_flushed=2, batch_size_sum=300)
        >>> snapshot.avg_batch_size(), snapshot.records_per_second(seconds=60)
        (150.0, 5.0)
    """

    records_read: int = 0
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
    inputs_lost: int = 0
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

    def with_write(self, result: WriteResult) -> MetricsSnapshot:
        """Return the counters with what one task wrote."""
        written = replace(
            self,
            records_written=self.records_written + result.rows,
            bytes_written=self.bytes_written + result.bytes,
            files_created=self.files_created + result.files,
            write_latency_us=self.write_latency_us + round(result.seconds * 1e6),
            worker_memory_bytes=max(self.worker_memory_bytes, result.worker_memory),
        )
        return written._with_batches(result) if result.batches else written

    def _with_batches(self, result: WriteResult) -> MetricsSnapshot:
        least = result.batch_size_min
        return replace(
            self,
            batches_flushed=self.batches_flushed + result.batches,
            batch_size_min=min(self.batch_size_min, least) if self.batches_flushed else least,
            batch_size_max=max(self.batch_size_max, result.batch_size_max),
            batch_size_sum=self.batch_size_sum + result.rows,
            records_per_batch=_with_sizes(self.records_per_batch, result),
        )

    def with_commit(self, seconds: float, succeeded: bool) -> MetricsSnapshot:
        """Return the counters with one more commit.

        Args:
            seconds: Its duration with all attempts, in seconds.
            succeeded: True if it is known to have landed.
        """
        return replace(
            self,
            commits_success=self.commits_success + succeeded,
            commits_failed=self.commits_failed + (not succeeded),
            commit_latency_us=self.commit_latency_us + round(seconds * 1e6),
            commit_durations=self.commit_durations.observe(seconds),
        )

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


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0


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

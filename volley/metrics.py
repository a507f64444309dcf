"""Counters of a job, frozen snapshots of them, and their Prometheus text."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volley.sink import WriteResult

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Histogram", "Metrics", "MetricsSnapshot"]

_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BATCH_RECORDS = (10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, 1_000_000.0)

_HELP = {
    "records_written": "Rows written to data files",
    "records_failed": "Rows of epochs that could not be committed",
    "bytes_written": "Encoded bytes written",
    "commits_success": "Commits that landed",
    "commits_failed": "Commits that did not land, or may not have",
    "commit_retries": "Commit attempts after the first",
    "files_created": "Data files written",
    "batches_flushed": "Arrow batches handed to writers",
    "batches_committed": "Epochs committed",
}


@dataclass(frozen=True)
class Histogram:
    """Observations sorted into buckets: how many are at most each bound, and their sum.

    Args:
        bounds: The upper bounds of the buckets, ascending; one more bucket holds what is above the last.
        counts: Observations of each bucket, not cumulated; one more than there are bounds.
        total: The sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        """A histogram without observations."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def observe(self, value: float, times: int = 1) -> Histogram:
        """The histogram with `times` more observations of `value`."""
        index = bisect_left(self.bounds, value)
        counts = (*self.counts[:index], self.counts[index] + times, *self.counts[index + 1 :])
        return replace(self, counts=counts, total=self.total + value * times)

    def cumulated(self) -> list[tuple[str, float]]:
        """Prometheus' form: the bound as text and the observations up to it."""
        seen, buckets = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            buckets.append((bound, float(seen)))
        return buckets


_NO_COMMITS = Histogram.empty(_COMMIT_SECONDS)
_NO_BATCHES = Histogram.empty(_BATCH_RECORDS)


@dataclass(frozen=True)
class MetricsSnapshot:
    """The counters at one moment: frozen, comparable, JSON-able.

    Latencies are sums in microseconds; sizes of batches are rows.
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
    seconds_since_last_commit: float | None = field(default=None, compare=False)
    commit_durations: Histogram = _NO_COMMITS
    records_per_batch: Histogram = _NO_BATCHES

    def avg_commit_latency_ms(self) -> float:
        """Mean time of a commit, in milliseconds; 0 before the first."""
        commits = self.commits_success + self.commits_failed
        return self.commit_latency_us / commits / 1000 if commits else 0.0

    def avg_write_latency_ms(self) -> float:
        """Mean time of writing a batch, in milliseconds; 0 before the first."""
        return self.write_latency_us / self.batches_flushed / 1000 if self.batches_flushed else 0.0

    def success_rate(self) -> float:
        """The share of commits that landed, 0 to 1; 1 before the first."""
        commits = self.commits_success + self.commits_failed
        return self.commits_success / commits if commits else 1.0

    def retry_rate(self) -> float:
        """Retries per commit; 0 before the first."""
        commits = self.commits_success + self.commits_failed
        return self.commit_retries / commits if commits else 0.0

    def bytes_per_second(self, seconds: float) -> float:
        """Bytes written per second, if it took `seconds`."""
        return self.bytes_written / seconds if seconds > 0 else 0.0

    def records_per_second(self, seconds: float) -> float:
        """Rows written per second, if it took `seconds`."""
        return self.records_written / seconds if seconds > 0 else 0.0

    def avg_batch_size(self) -> float:
        """Mean rows of a batch; 0 before the first."""
        return self.batch_size_sum / self.batches_flushed if self.batches_flushed else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The counters as plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """The counters as one line of JSON, for logs."""
        return json.dumps(self.to_dict())

    def to_prometheus_format(self, prefix: str) -> str:
        """Prometheus' exposition text, every name beginning with ``<prefix>_iceberg_``.

        Example:
            >>> text = MetricsSnapshot(records_written=3).to_prometheus_format("volley")
            >>> "volley_iceberg_records_written_total 3.0" in text
            True
        """
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.registry import Collector

        class Once(Collector):
            def collect(_: Collector) -> Iterator[Metric]:
                return self._families(f"{prefix}_iceberg")

        registry = CollectorRegistry()
        registry.register(Once())
        return generate_latest(registry).decode()

    def _families(self, prefix: str) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        counters = {**{name: getattr(self, name, 0) for name in _HELP}, "batches_committed": self.commits_success}
        for name, value in counters.items():
            yield CounterMetricFamily(f"{prefix}_{name}", _HELP[name], value=value)
        gauges = {
            "commit_latency_avg_ms": ("Mean commit latency in milliseconds", self.avg_commit_latency_ms()),
            "write_latency_avg_ms": ("Mean write latency of a batch in milliseconds", self.avg_write_latency_ms()),
            "success_rate": ("Share of commits that landed", self.success_rate()),
            "retry_rate": ("Retries per commit", self.retry_rate()),
            "batch_size_avg": ("Mean rows of a batch", self.avg_batch_size()),
        }
        for name, (text, number) in gauges.items():
            yield GaugeMetricFamily(f"{prefix}_{name}", text, value=number)
        if self.seconds_since_last_commit is not None:
            yield GaugeMetricFamily(
                f"{prefix}_seconds_since_last_commit", "Time since the last commit", self.seconds_since_last_commit
            )
        for name, text, histogram in (
            ("commit_duration_seconds", "Commit latency", self.commit_durations),
            ("records_per_batch", "Rows of a batch", self.records_per_batch),
        ):
            yield HistogramMetricFamily(f"{prefix}_{name}", text, histogram.cumulated(), histogram.total)


class Metrics:
    """The counters of a running job: safe to read and to write from several threads.

    Example:
        >>> metrics = Metrics()
        >>> metrics.record_commit(0.25, succeeded=True)
        >>> metrics.commits_success, metrics.avg_commit_latency_ms()
        (1, 250.0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = MetricsSnapshot()
        self._last_commit: float | None = None

    def record_write(self, result: WriteResult) -> None:
        """Count what one task wrote."""
        with self._lock:
            self._now = _with_write(self._now, result)

    def record_commit(self, seconds: float, succeeded: bool) -> None:
        """Count one commit, and how long it took with all its attempts."""
        with self._lock:
            now = self._now
            self._now = replace(
                now,
                commits_success=now.commits_success + succeeded,
                commits_failed=now.commits_failed + (not succeeded),
                commit_latency_us=now.commit_latency_us + round(seconds * 1e6),
                commit_durations=now.commit_durations.observe(seconds),
            )
            if succeeded:
                self._last_commit = time.monotonic()

    def record_retry(self) -> None:
        """Count one commit attempt after the first."""
        with self._lock:
            self._now = replace(self._now, commit_retries=self._now.commit_retries + 1)

    def record_failed(self, rows: int) -> None:
        """Count the rows of an epoch that could not be committed."""
        with self._lock:
            self._now = replace(self._now, records_failed=self._now.records_failed + rows)

    def snapshot(self) -> MetricsSnapshot:
        """The counters as they are now."""
        with self._lock:
            return self._taken()

    def snapshot_and_reset(self) -> MetricsSnapshot:
        """The counters as they are now, and zero from now on: nothing is counted twice or lost between the two."""
        with self._lock:
            taken, self._now = self._taken(), MetricsSnapshot()
            return taken

    def _taken(self) -> MetricsSnapshot:
        since = None if self._last_commit is None else time.monotonic() - self._last_commit
        return replace(self._now, seconds_since_last_commit=since)

    def __getattr__(self, name: str) -> Any:
        # Every counter and computed figure of a snapshot can be asked of the metrics themselves.
        if name.startswith("_") or not hasattr(MetricsSnapshot, name):
            raise AttributeError(f"Metrics has no {name!r}")
        return getattr(self.snapshot(), name)

    def __repr__(self) -> str:
        return f"Metrics({self.snapshot()!r})"


def _with_write(now: MetricsSnapshot, result: WriteResult) -> MetricsSnapshot:
    if not result.batches:
        return now
    mean = result.rows / result.batches
    return replace(
        now,
        records_written=now.records_written + result.rows,
        bytes_written=now.bytes_written + result.bytes,
        files_created=now.files_created + result.files,
        batches_flushed=now.batches_flushed + result.batches,
        write_latency_us=now.write_latency_us + round(result.seconds * 1e6),
        batch_size_min=min(now.batch_size_min or result.batch_size_min, result.batch_size_min),
        batch_size_max=max(now.batch_size_max, result.batch_size_max),
        batch_size_sum=now.batch_size_sum + result.rows,
        # A task reports its batches by number and size range; their mean stands for each of them.
        records_per_batch=now.records_per_batch.observe(mean, result.batches),
    )

"""Counters of a job, frozen snapshots of them, and their Prometheus text."""

from __future__ import annotations

import json
import re
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volley.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from volley.sink import WriteResult

__all__ = ["Histogram", "Metrics", "MetricsSnapshot"]

_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BATCH_RECORDS = (10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, 1_000_000.0)

_COUNTERS = {
    "records_written": "Rows written to data files",
    "records_failed": "Rows in a dead letter, and rows of epochs that could not be committed",
    "bytes_written": "Encoded bytes written",
    "commits_success": "Commits that landed",
    "commits_failed": "Commits that did not land, or may not have",
    "commit_retries": "Commit attempts after the first",
    "files_created": "Data files written",
    "batches_flushed": "Arrow batches handed to writers",
    "commit_latency_us": "Time spent committing, in microseconds",
    "write_latency_us": "Time spent writing, in microseconds, over all tasks",
    "batch_size_sum": "Rows of all batches",
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


class Figures(ABC):
    """What is computed from the counters: the same for running metrics and for a snapshot of them."""

    @abstractmethod
    def snapshot(self) -> MetricsSnapshot:
        """The counters as they are now."""

    def avg_commit_latency_ms(self) -> float:
        """Mean time of a commit with all its attempts, in milliseconds; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.commit_latency_us, now.commits) / 1000

    def avg_write_latency_ms(self) -> float:
        """Mean time of writing a batch, in milliseconds; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.write_latency_us, now.batches_flushed) / 1000

    def success_rate(self) -> float:
        """The share of commits that landed, 0 to 1; 1 before the first."""
        now = self.snapshot()
        return now.commits_success / now.commits if now.commits else 1.0

    def retry_rate(self) -> float:
        """Retries per commit; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.commit_retries, now.commits)

    def bytes_per_second(self, seconds: float) -> float:
        """Bytes written per second, given that it took `seconds`; 0 if that is not above 0."""
        return _ratio(self.snapshot().bytes_written, seconds)

    def records_per_second(self, seconds: float) -> float:
        """Rows written per second, given that it took `seconds`; 0 if that is not above 0."""
        return _ratio(self.snapshot().records_written, seconds)

    def avg_batch_size(self) -> float:
        """Mean rows of a batch; 0 before the first."""
        now = self.snapshot()
        return _ratio(now.batch_size_sum, now.batches_flushed)

    def to_dict(self) -> dict[str, Any]:
        """The counters and histograms as plain values, ready for JSON."""
        return asdict(self.snapshot())

    def to_json(self) -> str:
        """The counters and histograms as one line of JSON."""
        return json.dumps(self.to_dict())

    def to_prometheus_format(self, prefix: str = "volley") -> str:
        """Prometheus' exposition text; every name begins with ``<prefix>_iceberg_``.

        Args:
            prefix: Letters, digits and underscores, a letter or underscore first.

        Raises:
            ConfigError: If the prefix can't begin a metric's name.

        Example:
            >>> text = MetricsSnapshot(records_written=3).to_prometheus_format("volley")
            >>> "volley_iceberg_records_written_total 3.0" in text
            True
        """
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.registry import Collector

        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", prefix):
            raise ConfigError(f"metrics prefix {prefix!r} is not valid", hint="letters, digits and _; no digit first")
        families = list(_families(self.snapshot(), f"{prefix}_iceberg"))

        class Once(Collector):
            def collect(self) -> Iterator[Metric]:
                return iter(families)

        registry = CollectorRegistry()
        registry.register(Once())
        return generate_latest(registry).decode()


_NO_COMMITS = Histogram.empty(_COMMIT_SECONDS)
_NO_BATCHES = Histogram.empty(_BATCH_RECORDS)


@dataclass(frozen=True)
class MetricsSnapshot(Figures):
    """The counters at one moment: frozen, comparable, ready for JSON.

    Latencies are sums in microseconds, sizes of batches are rows. How long ago the last commit was is not compared.
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

    @property
    def commits(self) -> int:
        """Commits that were tried."""
        return self.commits_success + self.commits_failed

    def snapshot(self) -> MetricsSnapshot:
        """Itself."""
        return self


class Metrics(Figures):
    """The counters of a running job: safe to write and to read from several threads.

    Every counter of a snapshot is an attribute here as well.

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
            self._now = _with_batches(_with_rows(self._now, result), result)

    def record_commit(self, seconds: float, succeeded: bool) -> None:
        """Count one commit.

        Args:
            seconds: How long it took, all its attempts together.
            succeeded: Whether it is known to have landed.
        """
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
        """Count rows that went to a dead letter, or those of an epoch that could not be committed."""
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

    def __getattr__(self, name: str) -> int:
        if name not in _COUNTERS and name not in ("batch_size_min", "batch_size_max"):
            raise AttributeError(f"Metrics has no {name!r}; its counters are those of MetricsSnapshot")
        found: int = getattr(self.snapshot(), name)
        return found

    def __repr__(self) -> str:
        return f"Metrics({self.snapshot()!r})"


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0


def _with_rows(now: MetricsSnapshot, result: WriteResult) -> MetricsSnapshot:
    return replace(
        now,
        records_written=now.records_written + result.rows,
        bytes_written=now.bytes_written + result.bytes,
        files_created=now.files_created + result.files,
        write_latency_us=now.write_latency_us + round(result.seconds * 1e6),
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
    """The histogram with a task's batches: their extremes are known, the mean of the others stands for each of them."""
    between = result.batches - 2
    sizes = sizes.observe(result.batch_size_max)
    if between >= 0:
        sizes = sizes.observe(result.batch_size_min)
    if between > 0:
        rest = result.rows - result.batch_size_min - result.batch_size_max
        sizes = sizes.observe(rest / between, between)
    return sizes


def _families(now: MetricsSnapshot, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(f"{prefix}_{name}", text, value=getattr(now, name))
    yield CounterMetricFamily(f"{prefix}_batches_committed", "Epochs committed", value=now.commits_success)
    gauges = {
        "commit_latency_avg_ms": ("Mean time of a commit in milliseconds", now.avg_commit_latency_ms()),
        "write_latency_avg_ms": ("Mean time of writing a batch in milliseconds", now.avg_write_latency_ms()),
        "success_rate": ("Share of commits that landed", now.success_rate()),
        "retry_rate": ("Retries per commit", now.retry_rate()),
        "batch_size_avg": ("Mean rows of a batch", now.avg_batch_size()),
        "batch_size_min": ("Rows of the smallest batch", now.batch_size_min),
        "batch_size_max": ("Rows of the largest batch", now.batch_size_max),
        "seconds_since_last_commit": ("Time since the last commit that landed", now.seconds_since_last_commit),
    }
    for name, (text, value) in gauges.items():
        if value is not None:
            yield GaugeMetricFamily(f"{prefix}_{name}", text, value=value)
    for name, text, histogram in (
        ("commit_duration_seconds", "Time of a commit in seconds", now.commit_durations),
        ("records_per_batch", "Rows of a batch", now.records_per_batch),
    ):
        yield HistogramMetricFamily(f"{prefix}_{name}", text, histogram.cumulated(), histogram.total)

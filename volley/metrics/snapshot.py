"""The counters of a job or a sink at one moment: their averages, rates and exports."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from volley.html_table import html_table
from volley.metrics.exposition import Description, described, exposition, families, registry, versions
from volley.metrics.figures import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["BUILD", "LOSSES", "SERIES", "UNFIT", "Figures", "MetricsSnapshot"]

_NO_COMMITS = Histogram.empty((0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0))
_NO_BATCHES = Histogram.empty((10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, 1_000_000.0))


class Figures(ABC):
    """Averages, rates and exports of the counters, for Metrics and MetricsSnapshot alike."""

    @abstractmethod
    def snapshot(self) -> MetricsSnapshot:
        """Return the current counters."""

    @abstractmethod
    def _collect(self, prefix: str) -> Iterator[Metric]:
        """Yield the metrics as they are now, under names that start with the prefix."""

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
        return exposition(self._collect, prefix)

    def to_registry(self, prefix: str = "volley") -> CollectorRegistry:
        """Return the metrics as a registry of prometheus_client, which reads them whenever it is asked.

        For programs that serve several registries, or push them to a gateway; arguments and errors as of
        `to_prometheus_format`.

        Example:
            >>> registry = MetricsSnapshot(files_created=3).to_registry()
            >>> registry.get_sample_value("volley_iceberg_files_created_total")
            3
        """
        return registry(self._collect, prefix)


def _counter(text: str) -> Any:
    return field(default=0, metadata={"counter": text})


def _gauge(text: str) -> Any:
    return field(default=0, metadata={"gauge": text})


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
        rows_late, rows_ahead, rows_untimed: Rows that keyed steps reject: late ones, early ones (too far ahead of the
            clock), and ones without a time.
        inputs_lost: Losses that a source passed over as it was told to, as a topic that is gone, and files that were
            written again after they were found; of a job only.
        values_rescued, values_dropped: Values of JSON that a contract puts into the column ``rescued``, or leaves out;
            of a job only.
        seconds_since_last_commit: Seconds since the last commit that landed; None before the first. Not compared.
        commit_durations, records_per_batch: Histograms of the seconds per commit, and of the rows per batch.

    Example:
        >>> snapshot = MetricsSnapshot(records_written=300, batches_flushed=2, batch_size_sum=300)
        >>> snapshot.avg_batch_size(), snapshot.records_per_second(seconds=60)
        (150.0, 5.0)
    """

    records_read: int = 0
    records_written: int = _counter("Rows written to data files")
    records_failed: int = _counter("Rows in a dead letter, and rows of epochs that could not be committed")
    bytes_written: int = _counter("Encoded bytes written")
    commits_success: int = _counter("Commits that landed")
    commits_failed: int = _counter("Commits that did not land, or may not have")
    commit_retries: int = _counter("Commit attempts after the first")
    files_created: int = _counter("Files written")
    batches_flushed: int = _counter("Arrow batches passed to writers")
    commit_latency_us: int = _counter("Time spent committing, in microseconds")
    write_latency_us: int = _counter("Time spent writing in all tasks, in microseconds")
    batch_size_min: int = _gauge("Rows of the smallest batch")
    batch_size_max: int = _gauge("Rows of the largest batch")
    batch_size_sum: int = _counter("Rows of all batches")
    maintenance_runs: int = _counter("Actions of maintenance that did something")
    maintenance_failed: int = _counter("Actions of maintenance that failed")
    maintenance_us: int = _counter("Time spent on maintenance, in microseconds")
    worker_memory_bytes: int = _gauge("Largest peak memory of a Python worker")
    rows_late: int = _counter("Rows that keyed steps reject, as they are later than the watermark")
    rows_ahead: int = _counter("Rows that keyed steps reject, as they are too far ahead of the clock")
    rows_untimed: int = _counter("Rows that keyed steps reject, as they have no time")
    inputs_lost: int = 0
    values_rescued: int = 0
    values_dropped: int = 0
    seconds_since_last_commit: float | None = field(
        default=None,
        compare=False,
        metadata={"gauge": "Time since the last commit that landed; absent before the first"},
    )
    commit_durations: Histogram = _NO_COMMITS
    records_per_batch: Histogram = field(default=_NO_BATCHES, metadata={"histogram": "Rows of a batch"})

    @property
    def commits(self) -> int:
        """All commits, whether they landed or not."""
        return self.commits_success + self.commits_failed

    def snapshot(self) -> MetricsSnapshot:
        """Return the snapshot itself."""
        return self

    def _collect(self, prefix: str) -> Iterator[Metric]:
        yield from families(prefix, SERIES, [({}, self)])
        yield from families(prefix, [LOSSES, *UNFIT, BUILD], [({}, self)])


_DERIVED: dict[str, tuple[str, str, Callable[[MetricsSnapshot], Any]]] = {
    "batches_committed": ("counter", "Epochs committed", lambda now: now.commits_success),
    "commit_seconds": ("counter", "Time spent committing, in seconds", lambda now: now.commit_latency_us / 1e6),
    "write_seconds": (
        "counter",
        "Time spent writing in all tasks, in seconds",
        lambda now: now.write_latency_us / 1e6,
    ),
    "maintenance_seconds": (
        "counter",
        "Time spent on actions of maintenance, in seconds",
        lambda now: now.maintenance_us / 1e6,
    ),
    "commit_latency_avg_ms": ("gauge", "Mean time of a commit in milliseconds", Figures.avg_commit_latency_ms),
    "write_latency_avg_ms": ("gauge", "Mean time of writing a batch in milliseconds", Figures.avg_write_latency_ms),
    "success_rate": ("gauge", "Share of commits that landed", Figures.success_rate),
    "retry_rate": ("gauge", "Retries per commit", Figures.retry_rate),
    "batch_size_avg": ("gauge", "Mean rows of a batch", Figures.avg_batch_size),
    "commit_duration_seconds": ("histogram", "Time of a commit in seconds", lambda now: now.commit_durations),
}
SERIES = [*described(MetricsSnapshot), *(Description(name, *rest) for name, rest in _DERIVED.items())]
"""The metrics of a sink, or of a job without sinks: its counters, and what is read from them under further names."""

LOSSES = Description(
    "inputs_lost",
    "counter",
    "Losses of input that a source passed over as it was told to, such as a topic that is gone, and files that were "
    "written again after they were found",
    lambda job: job.snapshot().inputs_lost,
)
UNFIT = [
    Description(
        "values_rescued",
        "counter",
        "Values of JSON in the column rescued, as they fit no other",
        lambda job: job.snapshot().values_rescued,
    ),
    Description(
        "values_dropped",
        "counter",
        "Values of JSON that a contract leaves out",
        lambda job: job.snapshot().values_dropped,
    ),
]
BUILD = Description("build", "info", "Versions of Volley and Python", lambda _: versions())


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0

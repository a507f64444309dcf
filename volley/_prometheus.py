"""Metrics in Prometheus' form: its exposition text, and an HTTP endpoint that serves it while a job runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from volley.errors import ConfigError, JobError
from volley.metrics import EpochProgress, Figures, Histogram, Metrics, MetricsSnapshot, Series

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Endpoint", "exposition"]

_COUNTERS = {
    "records_written": "Rows written to data files",
    "records_failed": "Rows in a dead letter, and rows of epochs that could not be committed",
    "bytes_written": "Encoded bytes written",
    "commits_success": "Commits that landed",
    "commits_failed": "Commits that did not land, or may not have",
    "commit_retries": "Commit attempts after the first",
    "files_created": "Files written",
    "batches_flushed": "Arrow batches handed to writers",
    "commit_latency_us": "Time spent committing, in microseconds",
    "write_latency_us": "Time spent writing, in microseconds, over all tasks",
    "batch_size_sum": "Rows of all batches",
}

_GAUGES: dict[str, tuple[str, Callable[[MetricsSnapshot], float | None]]] = {
    "commit_latency_avg_ms": ("Mean time of a commit in milliseconds", MetricsSnapshot.avg_commit_latency_ms),
    "write_latency_avg_ms": ("Mean time of writing a batch in milliseconds", MetricsSnapshot.avg_write_latency_ms),
    "success_rate": ("Share of commits that landed", MetricsSnapshot.success_rate),
    "retry_rate": ("Retries per commit", MetricsSnapshot.retry_rate),
    "batch_size_avg": ("Mean rows of a batch", MetricsSnapshot.avg_batch_size),
    "batch_size_min": ("Rows of the smallest batch", attrgetter("batch_size_min")),
    "batch_size_max": ("Rows of the largest batch", attrgetter("batch_size_max")),
    "worker_memory_bytes": ("The most memory that a Python worker has had", attrgetter("worker_memory_bytes")),
    "seconds_since_last_commit": (
        "Time since the last commit that landed; absent before the first",
        attrgetter("seconds_since_last_commit"),
    ),
}

_HISTOGRAMS: dict[str, tuple[str, Callable[[MetricsSnapshot], Histogram]]] = {
    "commit_duration_seconds": ("Time of a commit in seconds", attrgetter("commit_durations")),
    "records_per_batch": ("Rows of a batch", attrgetter("records_per_batch")),
}

_RUNNING = {
    "number": "Number of the epoch that runs; absent between epochs",
    "tasks": "Tasks of the running epoch that have ended",
    "rows": "Rows that the running epoch's ended tasks have written",
    "files": "Files that the running epoch's ended tasks have written",
    "bytes": "Encoded bytes that the running epoch's ended tasks have written",
    "seconds": "Time since the running epoch began",
}


def exposition(figures: Figures, prefix: str) -> str:
    """The text that Prometheus reads; every name begins with ``<prefix>_iceberg_``.

    Raises:
        ConfigError: If the prefix can't begin a metric's name.
    """
    from prometheus_client import generate_latest

    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", prefix):
        raise ConfigError(f"metrics prefix {prefix!r} is not valid", hint="letters, digits and _; no digit first")
    return generate_latest(_registry(figures, prefix)).decode()


class Endpoint:
    """Serves the text over HTTP, by a daemon thread, until it is closed.

    Attributes:
        url: Where.

    Args:
        metrics: What to serve.
        host: The address to listen at.
        port: The port; 0 = a free one.

    Raises:
        JobError: If it can't be listened at: the port is taken, or the address is not this machine's.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(port, host, _registry(metrics, "volley"))
        except OSError as error:
            raise JobError(
                f"metrics can't be served at {host}:{port}: {error}",
                hint="take another metrics_port, or 0 for a free one; metrics_host is an address of this machine",
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Answer no more, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _registry(figures: Figures, prefix: str) -> CollectorRegistry:
    """A registry of these metrics alone, which asks them anew whenever it is read."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    class Live(Collector):
        def collect(self) -> Iterator[Metric]:
            return _families(figures, f"{prefix}_iceberg")

    registry = CollectorRegistry()
    registry.register(Live())
    return registry


def _families(figures: Figures, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    series = figures.series()
    labels = list(series[0][0])
    for name, text in _COUNTERS.items():
        yield _filled(CounterMetricFamily(f"{prefix}_{name}", text, labels=labels), series, attrgetter(name))
    committed = CounterMetricFamily(f"{prefix}_batches_committed", "Epochs committed", labels=labels)
    yield _filled(committed, series, attrgetter("commits_success"))
    for name, (text, value) in _GAUGES.items():
        yield _filled(GaugeMetricFamily(f"{prefix}_{name}", text, labels=labels), series, value)
    for name, (text, histogram) in _HISTOGRAMS.items():
        family = HistogramMetricFamily(f"{prefix}_{name}", text, labels=labels)
        for values, now in series:
            family.add_metric([*values.values()], histogram(now).cumulated(), histogram(now).total)
        yield family
    if figures.running is not None:
        yield from _running(figures.running, prefix, series[0][0])


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily,
    series: Sequence[Series],
    value: Callable[[MetricsSnapshot], float | None],
) -> Metric:
    for labels, now in series:
        if (found := value(now)) is not None:
            family.add_metric([*labels.values()], found)
    return family


def _running(epoch: EpochProgress, prefix: str, labels: Mapping[str, str]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    of_job = {name: value for name, value in labels.items() if name != "sink"}
    for name, text in _RUNNING.items():
        family = GaugeMetricFamily(f"{prefix}_running_epoch_{name}", text, labels=list(of_job))
        family.add_metric([*of_job.values()], getattr(epoch, name))
        yield family

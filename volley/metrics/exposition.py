"""Prometheus: the metrics in its text format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from volley.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Exposed", "Series", "exposition", "registry"]

_COUNTERS = {
    "records_written": "Rows written to data files",
    "records_failed": "Rows in a dead letter, and rows of epochs that could not be committed",
    "bytes_written": "Encoded bytes written",
    "commits_success": "Commits that landed",
    "commits_failed": "Commits that did not land, or may not have",
    "commit_retries": "Commit attempts after the first",
    "files_created": "Files written",
    "batches_flushed": "Arrow batches passed to writers",
    "commit_latency_us": "Time spent committing, in microseconds",
    "write_latency_us": "Time spent writing, in microseconds, over all tasks",
    "batch_size_sum": "Rows of all batches",
    "maintenance_runs": "Actions of maintenance that did something",
    "maintenance_failed": "Actions of maintenance that failed",
    "maintenance_us": "Time spent on actions of maintenance, in microseconds",
    "rows_late": "Rows that windows and joins leave out, as they are later than the watermark",
    "rows_ahead": "Rows that windows and joins leave out, as they are too far ahead of the clock",
    "rows_untimed": "Rows that windows and joins leave out, as they have no time",
    "inputs_lost": "Losses of input that a source passed over as it was told to, such as a topic that is gone",
    "batches_committed": "Epochs committed",
    "commit_seconds": "Time spent committing, in seconds",
    "write_seconds": "Time spent writing, in seconds, over all tasks",
    "maintenance_seconds": "Time spent on actions of maintenance, in seconds",
}

_GAUGES = {
    "commit_latency_avg_ms": "Mean time of a commit in milliseconds",
    "write_latency_avg_ms": "Mean time of writing a batch in milliseconds",
    "success_rate": "Share of commits that landed",
    "retry_rate": "Retries per commit",
    "batch_size_avg": "Mean rows of a batch",
    "batch_size_min": "Rows of the smallest batch",
    "batch_size_max": "Rows of the largest batch",
    "worker_memory_bytes": "Largest peak memory of a Python worker",
    "seconds_since_last_commit": "Time since the last commit that landed; absent before the first",
}

_HISTOGRAMS = {
    "commit_duration_seconds": "Time of a commit in seconds",
    "records_per_batch": "Rows of a batch",
}

_RUNNING = {
    "number": "Number of the running epoch; absent between epochs",
    "tasks": "Finished tasks of the running epoch",
    "rows": "Rows written by the finished tasks of the running epoch",
    "files": "Files written by the finished tasks of the running epoch",
    "bytes": "Encoded bytes written by the finished tasks of the running epoch",
    "seconds": "Time since the start of the running epoch",
}

JOB_STATES = ("running", "restarting")
"""The states of a job that serves metrics: it runs, or waits after a failure and begins again."""

_STATE = "1 for what the job does: running, or restarting after a failure; 0 for the other"
_RESTARTS = "How often the job starts again after a failure, the restart that it waits for included"

_WATERMARK = "Watermark of the job's windows, in seconds since 1970"

_TABLES = {
    "records_written": "Rows written to one of the tables of a sink with many",
    "commits": "Commits to one of the tables of a sink with many",
}

_PARKED = "Rows that wait until one of the tables of a sink with many can take them"

_READ = "Rows read of a source, good and bad ones"

_LAGS = {
    "snapshots": "Snapshots of a source that are not read yet, after the last epoch",
    "rows": "Rows of a source that are not read yet, after the last epoch",
    "seconds": "Age of the oldest row of a source that is not read yet, after the last epoch",
    "staged_bytes": "Bytes of a source that the job has received and not committed, after the last epoch",
    "retained_bytes": "Bytes that a source's server keeps for the job, after the last epoch",
}


@dataclass(frozen=True)
class Series:
    """The metrics of one sink.

    Args:
        labels: Their Prometheus labels.
        values: Counters and gauges by name; None or absent = left out.
        buckets: Histograms by name: cumulative buckets, and the sum of all observations.
    """

    labels: Mapping[str, str]
    values: Mapping[str, float | None]
    buckets: Mapping[str, tuple[Sequence[tuple[str, float]], float]]


@dataclass(frozen=True)
class Exposed:
    """The metrics that Prometheus gets in one scrape.

    Args:
        series: One entry a sink.
        running: The progress of the running epoch, by name; None between epochs.
        lags: How far the job is behind each source: ``source``, and figures of which some may be None.
        last_epoch: The number of the last epoch that is in every sink; None before the first.
        watermark: The watermark of the job's windows; None without one.
        tables: The tables of sinks with many: labels, and figures by name.
        state: What the job does, one of JOB_STATES; None = not known.
        restarts: How often it was started again after a failure.
        read: The rows read of each source, by its name.
    """

    series: Sequence[Series]
    running: Mapping[str, float] | None
    lags: Sequence[Mapping[str, Any]] = ()
    last_epoch: int | None = None
    watermark: datetime | None = None
    tables: Sequence[tuple[Mapping[str, str], Mapping[str, float]]] = ()
    state: str | None = None
    restarts: int = 0
    read: Mapping[str, int] = field(default_factory=dict)


def exposition(exposed: Exposed, prefix: str) -> str:
    """Return the metrics in Prometheus' text format; every name starts with ``<prefix>_iceberg_``.

    Raises:
        ConfigError: If the prefix is not valid in a metric's name.
    """
    from prometheus_client import generate_latest

    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", prefix):
        raise ConfigError(f"metrics prefix {prefix!r} is not valid", hint="letters, digits and _; no digit first")
    return generate_latest(registry(lambda: exposed, prefix)).decode()


def registry(read: Callable[[], Exposed], prefix: str) -> CollectorRegistry:
    """Return a registry of these metrics alone, which reads them at every scrape.

    Args:
        read: Returns the current metrics.
        prefix: What every name starts with.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    class Live(Collector):
        def collect(self) -> Iterator[Metric]:
            return _families(read(), f"{prefix}_iceberg")

    registry = CollectorRegistry()
    registry.register(Live())
    return registry


def _families(exposed: Exposed, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    labels = list(exposed.series[0].labels)
    for name, text in _COUNTERS.items():
        yield _filled(CounterMetricFamily(f"{prefix}_{name}", text, labels=labels), exposed.series, name)
    for name, text in _GAUGES.items():
        yield _filled(GaugeMetricFamily(f"{prefix}_{name}", text, labels=labels), exposed.series, name)
    for name, text in _HISTOGRAMS.items():
        histogram = HistogramMetricFamily(f"{prefix}_{name}", text, labels=labels)
        for series in exposed.series:
            histogram.add_metric([*series.labels.values()], *series.buckets[name])
        yield histogram
    yield from _job(exposed, prefix)
    yield from _read(exposed, prefix)
    yield from _lag(exposed, prefix)
    yield from _of_tables(exposed, prefix)
    if exposed.running is not None:
        yield from _running(exposed.running, prefix, _of_job(exposed))


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, series: Sequence[Series], name: str
) -> CounterMetricFamily | GaugeMetricFamily:
    for sink in series:
        if (value := sink.values[name]) is not None:
            family.add_metric([*sink.labels.values()], value)
    return family


def _job(exposed: Exposed, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    of_job = _of_job(exposed)
    if exposed.state is not None:
        state = GaugeMetricFamily(f"{prefix}_job_state", _STATE, labels=[*of_job, "state"])
        for name in JOB_STATES:
            state.add_metric([*of_job.values(), name], name == exposed.state)
        restarts = CounterMetricFamily(f"{prefix}_job_restarts", _RESTARTS, labels=[*of_job])
        restarts.add_metric([*of_job.values()], exposed.restarts)
        yield from (state, restarts)
    info = InfoMetricFamily(f"{prefix}_build", "Versions of Volley and Python", labels=[*of_job])
    info.add_metric([*of_job.values()], _versions())
    yield info
    if exposed.last_epoch is not None:
        epoch = GaugeMetricFamily(f"{prefix}_last_epoch", "Number of the last epoch in every sink", labels=[*of_job])
        epoch.add_metric([*of_job.values()], exposed.last_epoch)
        yield epoch
    if exposed.watermark is not None:
        watermark = GaugeMetricFamily(f"{prefix}_watermark_seconds", _WATERMARK, labels=[*of_job])
        watermark.add_metric([*of_job.values()], exposed.watermark.timestamp())
        yield watermark


@cache
def _versions() -> dict[str, str]:
    return {"version": version("volley-stream"), "python": python_version()}


def _of_job(exposed: Exposed) -> dict[str, str]:
    return {name: value for name, value in exposed.series[0].labels.items() if name != "sink"}


def _read(exposed: Exposed, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    of_job = _of_job(exposed)
    if exposed.read:
        family = CounterMetricFamily(f"{prefix}_source_records_read", _READ, labels=[*of_job, "source"])
        for source, rows in exposed.read.items():
            family.add_metric([*of_job.values(), source], rows)
        yield family


def _lag(exposed: Exposed, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    of_job = _of_job(exposed)
    for name, text in _LAGS.items() if exposed.lags else ():
        family = GaugeMetricFamily(f"{prefix}_source_lag_{name}", text, labels=[*of_job, "source"])
        for lag in exposed.lags:
            if lag[name] is not None:
                family.add_metric([*of_job.values(), lag["source"]], lag[name])
        yield family


def _of_tables(exposed: Exposed, prefix: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if not exposed.tables:
        return
    labels = list(exposed.tables[0][0])
    parked = GaugeMetricFamily(f"{prefix}_table_records_parked", _PARKED, labels=labels)
    counters = {
        name: CounterMetricFamily(f"{prefix}_table_{name}", text, labels=labels) for name, text in _TABLES.items()
    }
    for values, figures in exposed.tables:
        parked.add_metric([*values.values()], figures["records_parked"])
        for name, family in counters.items():
            family.add_metric([*values.values()], figures[name])
    yield from (*counters.values(), parked)


def _running(epoch: Mapping[str, float], prefix: str, of_job: Mapping[str, str]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, text in _RUNNING.items():
        family = GaugeMetricFamily(f"{prefix}_running_epoch_{name}", text, labels=list(of_job))
        family.add_metric([*of_job.values()], epoch[name])
        yield family

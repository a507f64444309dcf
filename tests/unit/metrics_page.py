"""Makes docs/reference/metrics.md, the reference of the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from volley import EpochProgress, Lag, Metrics
from volley.contracts.reports import TableTotals

__all__ = ["exposed", "exposed_text", "page"]

_HEAD = """# Metrics

What `/metrics` serves ([Watch a job](../how-to/monitoring.md)), made from the metrics of a job with one sink, in an
epoch, behind its source. Each has the label `job_name`, those of a sink also `sink`, those of its tables `table`: a
hundred of them, and `other`; those of an expectation `expectation`. `job.metrics` has the counters
under the names between `volley_iceberg_` and `_total`, and averages and rates as methods:
[`Metrics`](api.md#volley.Metrics).

| metric | type | meaning |
| --- | --- | --- |
"""


def exposed() -> list[Metric]:
    """The metrics of a job with a sink, in an epoch, behind its source."""
    return list(text_string_to_metric_families(exposed_text()))


def exposed_text() -> str:
    """The same, as the job serves it."""
    metrics = Metrics({"job_name": "orders"})
    sink = metrics.of_sink("db.orders")
    sink.record_commit(0.1, succeeded=True)
    sink.record_table("db.orders", rows=1)
    metrics.record_read("iceberg:db.events", rows=1)
    lag = Lag("db.events", rows=1, seconds=1.0, snapshots=1, staged_bytes=1, retained_bytes=1, files=1, bytes=1)
    metrics.record_lag(lag)
    sink.record_totals("db.orders", TableTotals(*(1,) * len(fields(TableTotals))))
    metrics.record_expectation("price is not negative", rows=1, failed=1, unknown=1)
    metrics.record_epoch(3)
    metrics.record_state("running")
    metrics.record_state_bytes(1, "windows-0", 1)
    metrics.record_source_watermarks({"iceberg:db.events": datetime(2026, 1, 1, tzinfo=UTC)})
    metrics.record_watermark(datetime(2026, 1, 1, tzinfo=UTC))
    metrics.follow(lambda: EpochProgress(4))
    return metrics.to_prometheus_format()


def page() -> str:
    """The text of the page."""
    return _HEAD + "".join(_rows(exposed()))


def _rows(families: Iterable[Metric]) -> Iterable[str]:
    for family in families:
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        yield f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |\n"


if __name__ == "__main__":
    print(page(), end="")

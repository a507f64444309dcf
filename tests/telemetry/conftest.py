"""The SDK of OpenTelemetry, set up once for the process, as it can't be set again: it keeps in memory what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

from volley import Environment


@dataclass(frozen=True)
class Telemetry:
    """What has been recorded."""

    spans: InMemorySpanExporter
    logs: InMemoryLogRecordExporter
    reader: InMemoryMetricReader

    def record(self, on: bool) -> None:
        """Record from now on, or no more: the tests after these go on with the same providers."""
        self.spans._stopped = self.logs._stopped = not on
        if not on:
            self.spans.clear()
            self.logs.clear()

    def epochs(self, job: str) -> list[ReadableSpan]:
        """The spans of a job's epochs."""
        found = [span for span in self.spans.get_finished_spans() if span.name == "volley.epoch"]
        return [span for span in found if dict(span.attributes or {})["volley.job"] == job]

    def within(self, epoch: ReadableSpan) -> list[ReadableSpan]:
        """The other spans of an epoch's trace, in the order in which they began."""
        assert epoch.context
        spans = [span for span in self.spans.get_finished_spans() if span.context and span is not epoch]
        same = [span for span in spans if span.context.trace_id == epoch.context.trace_id]
        return sorted(same, key=lambda span: span.start_time or 0)

    def values(self, name: str, **labels: str) -> list[Any]:
        """The points of a metric with these labels."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        measured = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        points = [point for metric in measured for point in metric.data.data_points]
        return [point for point in points if labels.items() <= dict(point.attributes or {}).items()]


@pytest.fixture(scope="session")
def providers() -> Telemetry:
    """The process' providers."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider([reader]))
    _logs.set_logger_provider(loggers)
    return Telemetry(spans, logs, reader)


@pytest.fixture
def telemetry(providers: Telemetry) -> Iterator[Telemetry]:
    """What the test records."""
    providers.record(True)
    yield providers
    providers.record(False)


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    """An environment on the one session."""
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"), checkpoint_interval=0)

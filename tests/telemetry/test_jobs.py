"""A trace an epoch, the metrics of jobs and their logs, as the SDK of OpenTelemetry gets them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

from tests.telemetry.conftest import Telemetry
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Job,
    MemorySink,
    MemorySource,
    VolleyError,
    count,
    tumbling,
)


def run(environment: Environment, name: str, rows: int = 4) -> Job:
    """A job of two rows an epoch."""
    source = MemorySource([{"id": number} for number in range(rows)], rows_per_epoch=2)
    return environment.from_source(source).to_sink(MemorySink(name)).execute(name, progress=False)


def test_each_epoch_is_a_trace_of_its_phases(environment: Environment, telemetry: Telemetry, tmp_path: Path) -> None:
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    sink = IcebergSink(IcebergSinkConfig(namespace=["db"], table="events", storage=storage))
    source = MemorySource([{"id": number} for number in range(4)], rows_per_epoch=2)
    environment.from_source(source).to_sink(sink).execute("traced", progress=False)
    first, second = telemetry.epochs("traced")
    assert first.context.trace_id != second.context.trace_id
    assert first.parent is None
    attributes = dict(first.attributes or {})
    assert (attributes["volley.epoch"], attributes["volley.rows"], attributes["volley.files"]) == (0, 2, 1)
    assert dict(second.attributes or {})["volley.epoch"] == 1
    spans = telemetry.within(first)
    names = [span.name for span in spans]
    assert list(dict.fromkeys(names)) == [
        "volley.plan",
        "volley.read",
        "volley.commit",
        "volley.commit.sink",
        "volley.acknowledge",
    ]
    (commit,) = (span for span in spans if span.name == "volley.commit.sink")
    assert "db.events" in str(dict(commit.attributes or {})["volley.sink"])
    phases = [span for span in spans if span.name != "volley.commit.sink"]
    assert all(span.parent and span.parent.span_id == first.context.span_id for span in phases)
    moments = [moment or 0 for span in phases for moment in (span.start_time, span.end_time)]
    assert [first.start_time, *moments, first.end_time] == sorted(
        [first.start_time or 0, *moments, first.end_time or 0]
    )


def test_the_levels_of_keyed_steps_are_a_phase(environment: Environment, telemetry: Telemetry) -> None:
    rows = MemorySource([{"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}])
    windows = environment.from_source(rows).key_by("id").window(tumbling("1m"), on="at").aggregate(n=count())
    windows.to_sink(MemorySink("windows")).execute("windowed", progress=False)
    assert "volley.merge" in [span.name for span in telemetry.within(telemetry.epochs("windowed")[0])]


def fail(row: dict[str, Any]) -> dict[str, Any]:
    """A step that can't process its row."""
    raise ValueError("no such row: https://bot:hunter2hunter2@shop.example.com/")


def test_an_epoch_that_fails(environment: Environment, telemetry: Telemetry) -> None:
    stream = environment.from_source(MemorySource([{"id": 1}])).map(fail)
    with pytest.raises(VolleyError):
        stream.to_sink(MemorySink("out")).execute("failing", progress=False)
    (epoch,) = telemetry.epochs("failing")
    assert epoch.status.status_code is StatusCode.ERROR
    (event,) = epoch.events
    assert "no such row" in str(dict(event.attributes or {})["exception.message"])
    spans = [*telemetry.within(epoch), epoch]
    assert "hunter2" not in "".join(span.to_json() for span in spans)


def test_the_span_in_which_a_job_was_started_is_linked(environment: Environment, telemetry: Telemetry) -> None:
    with trace.get_tracer("test").start_as_current_span("load") as span:
        run(environment, "linked", rows=2)
    (epoch,) = telemetry.epochs("linked")
    assert epoch.context.trace_id != span.get_span_context().trace_id
    assert [link.context for link in epoch.links] == [span.get_span_context()]


def test_the_metrics_of_a_job(environment: Environment, telemetry: Telemetry) -> None:
    """They have the names and labels of those for Prometheus, and stay until the last export."""
    run(environment, "measured")
    job = {"job_name": "measured"}
    (written,) = telemetry.values("volley.iceberg.records_written", **job)
    assert written.value == 4
    (read,) = telemetry.values("volley.iceberg.source_records_read", **job)
    assert (read.value, dict(read.attributes)["source"]) == (4, "memory:memory")
    (seconds,) = telemetry.values("volley.epoch.duration", **job)
    assert (seconds.count, seconds.sum > 0) == (2, True)
    assert [point.count for point in telemetry.values("volley.epoch.phase.duration", phase="commit", **job)] == [2]
    assert telemetry.values("volley.iceberg.job_state", **job) == []


def test_the_gauges_of_a_job_that_runs(environment: Environment, telemetry: Telemetry, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = FileSource(tmp_path / "in", format="json", schema="id long", bounded=False)
    with environment.from_source(source).to_sink(MemorySink("gauged")).start("gauged", progress=False):
        states = telemetry.values("volley.iceberg.job_state", job_name="gauged")
        assert [dict(point.attributes)["state"] for point in states if point.value == 1] == ["running"]
        assert sorted(point.value for point in states) == [*[0] * (len(states) - 1), 1]


def test_the_lines_of_an_epoch_carry_its_trace(
    environment: Environment, telemetry: Telemetry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="volley")
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    sink = IcebergSink(IcebergSinkConfig(namespace=["db"], table="events", storage=storage))
    environment.from_source(MemorySource([{"id": 1}])).to_sink(sink).execute("logged", progress=False)
    (epoch,) = telemetry.epochs("logged")
    records = [json.loads(record.to_json()) for record in telemetry.logs.get_finished_logs()]
    (line,) = [record for record in records if "epoch 0 is in" in str(record["body"])]
    assert int(line["trace_id"], 16) == epoch.context.trace_id
    assert line["severity_text"] == "INFO"
    assert (line["attributes"]["rows"], line["attributes"]["job"]) == (1, "logged")


def test_a_processor_that_raises_fails_no_epoch(
    environment: Environment, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)

    def broken(*args: Any, **options: Any) -> None:
        raise RuntimeError("this processor is broken")

    monkeypatch.setattr(provider._active_span_processor, "on_end", broken)
    assert run(environment, "unbroken").progress.rows == 4
    assert caplog.text.count("spans are not recorded: RuntimeError: this processor is broken") == 1

"""What `volley run` exports by OTLP arrives at an endpoint, which reads it by the project's own messages."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.drivers import Drivers
from tests.processes import ROOT, plain_environment
from tests.telemetry import job

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Collector:
    """An endpoint of OTLP; requests wait until its gate is set."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gate = threading.Event()
        self.gate.set()
        self.taken: dict[str, list[Any]] = defaultdict(list)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """An endpoint that keeps what arrives."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            there.taken[self.path].append(REQUESTS[self.path].FromString(body))
            there.gate.wait(100)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    there = Collector(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield there
    there.gate.set()
    server.shutdown()
    server.server_close()


def test_what_a_job_exports(drivers: Drivers, collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": 2}\n')
    assert drivers.run(job.main, tmp_path, collector.url) == 0
    resources = [part for request in collector.taken["/v1/traces"] for part in request.resource_spans]
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    (epoch,) = [span for span in spans if span.name == "volley.epoch"]
    assert {"volley.plan", "volley.read", "volley.commit"} <= {
        span.name for span in spans if span.trace_id == epoch.trace_id and span.parent_span_id
    }
    named = {pair.key: pair.value.string_value for pair in resources[0].resource.attributes}
    assert named["service.name"] == "volley"
    measured = [
        metric
        for request in collector.taken["/v1/metrics"]
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    (rows,) = [metric for metric in measured if metric.name == "volley.iceberg.records_written"]
    assert rows.sum.is_monotonic
    assert [point.as_int or point.as_double for point in rows.sum.data_points] == [2]
    lines = [
        line
        for request in collector.taken["/v1/logs"]
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for line in scope.log_records
    ]
    (line,) = [line for line in lines if "epoch 0 is in" in line.body.string_value]
    assert line.trace_id == epoch.trace_id


def test_a_program_that_does_not_use_it_does_not_import_it() -> None:
    program = (
        "import sys\n"
        "from volley import Metrics\n"
        "from volley.engine import job\n"
        "from volley.telemetry.traces import Span\n"
        "from volley.telemetry.meters import METERS\n"
        "with Span('volley.read'): METERS.begin('orders', Metrics())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PROGRAM = """
import sys
from volley.cli.telemetry import exported
with exported():
    print("opentelemetry.sdk" in sys.modules)
"""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
    ids=["none", "disabled", "grpc", "no exporter"],
)
def test_nothing_is_set_up_unless_the_environment_asks_for_it(settings: dict[str, str]) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=plain_environment(**settings), capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "False")
    assert ("opentelemetry-instrument" in done.stderr) == ("OTEL_EXPORTER_OTLP_PROTOCOL" in settings)


SILENT = """
from opentelemetry import trace
from volley.cli import telemetry
telemetry._SECONDS_AT_EXIT = 0.1
with telemetry.exported():
    trace.get_tracer("test").start_span("lost").end()
"""


def test_the_command_ends_although_its_endpoint_is_silent(collector: Collector) -> None:
    collector.gate.clear()
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1000"}
    process = subprocess.Popen([sys.executable, "-c", SILENT], cwd=ROOT, env=plain_environment(**settings))
    try:
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()

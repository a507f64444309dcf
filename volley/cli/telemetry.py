"""Sets OpenTelemetry's SDK up for the command, as its environment variables say."""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["exported"]

_log = logging.getLogger(__name__)
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS = ("TRACES", "METRICS", "LOGS")
_PROTOCOL = "http/protobuf"
_SECONDS_AT_EXIT = 5.0


@contextmanager
def exported() -> Iterator[None]:
    """Export traces, metrics and logs by OTLP while the block runs, if the environment names an endpoint.

    What ``opentelemetry-instrument`` has set up already stays as it is.
    """
    signals = [signal for signal in _SIGNALS if _is_wanted(signal)]
    ends = _set_up(signals) if signals and _is_possible() else []
    try:
        yield
    finally:
        _end(ends)


def _end(ends: Sequence[Callable[[], object]]) -> None:
    """Export the rest, all at once: the command does not wait long for an endpoint that does not answer."""
    threads = [threading.Thread(target=end, daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _SECONDS_AT_EXIT
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0))


def _is_wanted(signal: str) -> bool:
    names = (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    is_off = os.environ.get(f"OTEL_{signal}_EXPORTER") == "none"
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return any(os.environ.get(name) for name in names) and not is_off and not is_disabled


def _is_possible() -> bool:
    """Return False, and say why, if Volley can't export as the environment says."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", _PROTOCOL)
    if protocol != _PROTOCOL:
        _log.warning(
            "nothing is exported by OTLP over %s: set it up with opentelemetry-instrument volley run", protocol
        )
        return False
    packages = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if not all(map(_is_installed, packages)):
        _log.warning(
            'nothing is exported by OTLP, as its packages are not installed: pip install "volley-stream[otel]"'
        )
        return False
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    return not isinstance(trace.get_tracer_provider(), TracerProvider)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _set_up(signals: list[str]) -> list[Callable[[], object]]:
    """Set providers that export; return what ends each of them."""
    from opentelemetry import _logs, metrics, trace
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource, ends = Resource.create({} if named else {"service.name": "volley"}), list[Callable[[], object]]()
    if "TRACES" in signals:
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
        ends.append(tracers.shutdown)
    if "METRICS" in signals:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
        ends.append(meters.shutdown)
    if "LOGS" in signals:
        loggers = LoggerProvider(resource, shutdown_on_exit=False)
        loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        _logs.set_logger_provider(loggers)
        ends.append(loggers.shutdown)
    return ends

"""Traces, metrics and logs by OpenTelemetry."""

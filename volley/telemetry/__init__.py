"""Traces, metrics and logs by OpenTelemetry, for programs that have set it up: Volley itself never imports it."""

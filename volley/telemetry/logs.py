"""The log of Volley as records of OpenTelemetry, with the trace of the epoch in which a line was written."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

from volley.secrets import redact_uri

__all__ = ["send_logs"]

_KNOWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class _Handler(logging.Handler):
    """Hands records to the provider of loggers that the program has set."""

    def emit(self, record: logging.LogRecord) -> None:
        from opentelemetry import _logs, context

        if record.name.startswith("opentelemetry"):
            return
        try:
            written = _logs.LogRecord(
                timestamp=int(record.created * 1e9),
                context=context.get_current(),
                severity_text=record.levelname,
                severity_number=_severity(record.levelno),
                body=redact_uri(record.getMessage()),
                attributes=_attributes(record),
            )
            _logs.get_logger(record.name).emit(written)
        except Exception:
            self.handleError(record)


def send_logs() -> None:
    """Hand Volley's log to OpenTelemetry from now on, if the program has set a provider and no handler of its own."""
    if "opentelemetry._logs" not in sys.modules:
        return
    from opentelemetry import _logs

    is_set = not type(_logs.get_logger_provider()).__module__.startswith("opentelemetry._logs")
    logger = logging.getLogger("volley")
    handlers = [*logger.handlers, *logging.getLogger().handlers]
    if is_set and not any(isinstance(handler, _Handler) or _is_theirs(handler) for handler in handlers):
        logger.addHandler(_Handler())


def _is_theirs(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("opentelemetry.")


def _severity(level: int) -> Any:
    from opentelemetry._logs import SeverityNumber

    numbers = {10: SeverityNumber.DEBUG, 20: SeverityNumber.INFO, 30: SeverityNumber.WARN, 40: SeverityNumber.ERROR}
    return numbers.get(level // 10 * 10, SeverityNumber.FATAL if level >= logging.CRITICAL else SeverityNumber.TRACE)


def _attributes(record: logging.LogRecord) -> dict[str, str | int | float | bool]:
    """Return what a record has beside its message: the figures of a commit, the exception."""
    found = {
        name: value
        for name, value in vars(record).items()
        if name not in _KNOWN and isinstance(value, str | int | float | bool)
    }
    found["logger"] = record.name
    if record.exc_info and record.exc_info[1] is not None:
        found["exception.stacktrace"] = redact_uri("".join(traceback.format_exception(record.exc_info[1])))
    return found

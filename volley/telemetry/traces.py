"""Spans of OpenTelemetry: nothing, and no import, in a program that does not use OpenTelemetry."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from volley.metrics.exposition import versions
from volley.secrets import redact_uri

__all__ = ["Attributes", "Span", "current_link"]

_log = logging.getLogger(__name__)

Attributes = Mapping[str, str | int | float | bool]


class Span:
    """A span around a block; errors are told without their tracebacks, and without secrets.

    What a tracer raises is logged, and does not reach the block.

    Args:
        name: Its name.
        attributes: What is known when it begins.
        links: Of a root, spans that have led to it; None = it is a part of the span around it.

    Example:
        >>> with Span("volley.read", {"volley.epoch": 7}) as span:
        ...     span.set({"volley.rows": 500})
    """

    def __init__(self, name: str, attributes: Attributes | None = None, links: Sequence[Any] | None = None) -> None:
        self._name = name
        self._attributes = attributes
        self._links = links
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> Self:
        # A program that has set it up has imported it.
        if "opentelemetry.trace" in sys.modules:
            _guarded(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            _guarded(lambda: self._end(error))

    def set(self, attributes: Attributes) -> None:
        """Add what is known now."""
        if self._span is not None:
            _guarded(lambda: self._span.set_attributes(dict(attributes)))

    def _begin(self) -> None:
        from opentelemetry import context, trace

        around = None if self._links is None else context.Context()
        tracer = trace.get_tracer("volley", versions()["version"])
        self._span = tracer.start_span(self._name, around, attributes=dict(self._attributes or {}), links=self._links)
        self._token = context.attach(trace.set_span_in_context(self._span, around))

    def _end(self, error: BaseException | None) -> None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        try:
            if self._token is not None:
                context.detach(self._token)
            if error is not None:
                text, kind = redact_uri(str(error)), type(error)
                name = f"{kind.__module__}.{kind.__qualname__}"
                self._span.add_event("exception", {"exception.type": name, "exception.message": text})
                self._span.set_status(Status(StatusCode.ERROR, text))
        finally:
            self._span.end()


def current_link() -> list[Any]:
    """Return a link to the span that the caller is in; none if it is in none."""
    links: list[Any] = []

    def add() -> None:
        from opentelemetry import trace

        around = trace.get_current_span().get_span_context()
        if around.is_valid:
            links.append(trace.Link(around))

    if "opentelemetry.trace" in sys.modules:
        _guarded(add)
    return links


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        _warn_once(redact_uri(f"{type(error).__name__}: {error}"))


@lru_cache(maxsize=100)
def _warn_once(error: str) -> None:
    # Each epoch would say it again, several times.
    _log.warning("spans are not recorded: %s", error)

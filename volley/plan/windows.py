"""Windows over event time as plan values: tumbling, sliding and session windows, and how a stream uses them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal as OneOf
from typing import get_args

from volley.checks import Duration, count, duration, duration_or_zero, keep, one_of, optional, text
from volley.errors import ConfigError, brief

__all__ = [
    *("Emission", "LateRows", "Retention", "Session", "Spans", "Timing", "Window", "Windowing"),
    *("microseconds", "session", "sliding", "tumbling"),
]

Emission = OneOf["final", "updates"]
"""When a window's row comes out: once, when the window is closed; or after each change."""

LateRows = OneOf["drop", "dead_letter"]
"""What happens to a row that comes after the watermark."""


@dataclass(frozen=True)
class Spans:
    """Windows of a fixed length, created by `tumbling` and `sliding`; they start at multiples of `every` since 1970.

    Args:
        size: The length of a window.
        every: The time from one start to the next.
    """

    size: timedelta
    every: timedelta

    @property
    def overlaps(self) -> bool:
        """True if a row can be in several windows."""
        return self.every < self.size

    def __repr__(self) -> str:
        if not self.overlaps:
            return f"tumbling({_text(self.size)})"
        return f"sliding({_text(self.size)}, {_text(self.every)})"


@dataclass(frozen=True)
class Session:
    """Windows that end when a key has had no row for a while, created by `session`.

    Args:
        gap: The time without a row that ends a window.
    """

    gap: timedelta

    def __repr__(self) -> str:
        return f"session({_text(self.gap)})"


Window = Spans | Session


@brief
def tumbling(size: Duration) -> Window:
    """Return windows of a fixed length, one after the other: each row is in one.

    They start at multiples of the length since the start of 1970, in UTC (or in the column's own time, if it has no
    zone).

    Args:
        size: The length: a timedelta, seconds or a text such as ``"1m"`` or ``"1 hour"``.

    Raises:
        ConfigError: If it is not a duration above 0.

    Example:
        >>> from volley import tumbling
        >>> tumbling("1 minute")
        tumbling('60s')
    """
    span = duration("size", size)
    return Spans(span, span)


@brief
def sliding(size: Duration, every: Duration) -> Window:
    """Return windows of a fixed length that overlap: a row is in about ``size / every`` of them.

    Args:
        size: The length: a timedelta, seconds or a text such as ``"5m"``.
        every: The time from one start to the next, at most `size`.

    Raises:
        ConfigError: If one is not a duration above 0, or `every` is longer than `size`.

    Example:
        >>> from volley import sliding
        >>> sliding("5m", every="1m")
        sliding('300s', '60s')
    """
    spans = Spans(duration("size", size), duration("every", every))
    if spans.every > spans.size:
        raise ConfigError(
            f"windows of {_text(spans.size)} every {_text(spans.every)} leave rows out", hint="at most the size"
        )
    return spans


@brief
def session(gap: Duration) -> Window:
    """Return windows that hold the rows of a key without a pause: `gap` after its last row a window ends.

    A row exactly `gap` after the one before begins a new window: the old one ends there, and an end is not in a window.
    A window is closed once the watermark is another `gap` behind its end: an earlier row may join it until then.

    Args:
        gap: The length of the pause: a timedelta, seconds or a text such as ``"30m"``.

    Raises:
        ConfigError: If it is not a duration above 0.

    Example:
        >>> from volley import session
        >>> session("30m")
        session('1800s')
    """
    return Session(duration("gap", gap))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How a step that keeps state by key follows event time: its watermark, and the rows that it leaves out.

    Args:
        lateness: How much later than a later row a row can come.
        late: What happens to late rows.
        max_ahead: The longest time that a row can be ahead of the clock; None = no limit.
        idle_after: How long a source without rows holds the watermark back while the job runs; None = for ever.
        buckets: The number of parts that the state is divided into by key.
    """

    lateness: timedelta = timedelta(0)
    late: LateRows = "drop"
    max_ahead: timedelta | None = None
    idle_after: timedelta | None = None
    buckets: int = 16

    def __post_init__(self) -> None:
        keep(self, lateness=duration_or_zero, late=one_of(get_args(LateRows)), buckets=count)
        keep(self, max_ahead=optional(duration), idle_after=optional(duration))


@dataclass(frozen=True)
class Windowing(Timing):
    """A window and how a stream uses it; the arguments of `KeyedStream.window`, checked.

    Args:
        on: The timestamp column.
        emit: When a window's row comes out.
        fill_gaps: The longest time between two windows of a key that windows without rows fill; None = none do.
    """

    window: Window
    on: str
    emit: Emission = "final"
    fill_gaps: timedelta | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.window, Spans | Session):
            raise ConfigError(
                f"window takes a window, not {type(self.window).__name__}", hint='for example tumbling("1m")'
            )
        keep(self, on=text, emit=one_of(get_args(Emission)), fill_gaps=optional(duration))
        if self.fill_gaps and (self.emit != "final" or isinstance(self.window, Session) or self.window.overlaps):
            raise ConfigError(
                f"{self.window!r} with emit {self.emit!r} can't fill gaps",
                hint='tumbling windows with emit="final" can: their neighbours never change',
            )
        super().__post_init__()


@dataclass(frozen=True)
class Retention(Timing):
    """How long the groups of a stream are kept; the arguments of `KeyedStream.retain`, checked.

    Args:
        ttl: How long a group is kept after its last row, by the computer's clock; None = for ever.
    """

    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        keep(self, ttl=optional(duration))
        super().__post_init__()


def microseconds(span: timedelta) -> int:
    """Return a time span as a whole number."""
    return span // timedelta(microseconds=1)


def _text(span: timedelta) -> str:
    return repr(f"{span.total_seconds():g}s")

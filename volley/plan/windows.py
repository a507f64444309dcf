"""Windows over event time as plan values: tumbling, sliding and session windows, and how a stream uses them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal as OneOf
from typing import get_args

from volley.checks import Duration, count, duration, duration_or_zero, keep, one_of, optional, text, zone
from volley.errors import ConfigError, brief

__all__ = [
    *("Calendar", "CalendarUnit", "Cumulative", "Emission", "LateRows", "Retention", "Session", "Spans", "Timing"),
    *("Window", "Windowing", "calendar", "cumulative", "microseconds", "seconds_text"),
    *("session", "sliding", "tumbling"),
]

_MOST_WINDOWS = 100_000

Emission = OneOf["final", "updates"]
"""When a window's row comes out: once, when the window is closed; or after each change."""

CalendarUnit = OneOf["day", "week", "month", "quarter", "year"]
"""The length of a window of the calendar."""

LateRows = OneOf["drop", "dead_letter"]
"""What happens to a row that comes after the watermark."""


@dataclass(frozen=True)
class Spans:
    """Windows of a fixed length, created by `tumbling` and `sliding`.

    Args:
        size: The length of a window.
        every: The time from one start to the next.
        offset: How long after the start of 1970 one of them starts, less than `every`.
    """

    size: timedelta
    every: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        keep(self, size=duration, every=duration, offset=duration_or_zero)
        if self.every > self.size:
            raise ConfigError(
                f"windows of {_text(self.size)} every {_text(self.every)} leave rows out", hint="at most the size"
            )
        _check_number(self.size, self.every)
        if self.offset >= self.every:
            raise ConfigError(
                f"windows every {_text(self.every)} are put off by {_text(self.offset)}", hint="less than that"
            )

    @property
    def overlaps(self) -> bool:
        """True if a row can be in several windows."""
        return self.every < self.size

    def __repr__(self) -> str:
        offset = f", offset={_text(self.offset)}" if self.offset else ""
        if not self.overlaps:
            return f"tumbling({_text(self.size)}{offset})"
        return f"sliding({_text(self.size)}, {_text(self.every)}{offset})"


@dataclass(frozen=True)
class Cumulative:
    """Windows that begin together and end one after the other, created by `cumulative`.

    Args:
        size: The length of the longest one, and the time from one beginning to the next.
        step: The time from one end to the next.
    """

    size: timedelta
    step: timedelta

    def __post_init__(self) -> None:
        keep(self, size=duration, step=duration)
        if self.size % self.step:
            raise ConfigError(
                f"windows of {_text(self.size)} don't consist of steps of {_text(self.step)}",
                hint='the step divides the size: cumulative("1d", step="1h")',
            )
        _check_number(self.size, self.step)

    def __repr__(self) -> str:
        return f"cumulative({_text(self.size)}, {_text(self.step)})"


@dataclass(frozen=True)
class Calendar:
    """Windows of the calendar, created by `calendar`.

    Args:
        unit: Their length.
        zone: The zone whose clocks say when a day begins; None = that of the times themselves.
    """

    unit: CalendarUnit
    zone: str | None = None

    def __post_init__(self) -> None:
        keep(self, unit=one_of(get_args(CalendarUnit)), zone=optional(zone))

    def __repr__(self) -> str:
        return f"calendar({self.unit!r}{f', {self.zone!r}' if self.zone else ''})"


@dataclass(frozen=True)
class Session:
    """Windows that end when a key has had no row for a while, created by `session`.

    Args:
        gap: The time without a row that ends a window.
    """

    gap: timedelta

    def __repr__(self) -> str:
        return f"session({_text(self.gap)})"


Window = Spans | Cumulative | Calendar | Session


@brief
def tumbling(size: Duration, offset: Duration = timedelta(0)) -> Window:
    """Return windows of a fixed length, one after the other: each row is in one.

    They start at multiples of the length since the start of 1970, in UTC (or in the column's own time, if it has no
    zone).

    Args:
        size: The length: a timedelta, seconds or a text such as ``"1m"`` or ``"1 hour"``.
        offset: How much later they start, less than `size`: ``tumbling("1d", offset="6h")``.

    Raises:
        ConfigError: If `size` is not a duration above 0, or `offset` none below it.

    Example:
        >>> from volley import tumbling
        >>> tumbling("1 minute")
        tumbling('60s')
    """
    return Spans(size, size, offset)  # type: ignore[arg-type]


@brief
def sliding(size: Duration, every: Duration, offset: Duration = timedelta(0)) -> Window:
    """Return windows of a fixed length that overlap: a row is in about ``size / every`` of them.

    Args:
        size: The length: a timedelta, seconds or a text such as ``"5m"``.
        every: The time from one start to the next, at most `size`.
        offset: How much later they start, less than `every`.

    Raises:
        ConfigError: If one is not a duration above 0, `every` is longer than `size`, or `offset` not below `every`.

    Example:
        >>> from volley import sliding
        >>> sliding("5m", every="1m")
        sliding('300s', '60s')
    """
    return Spans(size, every, offset)  # type: ignore[arg-type]


@brief
def cumulative(size: Duration, step: Duration) -> Window:
    """Return windows that begin together and end one step after the other: what a day has had, by the hour.

    A row is in the windows of its beginning that end behind it. They begin at multiples of the size since the start of
    1970. Apache Flink has them as `CUMULATE`.

    Args:
        size: The length of the longest one: a timedelta, seconds or a text such as ``"1d"``.
        step: The time from one end to the next, which divides the size.

    Raises:
        ConfigError: If one is not a duration above 0, or `step` does not divide `size`.

    Example:
        >>> from volley import cumulative
        >>> cumulative("1d", step="1h")
        cumulative('86400s', '3600s')
    """
    return Cumulative(size, step)  # type: ignore[arg-type]


@brief
def calendar(unit: CalendarUnit, zone: str | None = None) -> Window:
    """Return windows of the calendar, one after the other: days of 23 to 25 hours where clocks change, and months.

    Args:
        unit: ``"day"``, ``"week"`` (from Monday on), ``"month"``, ``"quarter"`` or ``"year"``.
        zone: The zone whose clocks say when a day begins, such as ``"Europe/Berlin"``; the times have a zone then. None
            = UTC, or the column's own time, if it has no zone.

    Raises:
        ConfigError: If there is no such unit, or no such zone.

    Example:
        >>> from volley import calendar
        >>> calendar("month", "Europe/Berlin")
        calendar('month', 'Europe/Berlin')
    """
    return Calendar(unit, zone)


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
        if not isinstance(self.window, Window):
            raise ConfigError(
                f"window takes a window, not {type(self.window).__name__}", hint='for example tumbling("1m")'
            )
        keep(self, on=text, emit=one_of(get_args(Emission)), fill_gaps=optional(duration))
        is_tumbling = isinstance(self.window, Spans) and not self.window.overlaps
        if self.fill_gaps and (self.emit != "final" or not is_tumbling):
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


def seconds_text(span: timedelta) -> str:
    """Return a time span in seconds, exactly: by the texts of its steps a checkpoint knows that they have changed."""
    text = f"{span.total_seconds():g}"
    # Of more than six digits only where they are needed: those of checkpoints that exist stay as they are.
    return f"{text if timedelta(seconds=float(text)) == span else f'{span.total_seconds():.16g}'}s"


def _check_number(size: timedelta, every: timedelta) -> None:
    """Raise ConfigError if a row would be in too many windows."""
    if size / every > _MOST_WINDOWS:
        raise ConfigError(
            f"a row would be in {size // every:,} windows of {_text(size)} every {_text(every)}",
            hint=f"at most {_MOST_WINDOWS:,}: let them be shorter, or further apart",
        )


def _text(span: timedelta) -> str:
    return repr(seconds_text(span))

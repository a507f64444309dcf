"""Checks of arguments and settings: each returns the normalized value, or raises ConfigError with a hint."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from volley.errors import ConfigError, brief, near

__all__ = [
    "Duration",
    "Instant",
    "between",
    "class_or_type",
    "count",
    "count_or_zero",
    "duration",
    "duration_or_zero",
    "flag",
    "function",
    "instant",
    "keep",
    "mapping",
    "names",
    "of_type",
    "one_of",
    "optional",
    "path",
    "port",
    "seconds",
    "secret",
    "size",
    "text",
]

T = TypeVar("T")
Check = Callable[[str, Any], Any]
Duration = timedelta | float | str
"""A time span: a timedelta, a number of seconds, or a text such as ``"500ms"``, ``"5s"``, ``"2m"``, ``"1 hour"``;
at most 100,000 days."""

Instant = datetime | str
"""A point in time: a datetime, or a text in ISO 8601 such as ``"2026-11-01T12:00+01:00"``; without a zone, in UTC."""

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_UNITS |= {f"{unit}{plural}": f"{unit}s" for unit in ("second", "minute", "hour", "day") for plural in ("", "s")}
# Python waits 292 years at most, and event times up to 146,000 years from 1970 have room for several spans in 64 bits.
_LONGEST = timedelta(days=100_000)
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PRINTABLE = (bool, int, float, str)


@brief
def keep(settings: object, **checks: Check) -> None:
    """Check fields of a frozen dataclass, and replace each value by the one that its check returns.

    Args:
        settings: The dataclass.
        checks: Field name → check.

    Raises:
        ConfigError: If a field is wrong.
    """
    for name, check in checks.items():
        object.__setattr__(settings, name, check(name, getattr(settings, name)))


def optional(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda name, value: None if value is None else check(name, value)


def text(name: str, value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _invalid(name, value, "a text that is not empty")
    return value


def zone(name: str, value: Any) -> str:
    """Return the name of a time zone."""
    try:
        ZoneInfo(text(name, value))
    except Exception as error:
        raise _invalid(name, value, 'a time zone such as "Europe/Berlin", or "UTC"') from error
    return str(value)


def secret(name: str, value: Any) -> str:
    """Return a text that is not empty; errors don't show it."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} is not a text", hint="a text that is not empty, or None")
    return value


def flag(name: str, value: Any) -> bool:
    """Return a bool; nothing else counts as one."""
    if not isinstance(value, bool):
        raise _invalid(name, value, "True or False")
    return value


def count(name: str, value: Any) -> int:
    """Return an int above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _invalid(name, value, "a whole number above 0")
    return value


def between(low: float, high: float) -> Check:
    """Return a check that accepts numbers above one and at most another."""

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
            raise _invalid(name, value, f"a number above {low:,}, at most {high:,}")
        return value

    return check


def count_or_zero(name: str, value: Any) -> int:
    """Return an int of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _invalid(name, value, "a whole number, 0 or more")
    return value


def port(name: str, value: Any) -> int:
    """Return a TCP port; 0 = a free one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise _invalid(name, value, "0 to 65535; 0 = a free port")
    return value


def size(name: str, value: Any) -> int:
    """Return a number of bytes above 0, or a text such as ``"32MB"``, as an int; 1 MB is 1,048,576 bytes.

    Example:
        >>> size("compact_below", "1.5KB"), size("compact_below", 4096)
        (1536, 4096)
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMG]?B)", value, re.IGNORECASE) if isinstance(value, str) else None
    number = int(float(parts[1]) * _BYTES[parts[2].upper()]) if parts else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise _invalid(name, value, 'bytes, or a text such as "512KB", "32MB", "1GB"; above 0')
    return number


def duration(name: str, value: Any) -> timedelta:
    """Return a Duration above 0 as a timedelta.

    Example:
        >>> duration("wait", "1.5m"), duration("wait", 0.2)
        (datetime.timedelta(seconds=90), datetime.timedelta(microseconds=200000))
    """
    return _duration(name, value, timedelta.resolution, "above 0")


def duration_or_zero(name: str, value: Any) -> timedelta:
    """Return a Duration of 0 or more as a timedelta."""
    return _duration(name, value, timedelta(0), "0 or more")


def seconds(name: str, value: Any) -> float:
    """Return a Duration above 0 as a number of seconds."""
    return duration(name, value).total_seconds()


def _duration(name: str, value: Any, least: timedelta, bound: str) -> timedelta:
    try:
        span = _span(value)
    except (OverflowError, ValueError):
        span = None
    if span is None or not least <= span <= _LONGEST:
        hint = f'seconds, a timedelta or a text such as "500ms", "5s", "2m", "1h"; {bound}'
        raise _invalid(name, value, f"{hint}, at most {_LONGEST.days:,} days")
    return span


def _span(value: Any) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]+)", value) if isinstance(value, str) else None
    return timedelta(**{_UNITS[parts[2]]: float(parts[1])}) if parts and parts[2] in _UNITS else None


def instant(name: str, value: Any) -> datetime:
    """Return an Instant as a datetime in UTC.

    Example:
        >>> instant("as_of", "2026-11-01T12:00+01:00").isoformat()
        '2026-11-01T11:00:00+00:00'
    """
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if not isinstance(at, datetime):
        raise _invalid(name, value, 'a datetime, or a text such as "2026-11-01" or "2026-11-01T12:00+01:00"')
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Return a mapping with texts as keys as a dict; errors don't show the values, which may be secrets."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {_type_of(value)}, not a dict", hint='for example {"name": "value"}')
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{name} has the key {key!r}, which is not a text", hint='for example {"name": "value"}')
    return dict(value)


def names(name: str, value: Any) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    listed = (value,) if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        raise _invalid(name, value, "a name, or a list of names")
    for item in listed:
        if not isinstance(item, str) or not item:
            raise ConfigError(f"{name} has {item!r}, which is not a name", hint="a name, or a list of names")
    return tuple(listed)


def path(name: str, value: Any) -> str:
    """Return a path or URL as a text."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str) or not os.fspath(value):
        raise _invalid(name, value, "a path or a URL")
    return os.fspath(value)


def one_of(known: Collection[str]) -> Check:
    """Return a check that accepts one of these texts."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ConfigError(f"{name} {_shown(value)} is unknown", hint=near(str(value), known))
        return value

    return check


def of_type(expected: type[T], hint: str) -> Callable[[str, Any], T]:
    """Return a check that accepts instances of a class.

    Args:
        expected: The class.
        hint: The hint of the error: what to pass instead.
    """

    def check(name: str, value: Any) -> T:
        if not isinstance(value, expected):
            raise ConfigError(f"{name} is {_type_of(value)}, not {expected.__name__}", hint=hint)
        return value

    return check


def function(hint: str) -> Check:
    """Return a check that accepts what can be called; the hint of its error says what to pass instead."""

    def check(name: str, value: Any) -> Any:
        if not callable(value):
            raise ConfigError(f"{name} is {_type_of(value)}, not a function", hint=hint)
        return value

    return check


def _invalid(name: str, value: Any, hint: str) -> ConfigError:
    return ConfigError(f"{name} {_shown(value)} is not valid", hint=hint)


def _shown(value: Any) -> str:
    if isinstance(value, timedelta):
        # str() of a negative timedelta would be "-1 day, 23:59:59".
        return f"{value.total_seconds():g} s"
    return repr(value) if value is None or isinstance(value, _PRINTABLE) else _type_of(value)


def class_or_type(value: object) -> str:
    """Return the type of a value, for an error; a class that is not called is told as one.

    Example:
        >>> class_or_type(5), class_or_type(dict)
        ('int', 'the class dict: call it')
    """
    return f"the class {value.__name__}: call it" if isinstance(value, type) else type(value).__name__


def _type_of(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"

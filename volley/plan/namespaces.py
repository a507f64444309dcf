"""The namespaces of expressions: ``.str`` for texts, ``.dt`` for dates and times, ``.list`` for lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, get_args
from zoneinfo import ZoneInfo

from volley.errors import ExpressionError, near
from volley.plan.json_paths import steps_of

__all__ = ["ClockUnit", "Lists", "Maps", "Strings", "Times", "Unit", "check_clock_unit"]

E = TypeVar("E")
Record = Callable[..., E]

Unit = Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"]
"""A unit of the calendar or the clock."""

_DIRECTIVES = "aAbBdfFHIjmMpSTuUVwWyYz%"

_UNITS: tuple[str, ...] = get_args(Unit)

ClockUnit = Literal["day", "hour", "minute", "second", "millisecond", "microsecond"]
"""A unit of a fixed length."""


class Strings(Generic[E]):
    """Functions of texts; positions and lengths are in characters (Unicode code points), from 0.

    Patterns are regular expressions of RE2: https://github.com/google/re2/wiki/Syntax.

    Example:
        >>> from volley import col
        >>> col("name").str.strip().str.lower()
        col('name').str.strip('').str.lower()
    """

    def __init__(self, record: Record[E]) -> None:
        self._record = record

    def lower(self) -> E:
        """Return the text in lower case, by Unicode's rules for single characters."""
        return self._record("str_lower")

    def upper(self) -> E:
        """Return the text in upper case, by Unicode's rules for single characters."""
        return self._record("str_upper")

    def strip(self, characters: str = "") -> E:
        """Return the text without these characters at both ends; "" = white space."""
        return self._record("str_strip", _text("characters", characters))

    def strip_start(self, characters: str = "") -> E:
        """Return the text without these characters at its start; "" = white space."""
        return self._record("str_strip_start", _text("characters", characters))

    def strip_end(self, characters: str = "") -> E:
        """Return the text without these characters at its end; "" = white space."""
        return self._record("str_strip_end", _text("characters", characters))

    def length(self) -> E:
        """Return the number of characters."""
        return self._record("str_length")

    def byte_length(self) -> E:
        """Return the number of bytes of a text in UTF-8, or of a binary value."""
        return self._record("str_byte_length")

    def slice(self, start: int, length: int | None = None) -> E:
        """Return a part of the text.

        Args:
            start: The first character; a negative one counts from the end.
            length: The most characters; None = up to the end.
        """
        whole = _number("start", start), None if length is None else _number("length", length, 0)
        return self._record("str_slice", *whole)

    def replace(self, part: str, other: str) -> E:
        """Return the text with another one in the place of each occurrence of a part."""
        return self._record("str_replace", _text("part", part, least=1), _text("other", other))

    def replace_pattern(self, pattern: str, other: str) -> E:
        r"""Return the text with another one in the place of each match; ``\1`` in it is the first group."""
        return self._record("str_replace_pattern", _pattern(pattern), _text("other", other))

    def matches(self, pattern: str) -> E:
        """Return true if the pattern matches anywhere in the text; ``^`` and ``$`` bind it to the ends."""
        return self._record("str_matches", _pattern(pattern))

    def extract(self, pattern: str, group: str) -> E:
        """Return what a named group of a pattern matches first, null without a match.

        Args:
            pattern: A pattern with named groups, such as ``"(?P<year>[0-9]{4})"``.
            group: The group's name.
        """
        groups = re.findall(r"\(\?P<(\w+)>", _pattern(pattern))
        if group not in groups:
            raise ExpressionError(
                f"the pattern {pattern!r} has no group named {group!r}",
                hint=near(group, groups) if groups else 'name it: "(?P<name>…)"',
            )
        return self._record("str_extract", pattern, group)

    def starts_with(self, prefix: str) -> E:
        """Return true if the text starts with a prefix."""
        return self._record("starts_with", _text("prefix", prefix))

    def ends_with(self, suffix: str) -> E:
        """Return true if the text ends with a suffix."""
        return self._record("str_ends_with", _text("suffix", suffix))

    def contains(self, part: str) -> E:
        """Return true if the text contains a part."""
        return self._record("contains", _text("part", part))

    def split(self, separator: str) -> E:
        """Return the parts of the text between separators, as a list."""
        return self._record("str_split", _text("separator", separator, least=1))

    def pad_start(self, length: int, character: str = " ") -> E:
        """Return the text with characters before it, up to a length; a longer one stays."""
        return self._record("str_pad_start", _number("length", length, 0), _character(character))

    def pad_end(self, length: int, character: str = " ") -> E:
        """Return the text with characters behind it, up to a length; a longer one stays."""
        return self._record("str_pad_end", _number("length", length, 0), _character(character))

    def reverse(self) -> E:
        """Return the characters in reversed order."""
        return self._record("str_reverse")

    def to_date(self, format: str = "%Y-%m-%d") -> E:
        """Return the date that a text names, null if it does not fit the format.

        Args:
            format: As for C's ``strptime``: ``%Y``, ``%m``, ``%d``, ``%b``, ….
        """
        return self._record("str_to_date", _text("format", format, least=1))

    def to_timestamp(self, format: str = "%Y-%m-%d %H:%M:%S") -> E:
        """Return the wall-clock time that a text names, in whole seconds; null if it does not fit the format.

        Args:
            format: As for C's ``strptime``: ``%Y``, ``%m``, ``%d``, ``%H``, ``%M``, ``%S``, ….
        """
        return self._record("str_to_timestamp", _text("format", format, least=1))

    def to_integer(self) -> E:
        """Return the whole number that a text is, blanks around it left out; null if it is none, or beyond 64 bits."""
        return self._record("str_to_integer")

    def to_double(self) -> E:
        """Return the number that a text is, such as ``1.5`` or ``2e-3``; null if it is none."""
        return self._record("str_to_double")

    def to_decimal(self, precision: int, scale: int) -> E:
        """Return the decimal that a text is; null if it is no number, or needs more digits before or behind the point.

        Args:
            precision: The number of digits, at most 38.
            scale: How many of them are behind the point.
        """
        if not (type(precision) is type(scale) is int and 0 <= scale <= precision and 1 <= precision <= 38):
            raise ExpressionError(f"there is no decimal({precision}, {scale})", hint="0 to 38 digits, such as (10, 2)")
        return self._record("str_to_decimal", precision, scale)

    def json_path(self, path: str) -> E:
        """Return a value out of a JSON text, as a text; null if it has none there, or is no JSON.

        Texts come without quotes, numbers as they are written, objects and arrays as compact JSON. Of a name that an
        object has twice, the last value counts.

        Args:
            path: ``$`` for the whole, then names and places: ``"$.customer.tags[0]"``, ``'$["first name"]'``.
        """
        steps_of(_text("path", path))
        return self._record("str_json_path", path)


class Times(Generic[E]):
    """Functions of dates and times; instants are taken apart in UTC.

    Example:
        >>> from volley import col
        >>> col("at").dt.truncate("hour")
        col('at').dt.truncate('hour')
    """

    def __init__(self, record: Record[E]) -> None:
        self._record = record

    def year(self) -> E:
        """Return the year."""
        return self._record("dt_year")

    def quarter(self) -> E:
        """Return the quarter of the year, from 1."""
        return self._record("dt_quarter")

    def month(self) -> E:
        """Return the month, from 1."""
        return self._record("dt_month")

    def day(self) -> E:
        """Return the day of the month, from 1."""
        return self._record("dt_day")

    def weekday(self) -> E:
        """Return the day of the week, from 1 = Monday to 7 = Sunday."""
        return self._record("dt_weekday")

    def day_of_year(self) -> E:
        """Return the day of the year, from 1."""
        return self._record("dt_day_of_year")

    def iso_week(self) -> E:
        """Return the week of the year by ISO 8601, from 1 to 53."""
        return self._record("dt_iso_week")

    def hour(self) -> E:
        """Return the hour, from 0."""
        return self._record("dt_hour")

    def minute(self) -> E:
        """Return the minute, from 0."""
        return self._record("dt_minute")

    def second(self) -> E:
        """Return the second, from 0, without its fraction."""
        return self._record("dt_second")

    def microsecond(self) -> E:
        """Return the fraction of the second in microseconds."""
        return self._record("dt_microsecond")

    def truncate(self, unit: Unit) -> E:
        """Return the start of the unit in which the time is; weeks start on Mondays.

        Args:
            unit: ``"year"``, ``"quarter"``, ``"month"``, ``"week"`` or ``"day"``; of timestamps also ``"hour"``,
                ``"minute"``, ``"second"`` or ``"millisecond"``.
        """
        if unit not in _UNITS:
            raise ExpressionError(f"truncate has no unit {unit!r}", hint=near(str(unit), _UNITS))
        return self._record("dt_truncate", unit)

    def format(self, format: str) -> E:
        """Return the time as a text.

        Args:
            format: As for C's ``strftime``, in English: ``%Y``, ``%m``, ``%d``, ``%H``, ``%M``, ``%S`` (whole seconds),
                ``%f`` (microseconds, six digits), ``%b``, ``%a``, ``%j``, ``%z`` (of instants), ….
        """
        known = {f"%{each}" for each in _DIRECTIVES}
        if unknown := sorted(set(re.findall("%.?", _text("format", format))) - known):
            raise ExpressionError(f"{format!r} has {', '.join(unknown)}", hint=f"known: {' '.join(sorted(known))}")
        return self._record("dt_format", format)

    def epoch_seconds(self) -> E:
        """Return the whole seconds since 1970, rounded down; `Expr.from_epoch` is the way back."""
        return self._record("dt_epoch_seconds")

    def add(self, days: int = 0, hours: int = 0, minutes: int = 0, seconds: int = 0, microseconds: int = 0) -> E:
        """Return the time after a duration, before it if it is negative; days have 24 hours.

        ``col("at") + timedelta(hours=1)`` is the same. A date takes whole days.
        """
        counts = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds, "microseconds": microseconds}
        return self._record("dt_add", *(_number(name, count) for name, count in counts.items()))

    def add_months(self, months: int) -> E:
        """Return the same day and time some months later; a day that the month does not have becomes its last one."""
        return self._record("dt_add_months", _number("months", months))

    def since(self, earlier: Any, unit: ClockUnit) -> E:
        """Return how many whole units have passed since another time; negative if that is later.

        Args:
            earlier: The other time, with a zone if this one has one.
            unit: ``"day"`` of 24 hours, ``"hour"``, ``"minute"``, ``"second"``, ``"millisecond"`` or
                ``"microsecond"``.
        """
        return self._record("dt_since", earlier, check_clock_unit(unit))

    def in_zone(self, zone: str) -> E:
        """Return what clocks in a zone show at an instant, such as ``"Europe/Berlin"``."""
        return self._record("dt_in_zone", _zone(zone))

    def from_zone(self, zone: str) -> E:
        """Return the instant at which clocks in a zone show a time.

        Of a time that they show twice, the first; of one that they leave out, the end of the gap.
        """
        return self._record("dt_from_zone", _zone(zone))


class Lists(Generic[E]):
    """Functions of lists; positions count from 0.

    Example:
        >>> from volley import col
        >>> col("tags").list.contains("new")
        col('tags').list.contains('new')
    """

    def __init__(self, record: Record[E]) -> None:
        self._record = record

    def length(self) -> E:
        """Return the number of items, nulls included."""
        return self._record("list_length")

    def get(self, position: int) -> E:
        """Return the item at a position, a negative one counted from the end; null if the list is too short."""
        return self._record("list_get", _number("position", position))

    def contains(self, value: Any) -> E:
        """Return true if one of the items equals a constant."""
        return self._record("list_contains", value)

    def join(self, separator: str = "") -> E:
        """Return the items as one text, with a separator between them; nulls are passed over."""
        return self._record("list_join", _text("separator", separator))


class Maps(Generic[E]):
    """Functions of maps.

    Example:
        >>> from volley import col
        >>> col("labels").map.get("country")
        col('labels').map.get('country')
    """

    def __init__(self, record: Record[E]) -> None:
        self._record = record

    def length(self) -> E:
        """Return the number of keys."""
        return self._record("map_length")

    def keys(self) -> E:
        """Return the keys as a list, in the map's order."""
        return self._record("map_keys")

    def values(self) -> E:
        """Return the values as a list, in the order of the keys."""
        return self._record("map_values")

    def get(self, key: Any) -> E:
        """Return the value of a constant key; null without it. Of a key that is there twice, the last value counts."""
        return self._record("map_get", key)

    def contains(self, key: Any) -> E:
        """Return true if the map has a constant key."""
        return self._record("map_contains", key)


def check_clock_unit(unit: str) -> str:
    """Return a unit of a fixed length; raise ExpressionError if it is none."""
    if unit not in get_args(ClockUnit):
        raise ExpressionError(f"{unit!r} is not a unit", hint=near(str(unit), get_args(ClockUnit)))
    return unit


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except Exception as error:
        raise ExpressionError(f"{name!r} is not a time zone", hint='such as "Europe/Berlin", or "UTC"') from error
    return name


def _text(name: str, value: Any, least: int = 0) -> str:
    if not isinstance(value, str) or len(value) < least:
        raise ExpressionError(f"{name} is {value!r}", hint="a text, as a constant" + ("; not empty" if least else ""))
    return value


def _character(value: Any) -> str:
    if len(_text("character", value)) != 1:
        raise ExpressionError(f"character is {value!r}", hint="one character")
    return str(value)


def _number(name: str, value: Any, least: int | None = None) -> int:
    if type(value) is not int or (least is not None and value < least) or abs(value) >= 1 << 31:
        raise ExpressionError(f"{name} is {value!r}", hint="a whole number" + ("" if least is None else ", 0 or more"))
    return value


def _pattern(value: Any) -> str:
    try:
        re.compile(_text("pattern", value))
    except re.error as error:
        raise ExpressionError(f"{value!r} is no pattern: {error}", hint="a regular expression of RE2") from error
    return str(value)

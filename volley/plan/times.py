"""Functions of dates and times: the namespace ``.dt`` of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar, get_args
from zoneinfo import ZoneInfo

from volley.errors import ExpressionError, near
from volley.plan import parameters
from volley.plan.elsewhere import Namespace

__all__ = ["ClockUnit", "Times", "Unit", "check_clock_unit"]

E = TypeVar("E")

Unit = Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"]
"""A unit of the calendar or the clock."""

_DIRECTIVES = "aAbBdfFHIjmMpSTuUVwWyYz%"

_UNITS: tuple[str, ...] = get_args(Unit)

ClockUnit = Literal["day", "hour", "minute", "second", "millisecond", "microsecond"]
"""A unit of a fixed length."""


class Times(Namespace[E]):
    """Functions of dates and times; instants are taken apart in UTC.

    Example:
        >>> from volley import col
        >>> col("at").dt.truncate("hour")
        col('at').dt.truncate('hour')
    """

    _name = "dt"
    _elsewhere: ClassVar[Mapping[str, str]] = {
        "strftime": "format(format)",
        "to_string": "format(format)",
        "date_format": "format(format)",
        "offset_by": "add(days=1)",
        "date_add": "add(days=1)",
        "add_days": "add(days=1)",
        "date": 'truncate("day"), or cast("date") of the expression',
        "floor": 'truncate("hour")',
        "trunc": 'truncate("month")',
        "date_trunc": 'truncate("month")',
        "round": 'truncate("hour")',
        "timestamp": "epoch_seconds()",
        "epoch": "epoch_seconds()",
        "unix_timestamp": "epoch_seconds(), rounded down",
        "convert_time_zone": 'in_zone("Europe/Berlin")',
        "tz_convert": 'in_zone("Europe/Berlin")',
        "replace_time_zone": 'from_zone("Europe/Berlin")',
        "tz_localize": 'from_zone("Europe/Berlin")',
        "week": "iso_week()",
        "weekofyear": "iso_week()",
        "dayofweek": "weekday(), 1 = Monday",
        "day_of_week": "weekday(), 1 = Monday",
        "ordinal_day": "day_of_year()",
        "dayofyear": "day_of_year()",
        "millisecond": "microsecond(), then int_div(1000)",
        "month_start": 'truncate("month")',
        "total_seconds": 'since(earlier, "second")',
        "datediff": 'since(earlier, "day") of two dates: cast("date") both first',
    }

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
        return self._record("dt_format", parameters.directives(format, _DIRECTIVES))

    def epoch_seconds(self) -> E:
        """Return the whole seconds since 1970, rounded down; `Expr.from_epoch` is the way back."""
        return self._record("dt_epoch_seconds")

    def add(self, days: int = 0, hours: int = 0, minutes: int = 0, seconds: int = 0, microseconds: int = 0) -> E:
        """Return the time after a duration, before it if it is negative; days have 24 hours.

        ``col("at") + timedelta(hours=1)`` is the same. A date takes whole days.
        """
        counts = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds, "microseconds": microseconds}
        return self._record("dt_add", *(parameters.number(name, count) for name, count in counts.items()))

    def add_months(self, months: int) -> E:
        """Return the same day and time some months later; a day that the month does not have becomes its last one."""
        return self._record("dt_add_months", parameters.number("months", months))

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

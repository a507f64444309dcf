"""Functions of dates and times: instants are taken apart in UTC, shifted, and moved between zones."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import has_offset, micros, near, part, truncated, year
from volley.columns.compiled import CompiledExpression, Lowering, all_null, computed, of_distinct, wrong_types
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal, parameter
from volley.types.arrow import Datum

__all__ = ["LOWERED"]

_DAYS = ("year", "quarter", "month", "week", "day")
_MICROS = {
    **{"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000},
    **{"second": 1_000_000, "millisecond": 1_000, "microsecond": 1},
}
_DAY = _MICROS["day"]
_INSTANT = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Arrow knows the changes of a zone's clocks that its file lists, to 2037, and not the rule for those after it.
_LISTED = (datetime(2037, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND


def _is_day(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _is_clock(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type) or pa.types.is_time(data_type))


def _part(compute: Callable[[Datum], Datum], fits: Callable[[pa.DataType], bool], what: str) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (value,) = args
        _check(node, value, fits, what)
        return computed(pa.int32(), lambda times: compute(times).cast(pa.int32()), value)

    return lower


def _check(node: Call, value: CompiledExpression, fits: Callable[[pa.DataType], bool], what: str) -> None:
    if all_null(value) or not fits(value.type):
        raise wrong_types(node, [value.type], what)


def _moment(node: Call, value: CompiledExpression) -> CompiledExpression:
    """Return the value; raise ExpressionError unless it is a date or timestamp."""
    _check(node, value, _is_day, "a date or timestamp")
    return value


def _day(compute: Callable[[Datum], Datum]) -> Lowering:
    return _part(part(compute), _is_day, "a date or timestamp")


def _clock(compute: Callable[[Datum], Datum]) -> Lowering:
    return _part(compute, _is_clock, "a timestamp or time")


def _microsecond(value: Datum) -> Datum:
    return pc.add(pc.multiply(pc.millisecond(value), 1_000), pc.microsecond(value))


def _truncate(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, unit = _moment(node, args[0]), parameter(node)
    if pa.types.is_date(value.type) and unit not in _DAYS:
        raise wrong_types(node, [value.type], f"a timestamp for the unit {unit!r}")
    return computed(value.type, lambda times: truncated(times, unit), value, can_fail=True)


def _epoch_seconds(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    _check(node, value, pa.types.is_timestamp, "a timestamp")

    def compute(times: Datum) -> Datum:
        numbers = micros(times)
        # Division rounds towards 0.
        rounded = pc.divide(numbers, 1_000_000)
        return pc.if_else(pc.less(numbers, pc.multiply(rounded, 1_000_000)), pc.subtract(rounded, 1), rounded)

    return computed(pa.int64(), compute, value)


def _format(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, format = _moment(node, args[0]), parameter(node)
    zone = value.type.tz if pa.types.is_timestamp(value.type) else None
    if zone is None and has_offset(format):
        raise wrong_types(node, [value.type], "an instant for %z")
    # Arrow has no %f.
    runs = [(fraction, "".join(run)) for fraction, run in groupby(re.split("(%.)", format), lambda part: part == "%f")]

    def compute(times: Datum) -> Datum:
        values = near(times)
        # Arrow writes the fraction of a finer unit with %S.
        seconds = pc.floor_temporal(values, unit="second").cast(pa.timestamp("s", zone))
        precise = seconds if pa.types.is_date(value.type) else values
        texts = [_fraction(precise) if is_fraction else pc.strftime(seconds, run) for is_fraction, run in runs]
        return pc.binary_join_element_wise(*texts, "")

    return computed(pa.string(), compute, value, can_fail=True)


def _fraction(value: Datum) -> Datum:
    return pc.utf8_lpad(_microsecond(value).cast(pa.string()), width=6, padding="0")


def _add(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, units = _moment(node, args[0]), ("day", "hour", "minute", "second", "microsecond")
    counts = (arg.value for arg in node.args[1:] if isinstance(arg, Literal))
    span = sum(count * _MICROS[unit] for count, unit in zip(counts, units, strict=True))
    is_date = pa.types.is_date(value.type)
    if is_date and span % _DAY:
        raise wrong_types(node, [value.type], "a timestamp, as the duration is not of whole days")
    reach = 2**31 * _DAY if is_date else 2**63
    if not -reach <= span * (1 if is_date else _per_micro(value.type)) < reach:
        raise ExpressionError(f"{node!r}: the duration is beyond the range of its type", hint="a shorter duration")
    if not is_date:
        return computed(value.type, lambda times: _shifted(times, span), value, can_fail=True)
    days = pa.scalar(span // _DAY, pa.int32())

    def days_later(dates: Datum) -> Datum:
        return pc.add_checked(dates.cast(pa.int32()), days).cast(value.type)

    return computed(value.type, days_later, value, can_fail=True)


def _shifted(values: pa.Array, span: int) -> pa.Array:
    numbers = pa.scalar(span * _per_micro(values.type), pa.int64())
    return pc.add_checked(values.cast(pa.int64()), numbers).cast(values.type)


def _per_micro(data_type: pa.DataType) -> int:
    """Return how many units of a type of timestamps are a microsecond."""
    return 1_000 if data_type.unit == "ns" else 1


def _add_months(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, months = _moment(node, args[0]), parameter(node)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = value.column(batch)
        numbers, missing = _numbers(values)
        if pa.types.is_date(values.type):
            return pa.array(_months_later(numbers, months), mask=missing).cast(pa.int32()).cast(values.type)
        day = _DAY * _per_micro(values.type)
        days, rest = np.divmod(numbers, day)
        later = pa.array(_months_later(days, months), mask=missing)
        return _at(later, day, pa.array(rest)).cast(values.type)

    return CompiledExpression(value.type, evaluate, True)


def _at(days: pa.Array, day: int, rest: pa.Array) -> pa.Array:
    """Return days since 1970 and what follows them as numbers; a time before 1970 is counted back from the next day."""
    before = pc.less(days, 0)
    ends = pc.multiply_checked(pc.if_else(before, pc.add(days, 1), days), day)
    return pc.add_checked(ends, pc.if_else(before, pc.subtract(rest, day), rest))


def _months_later(days: npt.NDArray[np.int64], months: int) -> npt.NDArray[np.int64]:
    """Return days since 1970 some months later; a day that the month does not have becomes its last one."""
    month = days.view("datetime64[D]").astype("datetime64[M]")
    in_month = days - _first_day(month)
    later = month + np.timedelta64(months, "M")
    return np.minimum(_first_day(later) + in_month, _first_day(later + np.timedelta64(1, "M")) - 1)


def _first_day(months: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return months.astype("datetime64[D]").view(np.int64)


def _numbers(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return days or microseconds since 1970, 0 for null, and which values are null."""
    stored = pa.int32() if pa.types.is_date(values.type) else pa.int64()
    numbers = values.cast(stored).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64), values.is_null().to_numpy(zero_copy_only=False)


def _since(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    later, earlier = (_moment(node, arg) for arg in args[:2])
    if getattr(later.type, "tz", None) != getattr(earlier.type, "tz", None):
        raise wrong_types(node, [later.type, earlier.type], "two instants, or two times without a zone")
    unit = _MICROS[parameter(node)]
    if "ns" in (getattr(later.type, "unit", None), getattr(earlier.type, "unit", None)):
        fine, unit = pa.timestamp("ns", getattr(later.type, "tz", None)), unit * 1_000
    else:
        fine = pa.timestamp("us", getattr(later.type, "tz", None))

    def compute(later: Datum, earlier: Datum) -> Datum:
        span = pc.subtract_checked(later.cast(fine).cast(pa.int64()), earlier.cast(fine).cast(pa.int64()))
        # Division rounds towards 0.
        return pc.divide(span, unit)

    return computed(pa.int64(), compute, later, earlier, can_fail=True)


def _in_zone(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, zone = args[0], parameter(node)
    if not pa.types.is_timestamp(value.type) or value.type.tz is None:
        raise wrong_types(node, [value.type], "an instant: a timestamp with a zone")
    there, rules = pa.timestamp(value.type.unit, zone), ZoneInfo(zone)

    def compute(instants: Datum) -> Datum:
        values = near(instants).cast(there)
        return _by_rule(values, pc.local_timestamp(values), lambda instant: instant + _offset(instant, rules))

    return computed(pa.timestamp(value.type.unit), compute, value, can_fail=True)


def _from_zone(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, zone = args[0], parameter(node)
    if not pa.types.is_timestamp(value.type) or value.type.tz is not None:
        raise wrong_types(node, [value.type], "a wall-clock time: a timestamp without a zone")

    rules, instant = ZoneInfo(zone), pa.timestamp(value.type.unit, "UTC")

    def compute(clocks: Datum) -> Datum:
        values = near(clocks)
        instants = pc.assume_timezone(values, zone, ambiguous="earliest", nonexistent="latest").cast(instant)
        return _by_rule(values, instants, lambda wall: _instant(wall, rules))

    return computed(instant, compute, value, can_fail=True)


def _by_rule(values: Datum, by_arrow: Datum, compute: Callable[[int], int]) -> Datum:
    """Return what Arrow computed, and for times after its list of changes what a function computes by a zone's rule.

    Args:
        compute: The same for one time, in microseconds since 1970; it raises OverflowError beyond Python's years.
    """
    numbers = micros(values)
    late = pc.greater_equal(numbers, _LISTED)
    if not pc.any(late).as_py():
        return by_arrow

    def by_rule(time: int) -> int | None:
        try:
            return compute(time)
        except OverflowError:
            return None

    ruled = of_distinct(pc.if_else(late, numbers, pa.scalar(None, pa.int64())), by_rule, pa.int64())
    if by_arrow.type.unit != "ns":
        return pc.coalesce(ruled, micros(by_arrow)).cast(by_arrow.type)
    # Clocks are moved by whole seconds: the nanoseconds stay.
    rest = pc.subtract(values.cast(pa.int64()), pc.multiply(numbers, 1_000))
    return pc.coalesce(pc.add(pc.multiply(ruled, 1_000), rest), by_arrow.cast(pa.int64())).cast(by_arrow.type)


def _offset(instant: int, rules: ZoneInfo) -> int:
    """Return how far clocks are ahead of UTC at an instant; all in microseconds."""
    return _ahead((_EPOCH + timedelta(microseconds=instant)).astimezone(rules))


def _instant(wall: int, rules: ZoneInfo) -> int:
    """Return the instant at which clocks show a time first, or the end of the gap that leaves it out."""
    clock = (_EPOCH + timedelta(microseconds=wall)).replace(tzinfo=rules)
    before, after = _ahead(clock), _ahead(clock.replace(fold=1))
    if before >= after:
        return wall - before
    span = range(wall - after, wall - before)
    return span.start + bisect_left(span, after, key=lambda instant: _offset(instant, rules))


def _ahead(clock: datetime) -> int:
    return (clock.utcoffset() or timedelta()) // _MICROSECOND


def _from_epoch(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, unit = args[0], _MICROS[parameter(node)]
    if not pa.types.is_integer(value.type):
        raise wrong_types(node, [value.type], "a whole number")
    factor = pa.scalar(unit, pa.int64())

    def compute(counts: Datum) -> Datum:
        return pc.multiply_checked(counts.cast(pa.int64()), factor).cast(_INSTANT)

    return computed(_INSTANT, compute, value, can_fail=True)


LOWERED: dict[str, Any] = {
    "dt_year": _part(year, _is_day, "a date or timestamp"),
    "dt_quarter": _day(pc.quarter),
    "dt_month": _day(pc.month),
    "dt_day": _day(pc.day),
    "dt_weekday": _day(lambda value: pc.day_of_week(value, count_from_zero=False)),
    "dt_day_of_year": _day(pc.day_of_year),
    "dt_iso_week": _day(pc.iso_week),
    "dt_hour": _clock(pc.hour),
    "dt_minute": _clock(pc.minute),
    "dt_second": _clock(pc.second),
    "dt_microsecond": _clock(_microsecond),
    "dt_truncate": _truncate,
    "dt_format": _format,
    "dt_epoch_seconds": _epoch_seconds,
    "dt_add": _add,
    "dt_add_months": _add_months,
    "dt_since": _since,
    "dt_in_zone": _in_zone,
    "dt_from_zone": _from_zone,
    "from_epoch": _from_epoch,
}
"""The lowering of each function."""

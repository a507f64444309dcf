"""Functions of dates and times; instants are taken apart in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import near, part, truncated, year
from volley.columns.compiled import CompiledExpression, Datum, Lowering, all_null, misfit, parameter
from volley.columns.moments import has_offset
from volley.plan.expression_nodes import Call

__all__ = ["LOWERED", "moment"]

_DAYS = ("year", "quarter", "month", "week", "day")


def _is_day(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _is_clock(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type) or pa.types.is_time(data_type))


def _part(compute: Callable[[Datum], Datum], fits: Callable[[pa.DataType], bool], what: str) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (value,) = args
        _check(node, value, fits, what)
        return CompiledExpression(
            pa.int32(), lambda batch: compute(value.evaluate(batch)).cast(pa.int32()), value.can_fail
        )

    return lower


def _check(node: Call, value: CompiledExpression, fits: Callable[[pa.DataType], bool], what: str) -> None:
    if all_null(value) or not fits(value.type):
        raise misfit(node, [value.type], what)


def moment(node: Call, value: CompiledExpression) -> CompiledExpression:
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
    value, unit = moment(node, args[0]), parameter(node)
    if pa.types.is_date(value.type) and unit not in _DAYS:
        raise misfit(node, [value.type], f"a timestamp for the unit {unit!r}")
    return CompiledExpression(value.type, lambda batch: truncated(value.evaluate(batch), unit), True)


def _epoch_seconds(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    _check(node, value, pa.types.is_timestamp, "a timestamp")

    def evaluate(batch: pa.RecordBatch) -> Datum:
        micros = value.evaluate(batch).cast(pa.timestamp("us", value.type.tz)).cast(pa.int64())
        # Division rounds towards 0.
        rounded = pc.divide(micros, 1_000_000)
        return pc.if_else(pc.less(micros, pc.multiply(rounded, 1_000_000)), pc.subtract(rounded, 1), rounded)

    return CompiledExpression(pa.int64(), evaluate, value.can_fail)


def _format(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, format = moment(node, args[0]), parameter(node)
    zone = value.type.tz if pa.types.is_timestamp(value.type) else None
    if zone is None and has_offset(format):
        raise misfit(node, [value.type], "an instant for %z")
    # Arrow has no %f.
    runs = [(fraction, "".join(run)) for fraction, run in groupby(re.split("(%.)", format), lambda part: part == "%f")]

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = near(value.evaluate(batch))
        # Arrow writes the fraction of a finer unit with %S.
        seconds = pc.floor_temporal(values, unit="second").cast(pa.timestamp("s", zone))
        precise = seconds if pa.types.is_date(value.type) else values
        texts = [_fraction(precise) if is_fraction else pc.strftime(seconds, run) for is_fraction, run in runs]
        return pc.binary_join_element_wise(*texts, "")

    return CompiledExpression(pa.string(), evaluate, True)


def _fraction(value: Datum) -> Datum:
    return pc.utf8_lpad(_microsecond(value).cast(pa.string()), width=6, padding="0")


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
}
"""The lowering of each function."""

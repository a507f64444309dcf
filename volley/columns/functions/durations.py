"""Functions that shift dates and times, tell the time between two, and change zones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import near
from volley.columns.compiled import CompiledExpression, Datum, Lowering, as_array, misfit, parameter
from volley.columns.functions.distinct import of_distinct
from volley.columns.functions.times import moment
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal

__all__ = ["LOWERED"]

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


def _add(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, units = moment(node, args[0]), ("day", "hour", "minute", "second", "microsecond")
    counts = (each.value for each in node.args[1:] if isinstance(each, Literal))
    micros = sum(count * _MICROS[unit] for count, unit in zip(counts, units, strict=True))
    is_date = pa.types.is_date(value.type)
    if is_date and micros % _DAY:
        raise misfit(node, [value.type], "a timestamp, as the duration is not of whole days")
    reach = 2**31 * _DAY if is_date else 2**63
    if not -reach <= micros < reach:
        raise ExpressionError(f"{node!r}: the duration is beyond the range of its type", hint="a shorter duration")
    if not is_date:
        return CompiledExpression(value.type, lambda batch: _shifted(value.evaluate(batch), micros), True)
    days = pa.scalar(micros // _DAY, pa.int32())
    return CompiledExpression(
        value.type, lambda batch: pc.add_checked(value.evaluate(batch).cast(pa.int32()), days).cast(value.type), True
    )


def _shifted(values: pa.Array, micros: int) -> pa.Array:
    return pc.add_checked(_micros(values), pa.scalar(micros, pa.int64())).cast(pa.timestamp("us", values.type.tz))


def _add_months(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, months = moment(node, args[0]), parameter(node)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = as_array(value.evaluate(batch), batch.num_rows)
        numbers, missing = _numbers(values)
        if pa.types.is_date(values.type):
            return pa.array(_months_later(numbers, months), mask=missing).cast(pa.int32()).cast(values.type)
        days, rest = np.divmod(numbers, _DAY)
        later = pa.array(_months_later(days, months), mask=missing)
        return pc.add_checked(pc.multiply_checked(later, _DAY), pa.array(rest)).cast(values.type)

    return CompiledExpression(value.type, evaluate, True)


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
    later, earlier = (moment(node, arg) for arg in args[:2])
    if getattr(later.type, "tz", None) != getattr(earlier.type, "tz", None):
        raise misfit(node, [later.type, earlier.type], "two instants, or two times without a zone")
    unit = _MICROS[parameter(node)]

    def evaluate(batch: pa.RecordBatch) -> Datum:
        # Division rounds towards 0.
        return pc.divide(pc.subtract_checked(_micros(later.evaluate(batch)), _micros(earlier.evaluate(batch))), unit)

    return CompiledExpression(pa.int64(), evaluate, True)


def _micros(values: Datum) -> Datum:
    zone = getattr(values.type, "tz", None)
    return values.cast(pa.timestamp("us", zone)).cast(pa.int64())


def _in_zone(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, zone = args[0], parameter(node)
    if not pa.types.is_timestamp(value.type) or value.type.tz is None:
        raise misfit(node, [value.type], "an instant: a timestamp with a zone")
    there, rules = pa.timestamp("us", zone), ZoneInfo(zone)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = near(value.evaluate(batch)).cast(there)
        return _by_rule(values, pc.local_timestamp(values), lambda instant: instant + _offset(instant, rules))

    return CompiledExpression(pa.timestamp("us"), evaluate, True)


def _from_zone(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, zone = args[0], parameter(node)
    if not pa.types.is_timestamp(value.type) or value.type.tz is not None:
        raise misfit(node, [value.type], "a wall-clock time: a timestamp without a zone")

    rules = ZoneInfo(zone)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = near(value.evaluate(batch))
        instants = pc.assume_timezone(values, zone, ambiguous="earliest", nonexistent="latest").cast(_INSTANT)
        return _by_rule(values, instants, lambda wall: _instant(wall, rules))

    return CompiledExpression(_INSTANT, evaluate, True)


def _by_rule(values: Datum, computed: Datum, compute: Callable[[int], int]) -> Datum:
    """Return what Arrow computed, and for times after its list of changes what a function computes by a zone's rule.

    Args:
        values: The times.
        computed: What Arrow made of them.
        compute: The same for one time, in microseconds since 1970; it raises OverflowError beyond Python's years.
    """
    micros = _micros(values)
    late = pc.greater_equal(micros, _LISTED)
    if not pc.any(late).as_py():
        return computed

    def by_rule(time: int) -> int | None:
        try:
            return compute(time)
        except OverflowError:
            return None

    found = of_distinct(pc.if_else(late, micros, pa.scalar(None, pa.int64())), by_rule, pa.int64())
    return pc.coalesce(found, _micros(computed)).cast(computed.type)


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
        raise misfit(node, [value.type], "a whole number")
    micros = pa.scalar(unit, pa.int64())

    def evaluate(batch: pa.RecordBatch) -> Datum:
        return pc.multiply_checked(value.evaluate(batch).cast(pa.int64()), micros).cast(_INSTANT)

    return CompiledExpression(_INSTANT, evaluate, True)


LOWERED: dict[str, Lowering] = {
    "dt_add": _add,
    "dt_add_months": _add_months,
    "dt_since": _since,
    "dt_in_zone": _in_zone,
    "dt_from_zone": _from_zone,
    "from_epoch": _from_epoch,
}

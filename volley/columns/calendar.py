"""Takes times apart in any year: Arrow counts years in 16 bits, and silently returns other dates for those beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["are_near", "near", "part", "truncated", "year"]

# The calendar repeats after 400 years, days of the week included.
_YEARS = 400
_PERIOD = {pa.int32(): 146_097, pa.int64(): 146_097 * 86_400_000_000}
# Within 68 periods of 1970, which hold all times that Python knows, Arrow is right.
_PERIODS = 68


def year(values: Any) -> Any:
    """Return the years of dates or timestamps, an array or a scalar."""
    moved, periods = _moved(values)
    return pc.year(moved) if periods is None else pc.add(pc.year(moved), pc.multiply(periods, _YEARS))


def part(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of dates and timestamps of any year, of one that gives the same every 400 years."""
    return lambda values: compute(_moved(values)[0])


def truncated(values: Any, unit: str) -> Any:
    """Return the start of the unit in which each date or timestamp is.

    Raises:
        pyarrow.ArrowInvalid: If a start is before the first time of the type.
    """
    moved, periods = _moved(values)
    starts = pc.floor_temporal(moved, unit=unit).cast(values.type)
    if periods is None:
        return starts
    stored = _stored(values.type)
    back = pc.multiply(periods, pa.scalar(_PERIOD[stored], pa.int64()))
    return pc.add_checked(starts.cast(stored).cast(pa.int64()), back).cast(stored).cast(values.type)


def near(values: Any) -> Any:
    """Return times that are to be written, or moved to a zone.

    Raises:
        pyarrow.ArrowInvalid: If Arrow can't, as one is too many years away.
    """
    if _are_all_near(values):
        return values
    raise pa.ArrowInvalid(f"a {values.type} is more than {_PERIODS * _YEARS:,} years from 1970")


def are_near(values: Any) -> Any:
    """Return true for each time that `near` takes."""
    stored = _stored(values.type)
    most = pa.scalar(_PERIOD[stored] * _PERIODS, stored)
    numbers = values.cast(stored)
    return pc.and_(pc.greater_equal(numbers, pc.negate(most)), pc.less_equal(numbers, most))


def _are_all_near(values: Any) -> bool:
    stored = _stored(values.type)
    limits = [values, values] if isinstance(values, pa.Scalar) else pc.min_max(values).values()
    most = _PERIOD[stored] * _PERIODS
    return all(limit.cast(stored).as_py() is None or abs(limit.cast(stored).as_py()) <= most for limit in limits)


def _moved(values: Any) -> tuple[Any, Any]:
    """Return times within 400 years of 1970, and by how many periods each was moved; as they are if all are near."""
    if _are_all_near(values):
        return values, None
    stored = _stored(values.type)
    period, numbers = pa.scalar(_PERIOD[stored], stored), values.cast(stored)
    # Rounded towards 1970, so that the way back can't overflow.
    periods = pc.divide(numbers, period)
    return pc.subtract(numbers, pc.multiply(periods, period)).cast(values.type), periods.cast(pa.int64())


def _stored(data_type: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(data_type) else pa.int64()

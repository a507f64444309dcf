"""Times that Arrow gets wrong: years far from 1970, nanoseconds before it, and texts that have no such day."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.types.arrow import Datum

__all__ = [
    *("are_near", "floored", "has_offset", "is_floored", "micros", "moments", "near", "parsed", "part", "read_alike"),
    *("truncated", "year"),
]

# The calendar repeats after 400 years, days of the week included.
_YEARS = 400
_PERIOD = {pa.int32(): 146_097, pa.int64(): 146_097 * 86_400_000_000}
# Within 68 periods of 1970, which hold all times that Python knows, Arrow is right.
_PERIODS = 68

_TRIED = 16
# RE2 has no lookahead: the group keeps what stands behind the digits.
_MORE_DIGITS = r"([0-9]:[0-9]{2}\.[0-9]{6})[0-9]{1,3}(Z|[+-][0-9:]+)?$"
_PARTS = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "R": "%H:%M", "D": "%m/%d/%y"}
# %Y has four digits, as in Spark and Python: strptime takes "26" for the year 26.
_DIGITS = {"Y": "[0-9]{4}", "S": "[0-5]?[0-9]", "j": "[0-9]{1,3}", "z": "(?:Z|[+-].+)"}
_WORDS = "aAbBhp"
_MINUTE = 60 * 10**6
_YEAR_1000 = -30610224000 * 10**6


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
        _check_no_later(starts, values)
        return starts
    stored = _stored(values.type)
    back = pc.multiply(periods, pa.scalar(_PERIOD[stored], pa.int64()))
    return pc.add_checked(starts.cast(stored).cast(pa.int64()), back).cast(stored).cast(values.type)


def _check_no_later(starts: Any, values: Any) -> None:
    """Raise ArrowInvalid if a start is after its time: it was before the first nanosecond of the type."""
    if _has_nanoseconds(values.type) and _is_any(pc.greater(starts, values)):
        raise pa.ArrowInvalid(f"the start of a unit is before the first {values.type}")


def _is_any(truth: Datum) -> bool:
    return bool((truth if isinstance(truth, pa.Scalar) else pc.any(truth)).as_py())


def _has_nanoseconds(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type) and data_type.unit == "ns")


def micros(values: Datum) -> Datum:
    """Return timestamps, an array or a scalar, as microseconds since 1970, rounded down.

    Example:
        >>> micros(pa.array([-1, 1999], pa.timestamp("ns"))).to_pylist()
        [-1, 1]
    """
    target = pa.timestamp("us", values.type.tz)
    if not _has_nanoseconds(values.type):
        return values.cast(target).cast(pa.int64())
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([micros(chunk) for chunk in values.chunks], pa.int64())
    return floored(values, target).cast(pa.int64())


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
    if _has_nanoseconds(values.type):
        return pc.if_else(pc.is_valid(values), True, pa.scalar(None, pa.bool_()))
    stored = _stored(values.type)
    most = pa.scalar(_PERIOD[stored] * _PERIODS, stored)
    numbers = values.cast(stored)
    return pc.and_(pc.greater_equal(numbers, pc.negate(most)), pc.less_equal(numbers, most))


def _are_all_near(values: Any) -> bool:
    if _has_nanoseconds(values.type):
        return True
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


def is_floored(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if values of a type are rounded down to the other: both are timestamps, or both times of day."""
    is_same_kind = any(test(source) and test(target) for test in (pa.types.is_timestamp, pa.types.is_time))
    return is_same_kind and (source.unit, target.unit) == ("ns", "us")


def floored(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return timestamps or times of day in nanoseconds in a type of microseconds.

    Example:
        >>> floored(pa.array([-1, -1001, 1999], pa.timestamp("ns")), pa.timestamp("us")).cast(pa.int64()).to_pylist()
        [-1, -2, 1]
    """
    numbers = values.cast(pa.int64())
    cut = pc.divide(numbers, 1000)
    is_above = pc.greater(pc.multiply(cut, 1000), numbers)
    return pc.subtract(cut, is_above.cast(pa.int64())).cast(data_type)


def parsed(texts: Datum, data_type: pa.DataType) -> Datum:
    """Parse texts, an array or a scalar, as timestamps; the fraction of a second may have up to nine digits.

    Raises:
        pyarrow.ArrowInvalid: If a text is no timestamp.

    Example:
        >>> parsed(pa.array(["1969-12-31 23:59:59.999999999"]), pa.timestamp("us")).cast(pa.int64()).to_pylist()
        [-1]
    """
    try:
        return _alike(texts, data_type)
    except pa.ArrowInvalid:
        if _has_nanoseconds(data_type) or not (
            isinstance(texts, pa.Scalar) or pc.any(pc.match_substring(texts, ".")).as_py()
        ):
            raise
    short = pc.replace_substring_regex(pc.cast(texts, pa.string()), pattern=_MORE_DIGITS, replacement=r"\1\2")
    return pc.cast(short, data_type)


def read_alike(texts: Datum, data_type: pa.DataType) -> Datum | None:
    """Return texts that Arrow reads as they are as timestamps; None if it refuses one."""
    try:
        return _alike(texts, data_type)
    except pa.ArrowInvalid:
        return None


def _alike(texts: Datum, data_type: pa.DataType) -> Datum:
    """Return texts as timestamps.

    Arrow makes an error of each text that it refuses, which takes ten times what it takes to parse one: the first texts
    are tried before all are.
    """
    if not isinstance(texts, pa.Scalar) and len(texts) > _TRIED:
        pc.cast(texts.slice(0, _TRIED), data_type)
    return pc.cast(texts, data_type)


def moments(texts: Any, format: str) -> Any:
    """Return an array or scalar of texts as timestamps; null where the format does not fit, or there is no such time.

    Arrow reads 30 February as 1 or 2 March. Only days near an end of a month can come from a day that does not exist,
    at most two days off by an offset of %z and a leap second: their texts are parsed again, in January of their year.

    Args:
        texts: The texts.
        format: The format. With ``%z`` the timestamps are in UTC, else they have no zone.
    """
    values = _of_known_times(texts, _read(texts, format), format)
    day = pc.day(values)
    near_an_end = pc.fill_null(pc.or_(pc.less_equal(day, 5), pc.greater_equal(day, 28)), False)
    if not pc.any(near_an_end).as_py():
        return values
    suspects = pc.if_else(near_an_end, texts, pa.scalar(None, texts.type))
    # strptime keeps the last of two values of a part: the texts get no offset, no leap second, and January.
    neutral, last = ("|%S %z", "|0 +0000") if has_offset(format) else ("|%S", "|0")
    written = _read(_with_end(suspects, last), format + neutral)
    in_january = _read(_with_end(suspects, last + " 1"), format + neutral + " %m")
    # Day 366 of a common year becomes one of another year.
    exists = pc.and_(pc.equal(pc.day(written), pc.day(in_january)), pc.equal(pc.year(written), pc.year(in_january)))
    return pc.if_else(pc.fill_null(exists, True), values, pa.scalar(None, values.type))


def _of_known_times(texts: Any, values: Any, format: str) -> Any:
    """Return null for a year of less than four digits, and for second 60 within an hour: strptime counts on from it."""
    since_1970 = values.cast(pa.int64())
    begins_minute = pc.is_in(_remainder(since_1970, _MINUTE), value_set=pa.array([0, 10**6, 10**6 - _MINUTE]))
    # Second 60 at the end of an hour is a leap second.
    shifts = pc.and_(begins_minute, pc.not_equal(_remainder(since_1970, 60 * _MINUTE), 0))
    suspect = pc.fill_null(pc.or_(pc.less(since_1970, _YEAR_1000), shifts), False)
    if not pc.any(suspect).as_py():
        return values
    fits = pc.match_substring_regex(pc.if_else(suspect, texts, pa.scalar(None, texts.type)), pattern=_pattern(format))
    return pc.if_else(pc.fill_null(fits, True), values, pa.scalar(None, values.type))


def _remainder(number: Any, divisor: int) -> Any:
    """Return what is left of a number, with its sign."""
    return pc.subtract(number, pc.multiply(pc.divide(number, divisor), divisor))


def _pattern(format: str) -> str:
    """Return the pattern of texts in a format that are no more than it says."""
    expanded = re.sub("%([TFRD])", lambda part: _PARTS[part[1]], format)
    parts = (_part(part) for part in re.findall(r"%.|\s+|.", expanded, re.DOTALL))
    return f"(?s)^{''.join(parts)}$"


def _part(part: str) -> str:
    if part.isspace():
        return r"\s*"
    if len(part) == 1 or part == "%%":
        return re.escape(part[-1])
    return r"\s*" + ("[^0-9]+" if part[1] in _WORDS else _DIGITS.get(part[1], "[0-9]{1,2}"))


def has_offset(format: str) -> bool:
    """Return True if texts of a format have an offset from UTC (``%z``)."""
    return "%z" in format.replace("%%", "")


def _read(texts: Any, format: str) -> Any:
    return pc.strptime(texts, format=format, unit="us", error_is_null=True)


def _with_end(texts: Any, end: str) -> Any:
    return pc.binary_join_element_wise(texts, pa.scalar(end, texts.type), "")

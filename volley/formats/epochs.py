"""Numbers since 1970, in seconds or parts of them, as timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["epoch_text", "epoch_times", "times_in_epochs"]

# Microseconds of a unit; a nanosecond has a part of one.
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
_NANOSECONDS = 1_000
_DIGITS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
# The years 1 to 9999: a number in another unit than the declared one is seldom among them.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
_HALF = 1 << 63
_LONGEST = 40
_EXACT = Context(prec=2 * _LONGEST)
_WHOLE, _FRACTION = r"^\s*[+-]?[0-9]{1,19}\s*$", r"^\s*[+-]?[0-9]{1,19}\.[0-9]{1,18}\s*$"


def epoch_times(numbers: pa.Array, unit: str, data_type: pa.DataType) -> pa.Array:
    """Return whole numbers as timestamps, nanoseconds rounded down where the type has none.

    Args:
        numbers: An array of int64.
        unit: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.

    Raises:
        pyarrow.ArrowInvalid: If one is in no year from 1 to 9999.

    Example:
        >>> epoch_times(pa.array([-1]), "ms", pa.timestamp("us"))[0].as_py()
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)
    """
    if unit == data_type.unit == "ns":
        return numbers.cast(data_type)
    if factor := _MICROSECONDS[unit]:
        values = pc.multiply_checked(numbers, factor)
    else:
        whole = np.floor_divide(numbers.fill_null(0).to_numpy(), _NANOSECONDS)
        values = pc.if_else(numbers.is_valid(), pa.array(whole), pa.scalar(None, pa.int64()))
    bounds = pc.min_max(values)
    if bounds["min"].is_valid and not _FIRST <= bounds["min"].as_py() <= bounds["max"].as_py() <= _LAST:
        raise pa.ArrowInvalid(f"a number is no time in {unit} since 1970")
    return values.cast(data_type)


def epoch_text(number: str, unit: str, nanoseconds: bool = False) -> str | None:
    """Return a number as the text of a timestamp in UTC, digits behind the microsecond cut off; None if it is none.

    Args:
        nanoseconds: True cuts off digits behind the nanosecond.

    Example:
        >>> epoch_text("1764288000.25", "s"), epoch_text("1764288000", "ns"), epoch_text("1e40", "s")
        ('2025-11-28T00:00:00.250000+00:00', '1970-01-01T00:00:01.764288+00:00', None)
    """
    value = Decimal(number) if len(number) <= _LONGEST else Decimal("nan")
    if not value.is_finite() or abs(value.adjusted()) > _LONGEST:
        return None
    micros, rest = divmod(int(value.scaleb(_DIGITS[unit] + 3, _EXACT).to_integral_value(ROUND_FLOOR)), 1_000)
    if not _FIRST <= micros <= _LAST:
        return None
    text = (_BEGIN + timedelta(microseconds=micros)).isoformat(timespec="microseconds")
    return text.replace("+", f"{rest:03}+") if nanoseconds else text


def times_in_epochs(texts: pa.Array, unit: str, data_type: pa.DataType) -> pa.Array:
    """Return the texts that are numbers as timestamps; null for the others."""
    null = pa.scalar(None, pa.string())
    whole = pc.if_else(pc.match_substring_regex(texts, _WHOLE), texts, null)
    try:
        times = epoch_times(pc.ascii_trim_whitespace(whole).cast(pa.int64()), unit, data_type)
    except pa.ArrowInvalid:
        times = _one_by_one(whole, unit, data_type)
    fractions = pc.if_else(pc.match_substring_regex(texts, _FRACTION), texts, null)
    if fractions.null_count == len(fractions):
        return times
    return pc.coalesce(times, _one_by_one(fractions, unit, data_type))


def _in_nanoseconds(texts: pa.Array, unit: str, data_type: pa.DataType) -> pa.Array:
    """Return the texts of numbers as timestamps; null for those that 64 bits of nanoseconds can't hold."""
    numbers = [
        text and int(Decimal(text.strip()).scaleb(_DIGITS[unit] + 3, _EXACT).to_integral_value(ROUND_FLOOR))
        for text in texts.to_pylist()
    ]
    known = [number if number is not None and -_HALF <= number < _HALF else None for number in numbers]
    return pa.array(known, pa.int64()).cast(data_type)


def _one_by_one(texts: pa.Array, unit: str, data_type: pa.DataType) -> pa.Array:
    if data_type.unit == "ns":
        return _in_nanoseconds(texts, unit, data_type)
    values: list[Any] = [None if text is None else epoch_text(text.strip(), unit) for text in texts.to_pylist()]
    instants = [None if value is None else datetime.fromisoformat(value) for value in values]
    return pa.array(instants, pa.timestamp("us", "UTC")).cast(data_type)

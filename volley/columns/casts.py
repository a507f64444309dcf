"""Casts Arrow values with the results of Spark's ANSI mode: a value that the target type can't represent raises."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import are_near, micros, near, parsed, read_alike
from volley.columns.exact import rescaled
from volley.columns.texts import (
    decimal_of,
    decimal_of_float,
    decimal_text,
    float_text,
    is_text_of,
    is_utf8,
    moment_text,
    number_in,
    time_of,
    trim,
    uuid_of,
    uuid_text,
)
from volley.errors import ExpressionError
from volley.types.arrow import Datum, type_name

__all__ = ["can_cast", "cast", "try_cast"]


_UTC = pa.timestamp("us", "UTC")
_NTZ = pa.timestamp("us")
_NANOSECONDS = pa.timestamp("ns", "UTC"), pa.timestamp("ns")
_TRUE = "^(?:t|true|y|yes|1)$"
_FALSE = "^(?:f|false|n|no|0)$"
_WHOLE = "^[+-]?[0-9]+$"


class _Cast(NamedTuple):
    """A cast between two types.

    Args:
        source: Says whether a type is the source's.
        target: Says whether a type is the target's.
        convert: Converts an array or scalar; raises ArrowInvalid for a value that the target can't represent.
        fits: Returns true for each value that the target can represent; None = for all.
    """

    source: Callable[[pa.DataType], bool]
    target: Callable[[pa.DataType], bool]
    convert: Callable[[Datum, pa.DataType], Datum]
    fits: Callable[[Datum, pa.DataType], Datum] | None = None


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if there is a cast between two types; if not, the plan is rejected."""
    return source == target or pa.types.is_null(source) or _find(source, target) is not None


def cast(value: Datum, target: pa.DataType) -> Datum:
    """Cast an array or scalar to another type.

    Raises:
        ExpressionError: If the target type can't represent a value.
    """
    if value.type == target:
        return value
    rule = _find(value.type, target)
    assert rule is not None or pa.types.is_null(value.type)
    try:
        return rule.convert(value, target) if rule else pc.cast(value, target)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            f"cast from {type_name(value.type)} to {type_name(target)}: {error}",
            hint="filter such rows out before, or cast to a wider type",
        ) from error


def try_cast(value: Datum, target: pa.DataType) -> Datum:
    """Cast an array or scalar to another type; values that it can't represent become null."""
    rule = None if value.type == target else _find(value.type, target)
    if rule is None or rule.fits is None:
        return cast(value, target)
    return rule.convert(pc.if_else(rule.fits(value, target), value, pa.scalar(None, value.type)), target)


def _find(source: pa.DataType, target: pa.DataType) -> _Cast | None:
    return next((rule for rule in _CASTS if rule.source(source) and rule.target(target)), None)


def _is_int(data_type: pa.DataType) -> bool:
    return data_type in (pa.int32(), pa.int64())


def _is(*types: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda data_type: data_type in types


def _rounded(value: Datum, target: pa.DataType) -> Datum:
    if value.type.scale <= target.scale:
        return rescaled(value, target)
    # 9.99 rounds to 10.0, which Arrow needs to fit the value's own type: widen it first.
    wide = pc.cast(value, pa.decimal256(76, value.type.scale))
    return pc.cast(pc.round(wide, target.scale, round_mode="half_towards_infinity"), target)


def _truncated(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(pc.trunc(value), target)


def _decimal_to_int(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(value, options=pc.CastOptions(target, allow_decimal_truncate=True))


def _int_to_decimal(value: Datum, target: pa.DataType) -> Datum:
    # Arrow requires a decimal that holds any int; between decimals it only checks the actual values.
    return rescaled(pc.cast(value, pa.decimal128(19)), target)


def _float_to_decimal(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(_complete(value, decimal_of_float(value, target.scale), target), target)


def _is_float_of_decimal(value: Datum, target: pa.DataType) -> Datum:
    return pc.fill_null(_fits_decimal(decimal_of_float(value, target.scale), target), False)


def _boolean_to_decimal(value: Datum, target: pa.DataType) -> Datum:
    return _int_to_decimal(pc.cast(value, pa.int32()), target)


def _is_boolean_of_decimal(value: Datum, target: pa.DataType) -> Datum:
    return _fits_decimal(pc.cast(value, pa.int32()), target)


def _decimal_to_float(value: Datum, target: pa.DataType) -> Datum:
    # Arrow multiplies by a rounded 0.01, so 0.57 becomes 0.5700000000000001; parsing the text is exact.
    return pc.cast(pc.cast(value, pa.string()), target)


def _lossy(value: Datum, target: pa.DataType) -> Datum:
    # A long has more digits than a double: round it.
    return pc.cast(value, target, safe=False)


def _trimmed(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(trim(value), target)


def _string_to_int(value: Datum, target: pa.DataType) -> Datum:
    text = trim(value)
    digits = pc.match_substring_regex(text, pattern=_WHOLE)
    # Arrow accepts "0x10" and rejects "+1"; Spark does the opposite. The error shows the text.
    refused = pc.replace_substring_regex(text, "^(-?0)([xX])", r"\1 \2")
    return pc.cast(pc.if_else(digits, pc.replace_substring_regex(text, r"^\+", ""), refused), target)


def _to_boolean(value: Datum, target: pa.DataType) -> Datum:
    text = pc.utf8_lower(trim(value))
    truth = pc.if_else(pc.match_substring_regex(text, pattern=_TRUE), True, pa.scalar(None, pa.bool_()))
    return _complete(value, pc.if_else(pc.match_substring_regex(text, pattern=_FALSE), False, truth), target)


def _is_boolean(value: Datum, target: pa.DataType) -> Datum:
    text = pc.utf8_lower(trim(value))
    return pc.or_(pc.match_substring_regex(text, pattern=_TRUE), pc.match_substring_regex(text, pattern=_FALSE))


def _complete(source: Datum, values: Datum, target: pa.DataType) -> Datum:
    """Return converted values; raise ArrowInvalid if one is null and its source is not."""
    missing = pc.and_(pc.is_null(values), pc.is_valid(source))
    if (missing if isinstance(missing, pa.Scalar) else pc.any(missing, min_count=0)).as_py():
        raise pa.ArrowInvalid(f"a {type_name(source.type)} is no {type_name(target)}")
    return values


def _to_timestamp(value: Datum, target: pa.DataType) -> Datum:
    """Parse ISO strings; those without a zone are UTC."""
    # Strings that all end in Z, or have no zone, are parsed in a third of the time.
    wall = pa.timestamp(target.unit)
    if (alike := read_alike(value, target if _ends_in_z(value) else wall)) is not None:
        return pc.cast(alike, target)
    text = trim(value)
    zoned = pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$")
    null = pa.scalar(None, pa.string())
    instants = parsed(pc.if_else(zoned, text, null), target)
    return pc.coalesce(instants, pc.cast(parsed(pc.if_else(zoned, null, text), wall), target))


def _ends_in_z(value: Datum) -> bool:
    ends = pc.ends_with(value, "Z")
    return bool((ends if isinstance(ends, pa.Scalar) else pc.all(ends, min_count=0)).as_py())


def _wall_clock(value: Datum, target: pa.DataType) -> Datum:
    alike = read_alike(value, target)
    return parsed(trim(value), target) if alike is None else alike


def _via_naive(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(pc.cast(value, _NTZ if pa.types.is_date32(value.type) else pa.timestamp(value.type.unit)), target)


def _to_microseconds(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(micros(value), target)


def _to_nanoseconds(value: Datum, target: pa.DataType) -> Datum:
    # By way of the same unit with the other zone: Arrow casts no zone and unit at once without a zone.
    return pc.cast(pc.cast(value, pa.timestamp("ns", value.type.tz)), target)


def _date_to_nanoseconds(value: Datum, target: pa.DataType) -> Datum:
    return _to_nanoseconds(_via_naive(value, _NTZ), target)


def _text_to_nanoseconds(value: Datum, target: pa.DataType) -> Datum:
    return (_wall_clock if target.tz is None else _to_timestamp)(value, target)


def _is_within_nanoseconds(value: Datum, target: pa.DataType) -> Datum:
    """Return true for each timestamp that 64 bits of nanoseconds have; null for null."""
    if value.type in _NANOSECONDS:
        return pc.or_kleene(pc.is_valid(value), pa.scalar(None, pa.bool_()))
    number = micros(value)
    return pc.and_(pc.greater(number, -_MOST_MICROSECONDS), pc.less(number, _MOST_MICROSECONDS))


def _is_date_within_nanoseconds(value: Datum, target: pa.DataType) -> Datum:
    days = pc.cast(value, pa.int32())
    return pc.and_(pc.greater(days, -_MOST_DAYS // 1000), pc.less_equal(days, _MOST_DAYS // 1000))


def _nonzero(value: Datum, target: pa.DataType) -> Datum:
    return pc.not_equal(value, pa.scalar(0, value.type))


def _between(value: Datum, above: int, below: int) -> Datum:
    """Return true for the numbers between two whole ones, neither included; false for NaN."""
    if pa.types.is_floating(value.type):
        value, low = pc.cast(value, pa.float64()), pa.scalar(float(above))
        # The number below the smallest long has no double: its nearest one is the smallest long.
        lower = pc.greater_equal(value, low) if float(above) > above else pc.greater(value, low)
        return pc.and_(lower, pc.less(value, pa.scalar(float(below))))
    number = value if pa.types.is_decimal(value.type) else pc.cast(value, pa.decimal128(19))
    wide = pa.decimal256(76, number.type.scale)
    if below >= 10 ** (wide.precision - wide.scale):
        # The bounds have more digits than any value.
        return pc.or_kleene(pc.is_valid(number), pa.scalar(None, pa.bool_()))
    number, low, high = pc.cast(number, wide), pa.scalar(Decimal(above), wide), pa.scalar(Decimal(below), wide)
    return pc.and_(pc.greater(number, low), pc.less(number, high))


def _fits_int(value: Datum, target: pa.DataType) -> Datum:
    bits = target.bit_width - 1
    return _between(value, -(2**bits) - 1, 2**bits)


def _fits_decimal(value: Datum, target: pa.DataType) -> Datum:
    if pa.types.is_decimal(value.type) and value.type.scale > target.scale:
        wide = pc.cast(value, pa.decimal256(76, value.type.scale))
        value = pc.round(wide, target.scale, round_mode="half_towards_infinity")
    limit = 10 ** (target.precision - target.scale)
    return _between(value, -limit, limit)


def _is_text_of_int(value: Datum, target: pa.DataType) -> Datum:
    text = trim(value)
    is_whole = pc.match_substring_regex(text, pattern=_WHOLE)
    short = pc.replace_substring_regex(text, pattern="^([+-]?)0+([0-9])", replacement=r"\1\2")
    fits = _fits_int(pc.cast(number_in(short, "[0-9]{1,19}"), pa.decimal128(19)), target)
    return pc.and_(is_whole, pc.fill_null(fits, False))


def _is_date_in_range(value: Datum, target: pa.DataType) -> Datum:
    days = pc.cast(value, pa.int32())
    return pc.and_(pc.greater(days, -_MOST_DAYS), pc.less(days, _MOST_DAYS))


def _string_to_decimal(value: Datum, target: pa.DataType) -> Datum:
    return _complete(value, decimal_of(value, target), target)


def _is_text_of_decimal(value: Datum, target: pa.DataType) -> Datum:
    return pc.is_valid(decimal_of(value, target))


def _fixed_to_text(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(pc.cast(value, pa.binary()), target)


def _is_fixed_text(value: Datum, target: pa.DataType) -> Datum:
    return is_utf8(pc.cast(value, pa.binary()))


def _moment_to_text(value: Datum, target: pa.DataType) -> Datum:
    return moment_text(near(value))


def _is_near(value: Datum, target: pa.DataType) -> Datum:
    return are_near(value)


def _is_bytes(data_type: pa.DataType) -> bool:
    return data_type == pa.binary(16) or bool(pa.types.is_binary(data_type))


def _bytes_to_uuid(value: Datum, target: pa.DataType) -> Datum:
    """Return UUIDs from their 16 bytes, as Avro's type ``fixed`` has them."""
    return pa.ExtensionArray.from_storage(target, pc.cast(value, pa.binary(16)))


_TIMESTAMPS = _is(_UTC, _NTZ, *_NANOSECONDS)
# Microseconds of 64 bits have that many days.
_MOST_DAYS = 106_751_991
# Nanoseconds of 64 bits have one less than that many microseconds, on both sides of 1970.
_MOST_MICROSECONDS = 9_223_372_036_854_775

_CASTS = [
    _Cast(_is_int, _is_int, pc.cast, _fits_int),
    _Cast(_is_int, pa.types.is_floating, _lossy),
    _Cast(_is_int, pa.types.is_decimal, _int_to_decimal, _fits_decimal),
    _Cast(_is_int, pa.types.is_string, pc.cast),
    _Cast(_is_int, pa.types.is_boolean, _nonzero),
    _Cast(pa.types.is_floating, _is_int, _truncated, _fits_int),
    _Cast(pa.types.is_floating, pa.types.is_floating, _lossy),
    _Cast(pa.types.is_floating, pa.types.is_decimal, _float_to_decimal, _is_float_of_decimal),
    _Cast(pa.types.is_floating, pa.types.is_boolean, _nonzero),
    _Cast(pa.types.is_floating, pa.types.is_string, lambda value, target: float_text(value)),
    _Cast(pa.types.is_decimal, _is_int, _decimal_to_int, _fits_int),
    _Cast(pa.types.is_decimal, pa.types.is_floating, _decimal_to_float),
    _Cast(pa.types.is_decimal, pa.types.is_decimal, _rounded, _fits_decimal),
    _Cast(pa.types.is_decimal, pa.types.is_boolean, _nonzero),
    _Cast(pa.types.is_decimal, pa.types.is_string, lambda value, target: decimal_text(value)),
    _Cast(pa.types.is_boolean, _is_int, pc.cast),
    _Cast(pa.types.is_boolean, pa.types.is_floating, pc.cast),
    _Cast(pa.types.is_boolean, pa.types.is_decimal, _boolean_to_decimal, _is_boolean_of_decimal),
    _Cast(pa.types.is_boolean, pa.types.is_string, pc.cast),
    _Cast(pa.types.is_string, _is_int, _string_to_int, _is_text_of_int),
    _Cast(pa.types.is_string, pa.types.is_floating, _trimmed, is_text_of),
    _Cast(pa.types.is_string, pa.types.is_decimal, _string_to_decimal, _is_text_of_decimal),
    _Cast(pa.types.is_string, pa.types.is_boolean, _to_boolean, _is_boolean),
    _Cast(pa.types.is_string, pa.types.is_date32, _trimmed, is_text_of),
    _Cast(pa.types.is_string, _is(*_NANOSECONDS), _text_to_nanoseconds, is_text_of),
    _Cast(pa.types.is_string, _is(_NTZ), _wall_clock, is_text_of),
    _Cast(pa.types.is_string, _is(_UTC), _to_timestamp, is_text_of),
    _Cast(pa.types.is_string, pa.types.is_time64, lambda value, target: time_of(value), is_text_of),
    _Cast(pa.types.is_string, _is(pa.uuid()), lambda value, target: uuid_of(value), is_text_of),
    _Cast(_is_bytes, _is(pa.uuid()), _bytes_to_uuid, lambda value, target: pc.equal(pc.binary_length(value), 16)),
    _Cast(pa.types.is_string, pa.types.is_binary, pc.cast),
    _Cast(pa.types.is_binary, pa.types.is_string, pc.cast, lambda value, target: is_utf8(value)),
    _Cast(pa.types.is_fixed_size_binary, pa.types.is_binary, pc.cast),
    _Cast(pa.types.is_fixed_size_binary, pa.types.is_string, _fixed_to_text, _is_fixed_text),
    _Cast(_is(pa.uuid()), pa.types.is_string, lambda value, target: uuid_text(value)),
    _Cast(pa.types.is_date32, pa.types.is_string, _moment_to_text, _is_near),
    _Cast(pa.types.is_date32, _is(*_NANOSECONDS), _date_to_nanoseconds, _is_date_within_nanoseconds),
    _Cast(pa.types.is_date32, _TIMESTAMPS, _via_naive, _is_date_in_range),
    _Cast(_TIMESTAMPS, pa.types.is_date32, _via_naive),
    _Cast(_TIMESTAMPS, _is(*_NANOSECONDS), _to_nanoseconds, _is_within_nanoseconds),
    _Cast(_TIMESTAMPS, _TIMESTAMPS, _to_microseconds),
    _Cast(_TIMESTAMPS, pa.types.is_string, _moment_to_text, _is_near),
    _Cast(pa.types.is_time64, pa.types.is_string, lambda value, target: moment_text(value)),
]

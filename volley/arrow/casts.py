"""Casts Arrow values with the results of Spark's ANSI mode: a value that the target type can't represent raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.arrow.exact import rescaled
from volley.arrow.uuids import texts
from volley.errors import ExpressionError
from volley.types.arrow import type_name

__all__ = ["can_cast", "cast"]

Datum = Any

_UTC = pa.timestamp("us", "UTC")
_NTZ = pa.timestamp("us")
# Spark trims these before it parses a value: the space and ASCII's control characters.
_BLANKS = "".join(map(chr, [*range(33), 127]))
_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if the cast gives the same result on both execution paths; if not, the plan is rejected.

    Floats and timestamps, for example, can't be cast to strings: Java and Arrow format them differently.
    """
    return source == target or pa.types.is_null(source) or _find(source, target) is not None


def cast(value: Datum, target: pa.DataType) -> Datum:
    """Cast an array or scalar to another type.

    Raises:
        ExpressionError: If the target type can't represent a value.
    """
    if value.type == target:
        return value
    convert = pc.cast if pa.types.is_null(value.type) else _find(value.type, target)
    assert convert is not None
    try:
        return convert(value, target)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            f"cast from {type_name(value.type)} to {type_name(target)}: {error}",
            hint="filter such rows out before, or cast to a wider type",
        ) from error


def _find(source: pa.DataType, target: pa.DataType) -> Callable[[Datum, pa.DataType], Datum] | None:
    for matches_source, matches_target, convert in _CASTS:
        if matches_source(source) and matches_target(target):
            return convert
    return None


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


def _decimal_to_float(value: Datum, target: pa.DataType) -> Datum:
    # Arrow multiplies by a rounded 0.01, so 0.57 becomes 0.5700000000000001; parsing the text is exact.
    return pc.cast(pc.cast(value, pa.string()), target)


def _lossy(value: Datum, target: pa.DataType) -> Datum:
    # A long has more digits than a double: round it.
    return pc.cast(value, target, safe=False)


def _trim(value: Datum) -> Datum:
    return pc.utf8_trim(value, characters=_BLANKS)


def _trimmed(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(_trim(value), target)


def _string_to_int(value: Datum, target: pa.DataType) -> Datum:
    text = _trim(value)
    digits = pc.match_substring_regex(text, r"^[+-]?[0-9]+$")
    # Arrow accepts "0x10" and rejects "+1"; Spark does the opposite.
    return pc.cast(pc.if_else(digits, pc.replace_substring_regex(text, r"^\+", ""), pa.scalar("")), target)


def _to_boolean(value: Datum, target: pa.DataType) -> Datum:
    text = pc.utf8_lower(_trim(value))
    truth = pc.if_else(pc.is_in(text, value_set=_TRUE), True, pa.scalar(None, pa.bool_()))
    booleans = pc.if_else(pc.is_in(text, value_set=_FALSE), False, truth)
    if pc.any(pc.and_(pc.is_null(booleans), pc.is_valid(value))).as_py():
        raise pa.ArrowInvalid("a string is not a boolean")
    return booleans


def _to_timestamp(value: Datum, target: pa.DataType) -> Datum:
    """Parse ISO strings; those without a zone are UTC."""
    text = _trim(value)
    zoned = pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$")
    null = pa.scalar(None, pa.string())
    instants = pc.cast(pc.if_else(zoned, text, null), _UTC)
    return pc.coalesce(instants, pc.cast(pc.cast(pc.if_else(zoned, null, text), _NTZ), _UTC))


def _via_naive(value: Datum, target: pa.DataType) -> Datum:
    return pc.cast(pc.cast(value, _NTZ), target)


def _nonzero(value: Datum, target: pa.DataType) -> Datum:
    return pc.not_equal(value, pa.scalar(0, value.type))


_TIMESTAMPS = _is(_UTC, _NTZ)

_CASTS: list[tuple[Any, Any, Callable[[Datum, pa.DataType], Datum]]] = [
    (_is_int, _is_int, pc.cast),
    (_is_int, pa.types.is_floating, _lossy),
    (_is_int, pa.types.is_decimal, _int_to_decimal),
    (_is_int, pa.types.is_string, pc.cast),
    (_is_int, pa.types.is_boolean, _nonzero),
    (pa.types.is_floating, _is_int, _truncated),
    (pa.types.is_floating, pa.types.is_floating, _lossy),
    (pa.types.is_decimal, _is_int, _decimal_to_int),
    (pa.types.is_decimal, pa.types.is_floating, _decimal_to_float),
    (pa.types.is_decimal, pa.types.is_decimal, _rounded),
    (pa.types.is_boolean, _is_int, pc.cast),
    (pa.types.is_boolean, pa.types.is_string, pc.cast),
    (pa.types.is_string, _is_int, _string_to_int),
    (pa.types.is_string, pa.types.is_floating, _trimmed),
    (pa.types.is_string, pa.types.is_boolean, _to_boolean),
    (pa.types.is_string, pa.types.is_date32, _trimmed),
    (pa.types.is_string, _is(_NTZ), _trimmed),
    (pa.types.is_string, _is(_UTC), _to_timestamp),
    (pa.types.is_string, pa.types.is_binary, pc.cast),
    (_is(pa.uuid()), pa.types.is_string, lambda value, target: texts(value)),
    (pa.types.is_date32, pa.types.is_string, pc.cast),
    (pa.types.is_date32, _TIMESTAMPS, _via_naive),
    (_TIMESTAMPS, pa.types.is_date32, _via_naive),
    (_TIMESTAMPS, _TIMESTAMPS, pc.cast),
]

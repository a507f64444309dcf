"""Adds numbers up exactly: Arrow's own sums of whole numbers and decimals wrap around without an error."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from volley.errors import ExpressionError

__all__ = ["narrowed", "sum_type", "widened"]

_WHOLE = pa.decimal128(38, 0)
_DIGITS = 76
# Below the largest numbers of 64 bits and of 38 digits by more than a double is inexact.
_MOST = 9e18
_MOST_UNSCALED = 9e37


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of sums of numbers."""
    if pa.types.is_decimal(data_type):
        return pa.decimal128(38, data_type.scale)
    return pa.int64() if pa.types.is_integer(data_type) else pa.float64()


def widened(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values that Arrow adds up without overflow, in any groups: in a wider type, if their own may be too small.

    Args:
        values: Values of a `sum_type`; others are returned as they are.
    """
    if pa.types.is_integer(values.type):
        return values.cast(_WHOLE) if _largest(values) * len(values) > _MOST else values
    if pa.types.is_decimal128(values.type):
        scale = values.type.scale
        may_overflow = _largest(values) * len(values) * 10.0**scale > _MOST_UNSCALED
        return values.cast(pa.decimal256(_DIGITS, scale)) if may_overflow else values
    return values


def narrowed(sums: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return sums of widened values in the type that the values had.

    Raises:
        ExpressionError: If a sum does not fit.
    """
    try:
        return sums.cast(data_type)
    except pa.ArrowInvalid as error:
        if pa.types.is_integer(data_type):
            raise ExpressionError(
                "a sum is beyond 64 bits", hint='add decimals up: sum_(col("…").cast("decimal(38, 0)"))'
            ) from error
        raise ExpressionError(
            f"a sum has more digits than decimal(38, {data_type.scale})",
            hint='add up decimals of a smaller scale, or doubles: sum_(col("…").cast("double"))',
        ) from error


def _largest(values: pa.ChunkedArray) -> float:
    """Return the largest absolute value; 0 if there is none."""
    limits = pc.min_max(values)
    return max(abs(float(limits[end].as_py() or 0)) for end in ("min", "max"))

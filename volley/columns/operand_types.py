"""The types of constants and of the operands of expressions: one rule for both execution paths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa

from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal
from volley.types.arrow import type_name

__all__ = ["INT_DIGITS", "as_decimal", "is_number", "literal_type", "operand_type"]

INT_DIGITS = {pa.int32(): 10, pa.int64(): 19}
"""The types of integers, and the digits of their largest values."""


def literal_type(node: Literal) -> pa.DataType:
    """Return the type of a constant: the smaller of int and long, or the decimal with just a Decimal's digits."""
    value = node.value
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int32() if -(2**31) <= value < 2**31 else pa.int64()
        case Decimal():
            return _decimal_of(value)
        case datetime():
            return pa.timestamp("us", None if value.tzinfo is None else "UTC")
    types = {float: pa.float64(), str: pa.string(), bytes: pa.binary(), date: pa.date32(), time: pa.time64("us")}
    return types[type(value)]


def _decimal_of(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or max(len(digits), -exponent) + max(exponent, 0) > 38:
        raise ExpressionError(f"{value!r} does not fit decimal(38)", hint="use a float, or fewer digits")
    scale = max(-exponent, 0)
    return pa.decimal128(max(len(digits) + max(exponent, 0), scale, 1), scale)


def operand_type(node: Call, types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type to which the operands of a comparison or arithmetic operation are cast first.

    Raises:
        ExpressionError: If they have no common type.
    """
    common = types[0]
    for other in types[1:]:
        wider = _common(common, other)
        if wider is None:
            raise ExpressionError(
                f"{node!r} combines {' and '.join(map(type_name, types))}", hint='cast one of them: .cast("…")'
            )
        common = wider
    return common


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if not (is_number(left) and is_number(right)):
        return None
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        return _common_decimal(as_decimal(left), as_decimal(right))
    return pa.int64()


def _common_decimal(left: pa.Decimal128Type, right: pa.Decimal128Type) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def as_decimal(data_type: pa.DataType) -> pa.Decimal128Type:
    """Return a decimal type that has all values of an integer or decimal type."""
    return data_type if pa.types.is_decimal(data_type) else pa.decimal128(INT_DIGITS[data_type], 0)


def is_number(data_type: pa.DataType) -> bool:
    """Return True for int, long, float, double and decimals."""
    return data_type in INT_DIGITS or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)

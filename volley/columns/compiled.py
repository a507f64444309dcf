"""What expressions are compiled to, the types of their operands, and what all operations need to compile theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.columns.dictionaries import decode
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal
from volley.types.arrow import Datum, is_number, type_name

__all__ = [
    *("CompiledExpression", "INT_DIGITS", "Lowering", "all_null", "as_array", "as_decimal", "computed"),
    *("literal_type", "wrong_types", "nonzero", "of_distinct", "operand_type", "refuse_zero"),
    *("to_type", "whole"),
]

INT_DIGITS = {pa.int32(): 10, pa.int64(): 19}
"""The types of integers, and the digits of their largest values."""


@dataclass(frozen=True)
class CompiledExpression:
    """A compiled expression.

    Args:
        type: The Arrow type of its values.
        evaluate: Computes an array for a record batch, or a scalar if the expression is constant.
        can_fail: True if a row's values can make it raise (overflow, division by zero, cast).
    """

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Datum]
    can_fail: bool = False

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of each row as one array without dictionary, also of a constant."""
        return whole(decode(as_array(self.evaluate(batch), batch.num_rows)))


def computed(
    out: pa.DataType, compute: Callable[..., Datum], *args: CompiledExpression, can_fail: bool | None = None
) -> CompiledExpression:
    """Return what computes values from those of other expressions.

    Args:
        out: The type of the values.
        compute: Takes an array or scalar for each of the other expressions.
        args: The other expressions.
        can_fail: True if computing them can raise; None = if one of the other expressions can.
    """
    evaluations = [arg.evaluate for arg in args]
    fails = any(arg.can_fail for arg in args) if can_fail is None else can_fail
    return CompiledExpression(out, lambda batch: compute(*(evaluate(batch) for evaluate in evaluations)), fails)


def wrong_types(node: Call, types: Sequence[pa.DataType], expected: str) -> ExpressionError:
    """Return the error for operands of the wrong types."""
    names = " and ".join(map(type_name, types))
    return ExpressionError(f"{node!r} takes {expected}, not {names}", hint='cast it: .cast("…")')


def to_type(value: CompiledExpression, data_type: pa.DataType) -> CompiledExpression:
    """Return a value cast to the operands' common type, if it has another; the cast does not fail."""
    return value if value.type == data_type else computed(data_type, lambda values: cast(values, data_type), value)


def all_null(value: CompiledExpression) -> bool:
    """Return True for the constant null, which has no type yet."""
    return bool(pa.types.is_null(value.type))


def as_array(values: Datum, rows: int) -> pa.Array:
    """Return an array, also for a constant: its value for each row."""
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def refuse_zero(node: Call, dividends: Datum, divisors: Datum) -> None:
    """Raise ExpressionError if a dividend that is not null has the divisor zero."""
    zero = pc.and_(pc.equal(divisors, pa.scalar(0, divisors.type)), pc.is_valid(dividends))
    if (zero.as_py() if isinstance(zero, pa.Scalar) else pc.any(zero).as_py()) is True:
        raise ExpressionError(f"division by zero in {node!r}", hint="filter such rows out before")


def nonzero(node: Call, dividends: Datum, divisors: Datum) -> Datum:
    """Return the divisors of whole numbers, null for zero: SQL ignores that of a null dividend, and Arrow raises.

    Raises:
        ExpressionError: If a dividend that is not null has the divisor zero.
    """
    refuse_zero(node, dividends, divisors)
    zero = pa.scalar(0, divisors.type)
    return pc.if_else(pc.equal(divisors, zero), pa.scalar(None, divisors.type), divisors)


Lowering = Callable[[Call, list[CompiledExpression]], CompiledExpression]
"""Compiles a call whose arguments are compiled."""


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
                f"{node!r} combines {' and '.join(map(type_name, types))}", hint=_way_out(common, other)
            )
        common = wider
    return common


def _way_out(left: pa.DataType, right: pa.DataType) -> str:
    """Return what to do about two types that have no common one."""
    if is_number(left) and is_number(right):
        decimals = as_decimal(left), as_decimal(right)
        scale = max(data_type.scale for data_type in decimals)
        widest = max(decimals, key=lambda data_type: data_type.precision - data_type.scale)
        digits = widest.precision - widest.scale + scale
        # One digit more, as a sum has.
        fewer = f"decimal({37 - scale + widest.scale},{widest.scale})" if scale < 37 else "double"
        return f'they need {digits} digits together, a decimal has 38: cast the {type_name(widest)}: .cast("{fewer}")'
    if all(pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type) for data_type in (left, right)):
        return 'bytes of a fixed length are not cast by themselves: .cast("binary")'
    return 'cast one of them: .cast("…")'


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and left.tz == right.tz:
        return pa.timestamp("ns", left.tz)
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


def of_distinct(values: Datum, function: Callable[[Any], Any], out: pa.DataType) -> Datum:
    """Return what a function returns for each value, null for null."""
    if isinstance(values, pa.Scalar):
        value = values.as_py()
        return pa.scalar(None if value is None else function(value), out)
    encoded = values.dictionary_encode()
    results = [None if value is None else function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, out).take(encoded.indices)

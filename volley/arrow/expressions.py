"""Compiles expressions for Arrow batches: type checks, for both execution paths, and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.arrow.casts import can_cast, cast
from volley.arrow.dictionaries import decode
from volley.errors import ExpressionError, near
from volley.plan.expressions import Call, Column, ExprNode, Literal
from volley.types.arrow import arrow_type, type_name

__all__ = ["LOWERED", "CompiledExpression", "compile_expression", "literal_type", "operand_type", "output_type"]

Datum = Any
"""An Arrow array or scalar: pyarrow has no common type for them."""

_INT_DIGITS = {pa.int32(): 10, pa.int64(): 19}


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


def output_type(node: ExprNode, schema: pa.Schema) -> pa.DataType:
    """Return the Arrow type of an expression over rows of `schema`: the type check of both execution paths.

    Raises:
        ExpressionError: If a column is unknown, or types do not fit the operation.
    """
    return compile_expression(node, schema).type


def compile_expression(node: ExprNode, schema: pa.Schema) -> CompiledExpression:
    """Check an expression against a schema and compile it.

    Raises:
        ExpressionError: If a column is unknown, or types do not fit the operation.
    """
    if isinstance(node, Column):
        return _column(node, schema)
    if isinstance(node, Literal):
        scalar = pa.scalar(node.value, literal_type(node))
        return CompiledExpression(scalar.type, lambda batch: scalar)
    assert isinstance(node, Call)
    return LOWERED[node.op](node, [compile_expression(arg, schema) for arg in node.args])


def _column(node: Column, schema: pa.Schema) -> CompiledExpression:
    indices = schema.get_all_field_indices(node.name)
    if not indices:
        raise ExpressionError(f"unknown column {node.name!r}", hint=near(node.name, schema.names))
    if len(indices) > 1:
        raise ExpressionError(f"column {node.name!r} stands {len(indices)} times in the stream", hint="rename one")
    (index,) = indices
    return CompiledExpression(schema.field(index).type, lambda batch: decode(batch.column(index)))


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
    if not (_is_number(left) and _is_number(right)):
        return None
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        return _common_decimal(_as_decimal(left), _as_decimal(right))
    return pa.int64()


def _common_decimal(left: pa.Decimal128Type, right: pa.Decimal128Type) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _as_decimal(data_type: pa.DataType) -> pa.Decimal128Type:
    return data_type if pa.types.is_decimal(data_type) else pa.decimal128(_INT_DIGITS[data_type], 0)


def _is_number(data_type: pa.DataType) -> bool:
    return data_type in _INT_DIGITS or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)


def _misfit(node: Call, types: Sequence[pa.DataType], expected: str) -> ExpressionError:
    names = " and ".join(map(type_name, types))
    return ExpressionError(f"{node!r} takes {expected}, not {names}", hint='cast it: .cast("…")')


def _to(value: CompiledExpression, data_type: pa.DataType) -> Callable[[pa.RecordBatch], Datum]:
    """Return the evaluation of a value with a cast to the operands' common type, if it has another."""
    if value.type == data_type:
        return value.evaluate
    return lambda batch: cast(value.evaluate(batch), data_type)


def _all_null(value: CompiledExpression) -> bool:
    return bool(pa.types.is_null(value.type))


def _comparison(compute: Callable[[Datum, Datum], Datum], on_floats: Callable[[Datum, Datum], Datum]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        common_type = operand_type(node, [arg.type for arg in args])
        if pa.types.is_nested(common_type) or common_type == pa.uuid():
            raise _misfit(node, [arg.type for arg in args], "plain values")
        if _all_null(args[0]) and _all_null(args[1]):
            return CompiledExpression(pa.bool_(), lambda batch: pa.scalar(None, pa.bool_()))
        left, right = (_to(arg, common_type) for arg in args)
        function = on_floats if pa.types.is_floating(common_type) else compute
        return CompiledExpression(pa.bool_(), lambda batch: function(left(batch), right(batch)), _any_fails(args))

    return lower


def _any_fails(args: Sequence[CompiledExpression]) -> bool:
    return any(arg.can_fail for arg in args)


# Spark's order of floats: NaN equals NaN and is greater than all others. `or_` and `and_`, other than the Kleene
# variants, return null for a null operand.
def _float_eq(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _float_gt(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.greater(left, right), pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right))))


def _float_gt_eq(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.greater_equal(left, right), pc.and_(pc.is_nan(left), pc.is_valid(right)))


def _arithmetic(compute: Callable[[Datum, Datum], Datum], decimals: Callable[..., tuple[int, int]]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        types = [arg.type for arg in args]
        common_type = operand_type(node, types)
        if not _is_number(common_type):
            raise _misfit(node, types, "numbers")
        if not pa.types.is_decimal(common_type):
            left, right = (_to(arg, common_type) for arg in args)
            return CompiledExpression(common_type, lambda batch: compute(left(batch), right(batch)), can_fail=True)
        parts = [common_type if pa.types.is_null(data_type) else _as_decimal(data_type) for data_type in types]
        precision, scale = decimals(*parts)
        if precision > 38:
            raise ExpressionError(
                f"{node!r} needs decimal({precision},{scale})", hint="cast an operand to fewer digits"
            )
        left, right = (_to(arg, part) for arg, part in zip(args, parts, strict=True))
        out = pa.decimal128(precision, scale)
        return CompiledExpression(out, lambda batch: cast(compute(left(batch), right(batch)), out), can_fail=True)

    return lower


def _sum_digits(left: pa.Decimal128Type, right: pa.Decimal128Type) -> tuple[int, int]:
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _product_digits(left: pa.Decimal128Type, right: pa.Decimal128Type) -> tuple[int, int]:
    return left.precision + right.precision + 1, left.scale + right.scale


def _div(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    types = [arg.type for arg in args]
    if not _is_number(operand_type(node, types)) and not all(map(_all_null, args)):
        raise _misfit(node, types, "numbers")
    left, right = (_to(arg, pa.float64()) for arg in args)
    return CompiledExpression(pa.float64(), lambda batch: _divide(node, left(batch), right(batch)), can_fail=True)


def _divide(node: Call, left: Datum, right: Datum) -> Datum:
    _refuse_zero(node, left, right)
    return pc.divide(left, right)


def _refuse_zero(node: Call, left: Datum, right: Datum) -> None:
    zero = pc.and_(pc.equal(right, pa.scalar(0, right.type)), pc.is_valid(left))
    if (zero.as_py() if isinstance(zero, pa.Scalar) else pc.any(zero).as_py()) is True:
        raise ExpressionError(f"division by zero in {node!r}", hint="filter such rows out before")


def _mod(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    types = [arg.type for arg in args]
    common_type = operand_type(node, types)
    if common_type not in _INT_DIGITS:
        raise _misfit(node, types, "integers")
    left, right = (_to(arg, common_type) for arg in args)
    return CompiledExpression(common_type, lambda batch: _remainder(node, left(batch), right(batch)), can_fail=True)


def _remainder(node: Call, left: Datum, right: Datum) -> Datum:
    _refuse_zero(node, left, right)
    # SQL ignores a zero divisor of a null dividend; Arrow raises.
    right = pc.if_else(pc.equal(right, pa.scalar(0, right.type)), pa.scalar(None, right.type), right)
    # Replace the divisor -1 by 1: both leave no remainder, but the smallest int divided by -1 overflows.
    right = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), pa.scalar(1, right.type), right)
    # The quotient truncates towards zero, so the remainder has the sign of the dividend.
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _neg(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (arg,) = args
    if not _is_number(arg.type):
        raise _misfit(node, [arg.type], "a number")
    return CompiledExpression(arg.type, lambda batch: pc.negate_checked(arg.evaluate(batch)), can_fail=True)


def _logic(compute: Callable[[Datum, Datum], Datum], decided_by: bool) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        if any(not (pa.types.is_boolean(arg.type) or _all_null(arg)) for arg in args):
            raise _misfit(node, [arg.type for arg in args], "conditions")
        left, right = (_to(arg, pa.bool_()) for arg in args)
        if not args[1].can_fail:
            return CompiledExpression(pa.bool_(), lambda batch: compute(left(batch), right(batch)), args[0].can_fail)

        def evaluate(batch: pa.RecordBatch) -> Datum:
            first = left(batch)
            return compute(first, _where_undecided(first, decided_by, right, batch))

        return CompiledExpression(pa.bool_(), evaluate, can_fail=True)

    return lower


def _where_undecided(
    first: Datum, decided_by: bool, right: Callable[[pa.RecordBatch], Datum], batch: pa.RecordBatch
) -> Datum:
    """Evaluate the right operand only on rows that the left one leaves undecided: ``(n != 0) & (x / n > 1)``."""
    if isinstance(first, pa.Scalar):
        return pa.scalar(None, pa.bool_()) if first.as_py() is decided_by else right(batch)
    is_undecided = pc.fill_null(pc.not_equal(first, decided_by), True)
    if pc.all(is_undecided).as_py():
        return right(batch)
    undecided = batch.filter(is_undecided)
    result = right(undecided)
    values = pa.repeat(result, undecided.num_rows) if isinstance(result, pa.Scalar) else result
    return pc.replace_with_mask(pa.nulls(batch.num_rows, pa.bool_()), is_undecided, values)


def _not(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (arg,) = args
    if not (pa.types.is_boolean(arg.type) or _all_null(arg)):
        raise _misfit(node, [arg.type], "a condition")
    value = _to(arg, pa.bool_())
    return CompiledExpression(pa.bool_(), lambda batch: pc.invert(value(batch)), arg.can_fail)


def _null_test(compute: Callable[[Datum], Datum]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (arg,) = args
        return CompiledExpression(pa.bool_(), lambda batch: compute(arg.evaluate(batch)), arg.can_fail)

    return lower


def _unsigned_zero(value: Datum) -> Datum:
    """Replace -0.0 by 0.0: they are equal, but not in the hash table of `is_in`."""
    return pc.add(value, pa.scalar(0.0, value.type)) if pa.types.is_floating(value.type) else value


def _is_in(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    if not all(isinstance(arg, Literal) for arg in node.args[1:]):
        raise ExpressionError(f"{node!r} takes constants only", hint="compare with columns by == and |")
    value, *listed = args
    common_type = operand_type(node, [arg.type for arg in args])
    if pa.types.is_nested(common_type) or pa.types.is_null(common_type) or common_type == pa.uuid():
        raise _misfit(node, [value.type], "a plain value")
    empty = pa.record_batch({})
    scalars = [cast(constant.evaluate(empty), common_type) for constant in listed if not _all_null(constant)]
    constants = _unsigned_zero(pa.array([scalar.as_py() for scalar in scalars], common_type))
    no_match = None if len(scalars) < len(listed) else False
    operand = _to(value, common_type)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = _unsigned_zero(operand(batch))
        matches = pc.is_in(values, value_set=constants)
        result = pc.if_else(matches, True, pa.scalar(no_match, pa.bool_()))
        return pc.if_else(pc.is_valid(values), result, pa.scalar(None, pa.bool_()))

    return CompiledExpression(pa.bool_(), evaluate, value.can_fail)


def _string_test(compute: Callable[..., Datum]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        value = args[0]
        pattern = _parameter(node)
        if not (pa.types.is_string(value.type) or _all_null(value)):
            raise _misfit(node, [value.type], "a string")
        operand = _to(value, pa.string())
        return CompiledExpression(pa.bool_(), lambda batch: compute(operand(batch), pattern=pattern), value.can_fail)

    return lower


def _cast(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, target = args[0], arrow_type(_parameter(node))
    if not can_cast(value.type, target):
        raise ExpressionError(
            f"{node!r} can't cast {type_name(value.type)} to {type_name(target)}",
            hint="the engines write such values differently: convert it with map or map_batches",
        )
    return CompiledExpression(target, lambda batch: cast(value.evaluate(batch), target), can_fail=value.type != target)


def _alias(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    return args[0]


def _parameter(node: Call) -> Any:
    last = node.args[-1]
    assert isinstance(last, Literal)
    return last.value


LOWERED: dict[str, Callable[[Call, list[CompiledExpression]], CompiledExpression]] = {
    "eq": _comparison(pc.equal, _float_eq),
    "ne": _comparison(pc.not_equal, lambda left, right: pc.invert(_float_eq(left, right))),
    "gt": _comparison(pc.greater, _float_gt),
    "gt_eq": _comparison(pc.greater_equal, _float_gt_eq),
    "lt": _comparison(pc.less, lambda left, right: _float_gt(right, left)),
    "lt_eq": _comparison(pc.less_equal, lambda left, right: _float_gt_eq(right, left)),
    "and_": _logic(pc.and_kleene, decided_by=False),
    "or_": _logic(pc.or_kleene, decided_by=True),
    "not_": _not,
    "add": _arithmetic(pc.add_checked, _sum_digits),
    "sub": _arithmetic(pc.subtract_checked, _sum_digits),
    "mul": _arithmetic(pc.multiply_checked, _product_digits),
    "div": _div,
    "mod": _mod,
    "neg": _neg,
    "is_null": _null_test(pc.is_null),
    "is_not_null": _null_test(pc.is_valid),
    "is_in": _is_in,
    "starts_with": _string_test(pc.starts_with),
    "contains": _string_test(pc.match_substring),
    "cast": _cast,
    "alias": _alias,
}

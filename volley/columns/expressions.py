"""Compiles expressions for Arrow batches: checks their types, and computes their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import can_cast, cast, try_cast
from volley.columns.clock import PROCESSING_TIME, epoch_clock
from volley.columns.compiled import (
    INT_DIGITS,
    CompiledExpression,
    Lowering,
    all_null,
    as_decimal,
    computed,
    literal_type,
    nonzero,
    operand_type,
    refuse_zero,
    to_type,
    wrong_types,
)
from volley.columns.dictionaries import decode
from volley.columns.functions import (
    choice,
    hashes,
    nested,
    numbers,
    strings,
    times,
)
from volley.errors import ExpressionError, near
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal, Now, parameter
from volley.types.arrow import Datum, arrow_type, is_number, type_name

__all__ = ["LOWERED", "compile_expression"]


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
    if isinstance(node, Now):
        return CompiledExpression(PROCESSING_TIME, lambda batch: pa.scalar(epoch_clock(), PROCESSING_TIME))
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


def _comparison(compute: Callable[[Datum, Datum], Datum], on_floats: Callable[[Datum, Datum], Datum]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        if _are_decimals(args):
            parts = [as_decimal(arg.type) for arg in args]
            scale = max(part.scale for part in parts)
            precision = max(part.precision - part.scale for part in parts) + scale
            if precision > _DIGITS:
                exact, operands = pa.decimal256(precision, scale), map(to_type, args, parts)
                return computed(
                    pa.bool_(), lambda *values: compute(*(value.cast(exact) for value in values)), *operands
                )
        common_type = operand_type(node, [arg.type for arg in args])
        if pa.types.is_nested(common_type) or common_type == pa.uuid():
            raise wrong_types(node, [arg.type for arg in args], "plain values")
        if all_null(args[0]) and all_null(args[1]):
            return CompiledExpression(pa.bool_(), lambda batch: pa.scalar(None, pa.bool_()))
        function = on_floats if pa.types.is_floating(common_type) else compute
        return computed(pa.bool_(), function, *(to_type(arg, common_type) for arg in args))

    return lower


# Spark's order of floats: NaN equals NaN and is greater than all others. `or_` and `and_`, other than the Kleene
# variants, return null for a null operand.
def _float_eq(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _float_gt(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.greater(left, right), pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right))))


def _float_gt_eq(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.greater_equal(left, right), pc.and_(pc.is_nan(left), pc.is_valid(right)))


# The digits of a decimal column, and those that Arrow computes with.
_DIGITS, _EXACT_DIGITS = 38, 76


def _arithmetic(compute: Callable[[Datum, Datum], Datum], decimals: Callable[..., tuple[int, int]]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        types = [arg.type for arg in args]
        common_type = types[0] if _are_decimals(args) else operand_type(node, types)
        if not is_number(common_type):
            raise wrong_types(node, types, "numbers")
        if not _are_decimals(args) and not pa.types.is_decimal(common_type):
            return computed(common_type, compute, *(to_type(arg, common_type) for arg in args), can_fail=True)
        parts = [common_type if pa.types.is_null(data_type) else as_decimal(data_type) for data_type in types]
        precision, scale = decimals(*parts)
        if precision > _EXACT_DIGITS:
            raise ExpressionError(
                f"{node!r} needs decimal({precision},{scale})", hint="cast an operand to fewer digits"
            )
        if precision > _DIGITS:
            return _rounded(compute, precision, scale, *map(to_type, args, parts))
        out, operands = pa.decimal128(precision, scale), map(to_type, args, parts)
        return computed(out, lambda left, right: cast(compute(left, right), out), *operands, can_fail=True)

    return lower


def _are_decimals(args: Sequence[CompiledExpression]) -> bool:
    """Return True for decimals, and for a decimal and integers."""
    types = [arg.type for arg in args]
    return any(map(pa.types.is_decimal, types)) and all(
        pa.types.is_decimal(data_type) or data_type in INT_DIGITS for data_type in types
    )


def _rounded(
    compute: Callable[[Datum, Datum], Datum], precision: int, scale: int, *operands: CompiledExpression
) -> CompiledExpression:
    """Return a decimal of more than 38 digits, rounded to as many decimals as Spark gives it, but 6 if it has them."""
    kept = max(_DIGITS - (precision - scale), min(scale, 6))
    out = pa.decimal128(_DIGITS, kept)

    def rounded(left: Datum, right: Datum) -> Datum:
        exact = compute(*(value.cast(pa.decimal256(value.type.precision, value.type.scale)) for value in (left, right)))
        return cast(exact if kept == scale else pc.round(exact, kept, "half_towards_infinity"), out)

    return computed(out, rounded, *operands, can_fail=True)


def _sum_digits(left: pa.Decimal128Type, right: pa.Decimal128Type) -> tuple[int, int]:
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _product_digits(left: pa.Decimal128Type, right: pa.Decimal128Type) -> tuple[int, int]:
    return left.precision + right.precision + 1, left.scale + right.scale


def _div(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    types = [arg.type for arg in args]
    if not _are_decimals(args) and not is_number(operand_type(node, types)) and not all(map(all_null, args)):
        raise wrong_types(node, types, "numbers")
    operands = (to_type(arg, pa.float64()) for arg in args)
    return computed(pa.float64(), partial(_divide, node), *operands, can_fail=True)


def _divide(node: Call, left: Datum, right: Datum) -> Datum:
    refuse_zero(node, left, right)
    return pc.divide(left, right)


def _mod(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    types = [arg.type for arg in args]
    common_type = operand_type(node, types)
    if common_type not in INT_DIGITS:
        raise wrong_types(node, types, "integers")
    return computed(common_type, partial(_remainder, node), *(to_type(arg, common_type) for arg in args), can_fail=True)


def _remainder(node: Call, left: Datum, right: Datum) -> Datum:
    right = nonzero(node, left, right)
    # Replace the divisor -1 by 1: both leave no remainder, and each quotient by 1 fits its type.
    right = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), pa.scalar(1, right.type), right)
    # The quotient truncates towards zero, so the remainder has the sign of the dividend.
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _neg(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (arg,) = args
    if not is_number(arg.type):
        raise wrong_types(node, [arg.type], "a number")
    return computed(arg.type, pc.negate_checked, arg, can_fail=True)


def _logic(compute: Callable[[Datum, Datum], Datum], decided_by: bool) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        if any(not (pa.types.is_boolean(arg.type) or all_null(arg)) for arg in args):
            raise wrong_types(node, [arg.type for arg in args], "conditions")
        left, right = (to_type(arg, pa.bool_()) for arg in args)
        if not right.can_fail:
            return computed(pa.bool_(), compute, left, right)

        def evaluate(batch: pa.RecordBatch) -> Datum:
            first = left.evaluate(batch)
            return compute(first, _where_undecided(first, decided_by, right, batch))

        return CompiledExpression(pa.bool_(), evaluate, can_fail=True)

    return lower


def _where_undecided(first: Datum, decided_by: bool, right: CompiledExpression, batch: pa.RecordBatch) -> Datum:
    """Evaluate the right operand only on rows that the left one leaves undecided: ``(n != 0) & (x / n > 1)``."""
    if isinstance(first, pa.Scalar):
        return pa.scalar(None, pa.bool_()) if first.as_py() is decided_by else right.evaluate(batch)
    is_undecided = pc.fill_null(pc.not_equal(first, decided_by), True)
    if pc.all(is_undecided).as_py():
        return right.evaluate(batch)
    values = right.column(batch.filter(is_undecided))
    return pc.replace_with_mask(pa.nulls(batch.num_rows, pa.bool_()), is_undecided, values)


def _not(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (arg,) = args
    if not (pa.types.is_boolean(arg.type) or all_null(arg)):
        raise wrong_types(node, [arg.type], "a condition")
    return computed(pa.bool_(), pc.invert, to_type(arg, pa.bool_()))


def _null_test(compute: Callable[[Datum], Datum]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        return computed(pa.bool_(), compute, *args)

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
        raise wrong_types(node, [value.type], "a plain value")
    empty = pa.record_batch({})
    scalars = [cast(constant.evaluate(empty), common_type) for constant in listed if not all_null(constant)]
    constants = _unsigned_zero(pa.array([scalar.as_py() for scalar in scalars], common_type))
    no_match = None if len(scalars) < len(listed) else False

    def compute(values: Datum) -> Datum:
        matches = pc.is_in(_unsigned_zero(values), value_set=constants)
        result = pc.if_else(matches, True, pa.scalar(no_match, pa.bool_()))
        return pc.if_else(pc.is_valid(values), result, pa.scalar(None, pa.bool_()))

    return computed(pa.bool_(), compute, to_type(value, common_type))


def _string_test(compute: Callable[..., Datum]) -> Any:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        value = args[0]
        pattern = parameter(node)
        if not (pa.types.is_string(value.type) or all_null(value)):
            raise wrong_types(node, [value.type], "a string")
        return computed(pa.bool_(), partial(compute, pattern=pattern), to_type(value, pa.string()))

    return lower


def _target(node: Call, value: CompiledExpression) -> pa.DataType:
    """Return the type that a cast converts to; raise ExpressionError if there is no such cast."""
    target = arrow_type(parameter(node))
    if not can_cast(value.type, target):
        raise ExpressionError(
            f"{node!r} can't cast {type_name(value.type)} to {type_name(target)}",
            hint="there is no such cast: convert it with map or map_batches",
        )
    return target


def _cast(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, target = args[0], _target(node, args[0])
    return computed(target, lambda values: cast(values, target), value, can_fail=value.type != target or value.can_fail)


def _try_cast(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, target = args[0], _target(node, args[0])
    return computed(target, lambda values: try_cast(values, target), value)


def _alias(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    return args[0]


LOWERED: dict[str, Lowering] = {
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
    "try_cast": _try_cast,
    "alias": _alias,
    **choice.LOWERED,
    **hashes.LOWERED,
    **nested.LOWERED,
    **numbers.LOWERED,
    **strings.LOWERED,
    **times.LOWERED,
}

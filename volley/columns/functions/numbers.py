"""Functions of numbers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.columns.compiled import CompiledExpression, Datum, Lowering, all_null, any_fails, misfit, nonzero, to_type
from volley.columns.exact import with_headroom
from volley.columns.operand_types import INT_DIGITS, is_number, operand_type
from volley.columns.rounding import rounded_floats
from volley.plan.expression_nodes import Call, Literal

__all__ = ["LOWERED"]

_MODES = {"half_up": "half_towards_infinity", "half_even": "half_to_even"}


def _number(node: Call, value: CompiledExpression) -> None:
    if not is_number(value.type):
        raise misfit(node, [value.type], "a number")


def _abs(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    _number(node, value)
    can_fail = value.can_fail or value.type in INT_DIGITS
    return CompiledExpression(value.type, lambda batch: pc.abs_checked(value.evaluate(batch)), can_fail)


def _sign(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    _number(node, value)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        numbers = value.evaluate(batch)
        zero = cast(pa.scalar(0), value.type)
        above, below = (test(numbers, zero).cast(pa.int32()) for test in (pc.greater, pc.less))
        return pc.subtract(above, below)

    return CompiledExpression(pa.int32(), evaluate, value.can_fail)


def _whole(compute: Callable[[Datum], Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (value,) = args
        _number(node, value)
        if value.type in INT_DIGITS:
            return value
        if pa.types.is_decimal(value.type):
            return _decimal_rounded(value, 0, compute)
        return CompiledExpression(value.type, lambda batch: compute(value.evaluate(batch)), value.can_fail)

    return lower


def _decimal_rounded(value: CompiledExpression, scale: int, compute: Callable[[Datum], Datum]) -> CompiledExpression:
    """Round decimals to fewer digits behind the point; 9.5 becomes 10: one more digit before the point, as in Spark."""
    if not value.type.scale:
        return value
    out = pa.decimal128(value.type.precision - value.type.scale + 1 + scale, scale)
    return CompiledExpression(
        out, lambda batch: pc.cast(compute(with_headroom(value.evaluate(batch))), out), value.can_fail
    )


def _round(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = args[0]
    _number(node, value)
    digits, mode = (arg.value for arg in node.args[1:] if isinstance(arg, Literal))
    if value.type in INT_DIGITS:
        return value
    if pa.types.is_decimal(value.type):
        if digits >= value.type.scale:
            return value
        options = pc.RoundOptions(digits, _MODES[mode])
        return _decimal_rounded(value, digits, lambda numbers: pc.round(numbers, options=options))
    return CompiledExpression(
        value.type, lambda batch: rounded_floats(value.evaluate(batch), digits, mode), value.can_fail
    )


def _of_doubles(compute: Callable[..., Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        for value in args:
            if not all_null(value):
                _number(node, value)
        values = [to_type(value, pa.float64()) for value in args]
        return CompiledExpression(
            pa.float64(), lambda batch: compute(*(value(batch) for value in values)), any_fails(args)
        )

    return lower


def _of_bits(compute: Callable[..., Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        out = _integers(node, args)
        values = [to_type(value, out) for value in args]
        return CompiledExpression(out, lambda batch: compute(*(value(batch) for value in values)), True)

    return lower


def _integers(node: Call, args: list[CompiledExpression]) -> pa.DataType:
    if any(arg.type not in INT_DIGITS for arg in args):
        raise misfit(node, [arg.type for arg in args], "whole numbers")
    return operand_type(node, [arg.type for arg in args])


def _int_div(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    out = _integers(node, args)
    number, divisor = (to_type(value, out) for value in args)

    def evaluate(batch: pa.RecordBatch) -> Datum:
        numbers = number(batch)
        return pc.divide_checked(numbers, nonzero(node, numbers, divisor(batch)))

    return CompiledExpression(out, evaluate, True)


LOWERED: dict[str, Lowering] = {
    "abs": _abs,
    "sign": _sign,
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "round": _round,
    "sqrt": _of_doubles(pc.sqrt),
    "exp": _of_doubles(pc.exp),
    "ln": _of_doubles(pc.ln),
    "log10": _of_doubles(pc.log10),
    "power": _of_doubles(pc.power),
    "int_div": _int_div,
    "bit_and": _of_bits(pc.bit_wise_and),
    "bit_or": _of_bits(pc.bit_wise_or),
    "bit_xor": _of_bits(pc.bit_wise_xor),
    "bit_not": _of_bits(pc.bit_wise_not),
    "shift_left": _of_bits(pc.shift_left_checked),
    "shift_right": _of_bits(pc.shift_right_checked),
}
"""The lowering of each function."""

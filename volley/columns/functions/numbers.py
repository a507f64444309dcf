"""Functions of numbers.

Floats are rounded by the shortest text that gives them back, as Spark does: 1.005 to two digits is 1.01. Those of 32
bits are rounded as the doubles that they are: 1.005 is 1.00499999523162842 then, and 1.0.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.columns.compiled import (
    INT_DIGITS,
    CompiledExpression,
    Lowering,
    all_null,
    computed,
    nonzero,
    operand_type,
    to_type,
    wrong_types,
)
from volley.columns.exact import with_headroom
from volley.plan.expression_nodes import Call, Literal
from volley.types.arrow import Datum, is_number

__all__ = ["LOWERED"]

_OF_DECIMALS = {"half_up": "half_towards_infinity", "half_even": "half_to_even"}
_OF_FLOATS = {"half_up": ROUND_HALF_UP, "half_even": ROUND_HALF_EVEN}
# A decimal of that many digits is the shortest text of the double next to it.
_EXACT_DIGITS = 15
# The shortest text of a double has at most that many digits.
_MOST_DIGITS = 17
# The arrays between floats and result of so many floats stay in the processor's cache: four times as fast.
_BLOCK = 16_384
# Powers of ten up to this one are doubles.
_EXACT_POWER = 22
# Holds all digits of the largest float with 30 digits behind the point.
_CONTEXT = Context(prec=400)

Doubles = npt.NDArray[np.float64]


def _number(node: Call, value: CompiledExpression) -> None:
    if not is_number(value.type):
        raise wrong_types(node, [value.type], "a number")


def _abs(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    _number(node, value)
    return computed(value.type, pc.abs_checked, value, can_fail=value.can_fail or value.type in INT_DIGITS)


def _sign(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    _number(node, value)

    def compute(numbers: Datum) -> Datum:
        zero = cast(pa.scalar(0), value.type)
        above, below = (test(numbers, zero).cast(pa.int32()) for test in (pc.greater, pc.less))
        return pc.subtract(above, below)

    return computed(pa.int32(), compute, value)


def _whole(compute: Callable[[Datum], Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (value,) = args
        _number(node, value)
        if value.type in INT_DIGITS:
            return value
        if pa.types.is_decimal(value.type):
            return _decimal_rounded(value, 0, compute)
        return computed(value.type, compute, value)

    return lower


def _decimal_rounded(value: CompiledExpression, scale: int, compute: Callable[[Datum], Datum]) -> CompiledExpression:
    """Round decimals to fewer digits behind the point; 9.5 becomes 10: one more digit before the point, as in Spark."""
    if not value.type.scale:
        return value
    out = pa.decimal128(value.type.precision - value.type.scale + 1 + scale, scale)
    return computed(out, lambda numbers: pc.cast(compute(with_headroom(numbers)), out), value)


def _round(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value = args[0]
    _number(node, value)
    digits, mode = (arg.value for arg in node.args[1:] if isinstance(arg, Literal))
    if value.type in INT_DIGITS:
        return value
    if pa.types.is_decimal(value.type):
        if digits >= value.type.scale:
            return value
        options = pc.RoundOptions(digits, _OF_DECIMALS[mode])
        return _decimal_rounded(value, digits, lambda numbers: pc.round(numbers, options=options))
    return computed(value.type, lambda numbers: _rounded_floats(numbers, digits, mode), value)


def _of_doubles(compute: Callable[..., Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        for value in args:
            if not all_null(value):
                _number(node, value)
        return computed(pa.float64(), compute, *(to_type(value, pa.float64()) for value in args))

    return lower


def _of_bits(compute: Callable[..., Datum]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        out = _integers(node, args)
        return computed(out, compute, *(to_type(value, out) for value in args), can_fail=True)

    return lower


def _integers(node: Call, args: list[CompiledExpression]) -> pa.DataType:
    if any(arg.type not in INT_DIGITS for arg in args):
        raise wrong_types(node, [arg.type for arg in args], "whole numbers")
    return operand_type(node, [arg.type for arg in args])


def _int_div(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    out = _integers(node, args)

    def compute(numbers: Datum, divisors: Datum) -> Datum:
        return pc.divide_checked(numbers, nonzero(node, numbers, divisors))

    return computed(out, compute, *(to_type(value, out) for value in args), can_fail=True)


def _rounded_floats(numbers: Any, digits: int, mode: str) -> Any:
    """Return floats, an array or a scalar, with at most `digits` digits behind the point; NaN and infinity stay.

    Example:
        >>> _rounded_floats(pa.array([1.005, -2.5, 0.285]), 2, "half_up").to_pylist()
        [1.01, -2.5, 0.29]
    """
    if isinstance(numbers, pa.Scalar):
        return _rounded_floats(pa.array([numbers], numbers.type), digits, mode)[0]
    floats = numbers.fill_null(0.0).to_numpy(zero_copy_only=False)
    rounded = np.empty_like(floats)
    for start in range(0, len(floats), _BLOCK):
        block = slice(start, start + _BLOCK)
        rounded[block] = _rounded(floats[block].astype(np.float64, copy=False), digits, mode)
    return pa.array(rounded, numbers.type, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _rounded(floats: Doubles, digits: int, mode: str) -> Doubles:
    sizes = np.abs(floats)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = sizes * 10.0**digits
        is_short = (digits < _EXACT_POWER) & (scaled < 10.0 ** (_EXACT_DIGITS - 1))
        rounded = np.copysign(_nearest(sizes, scaled, digits, mode), floats)
    if not is_short.all():
        rounded = np.where(is_short, rounded, floats)
        # Larger floats have no digit behind these.
        for place in np.flatnonzero(~is_short & (scaled < 10.0**_MOST_DIGITS)):
            rounded[place] = _by_text(floats[place], digits, mode)
    # Plus zero makes a negative zero positive, as in Spark.
    return rounded + 0.0


def _nearest(sizes: Doubles, scaled: Doubles, digits: int, mode: str) -> Doubles:
    """Round numbers of at most 15 digits: each is compared with the float next to the decimal in the middle."""
    below = np.floor(scaled)
    middle = (10 * below + 5) / 10.0 ** (digits + 1)
    up = sizes >= middle if mode == "half_up" else (sizes > middle) | ((sizes == middle) & (below % 2 == 1))
    rounded: Doubles = (below + up) / 10.0**digits
    return rounded


def _by_text(number: Any, digits: int, mode: str) -> float:
    return float(Decimal(str(number)).quantize(Decimal(1).scaleb(-digits), _OF_FLOATS[mode], _CONTEXT))


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

"""Calls on numbers."""

from __future__ import annotations

from tests.unit.beside_spark.case import Call, cases
from tests.unit.beside_spark.rows import NAN
from volley import Expr, col, greatest, least, lit, murmur3, xxhash64

__all__ = ["NUMBERS"]

i, j, x, y, m, o = map(col, "ijxymo")


def _one(number: Expr, name: str) -> list[Call]:
    """Return the functions of a single number."""
    return [
        ("neg", -number, f"-{name}"),
        ("abs", number.abs(), f"abs({name})"),
        ("sign", number.sign(), f"sign({name})"),
        ("floor", number.floor(), f"floor({name})"),
        ("ceil", number.ceil(), f"ceil({name})"),
        ("round", number.round(), f"round({name})"),
        ("sqrt", number.sqrt(), f"sqrt({name})"),
        ("exp", (number / 1e9).exp(), f"exp({name} / 1e9)"),
        ("ln", number.ln(), f"ln({name})"),
        ("log10", number.log10(), f"log10({name})"),
        ("power", number.power(2), f"power({name}, 2)"),
        ("is_null", number.is_null(), f"{name} is null"),
        ("is_not_null", number.is_not_null(), f"{name} is not null"),
        ("murmur3", murmur3(number), f"hash({name})"),
        ("xxhash64", xxhash64(number), f"xxhash64({name})"),
    ]


def _two(left: Expr, right: Expr, names: str) -> list[Call]:
    """Return the operators of two numbers."""
    a, b = tuple(names)
    return [
        ("add", left + right, f"{a} + {b}"),
        ("sub", left - right, f"{a} - {b}"),
        ("mul", left * right, f"{a} * {b}"),
        ("div", left / right, f"{a} / {b}"),
        ("eq", left == right, f"{a} = {b}"),
        ("ne", left != right, f"{a} <> {b}"),
        ("lt", left < right, f"{a} < {b}"),
        ("lt_eq", left <= right, f"{a} <= {b}"),
        ("gt", left > right, f"{a} > {b}"),
        ("gt_eq", left >= right, f"{a} >= {b}"),
        ("null_if", left.null_if(right), f"nullif({a}, {b})"),
        ("fill_null", left.fill_null(right), f"coalesce({a}, {b})"),
        ("greatest", greatest(left, right), f"greatest({a}, {b})"),
        ("least", least(left, right), f"least({a}, {b})"),
    ]


_WHOLE: list[Call] = [
    *_one(i, "i"),
    *_two(i, j, "ij"),
    ("mod", i % j, "i % j"),
    ("mul", i * 2, "i * 2"),
    ("add", i + lit(0.5), "i + 0.5d"),
    ("int_div", i.int_div(j), "i div j"),
    ("round", i.round(1), "round(i, 1)"),
    ("is_in", i.is_in(7, None), "i in (7, null)"),
    ("between", i.between(j, 10), "i between j and 10"),
    ("bit_and", i.bit_and(j), "i & j"),
    ("bit_or", i.bit_or(j), "i | j"),
    ("bit_xor", i.bit_xor(j), "i ^ j"),
    ("bit_not", i.bit_not(), "~i"),
    ("shift_left", i.shift_left(3), "shiftleft(i, 3)"),
    ("shift_right", i.shift_right(3), "shiftright(i, 3)"),
    ("greatest", greatest(i, j, 2), "greatest(i, j, 2)"),
    ("least", least(i, j, 2), "least(i, j, 2)"),
    ("murmur3", murmur3(i, j), "hash(i, j)"),
    ("xxhash64", xxhash64(i, j), "xxhash64(i, j)"),
]

_SHIFTS: list[Call] = [
    ("shift_left", i.shift_left(j), "shiftleft(i, j)"),
    ("shift_right", i.shift_right(j), "shiftright(i, j)"),
]

_DOUBLES: list[Call] = [
    *_one(x, "x"),
    *_two(x, y, "xy"),
    ("round", x.round(2), "round(x, 2)"),
    ("round", x.round(0, "half_even"), "bround(x)"),
    ("round", x.round(2, "half_even"), "bround(x, 2)"),
    ("power", x.power(y), "power(x, y)"),
    ("exp", x.exp(), "exp(x)"),
    ("is_nan", x.is_nan(), "isnan(x)"),
    ("is_in", x.is_in(0.0, NAN), "x in (0d, double('NaN'))"),
    ("between", x.between(0.0, 2.5), "x between 0d and 2.5d"),
    ("eq", x == 0, "x = 0"),
    ("eq", x == 1e23, "x = 1e23"),
]

_FLOATS: list[Call] = [
    *_one(x, "x"),
    ("add", x + 1, "x + 1"),
    ("add", x + 0.1, "x + 0.1d"),
    ("mul", x * 2, "x * 2"),
    ("eq", x == 0.1, "x = 0.1d"),
    ("round", x.round(2), "round(x, 2)"),
    ("is_nan", x.is_nan(), "isnan(x)"),
]

_DECIMALS: list[Call] = [
    *_one(m, "m"),
    *_two(m, o, "mo"),
    ("add", m + 1, "m + 1"),
    ("mul", m * 2, "m * 2"),
    ("div", m / 3, "m / 3"),
    ("add", m + 0.5, "m + 0.5d"),
    ("eq", m == 1, "m = 1"),
    ("round", m.round(1), "round(m, 1)"),
    ("round", m.round(2), "round(m, 2)"),
    ("round", m.round(1, "half_even"), "bround(m, 1)"),
]

_LONG_DECIMALS: list[Call] = [
    *_one(m, "m"),
    ("div", m / o, "m / o"),
    ("eq", m == o, "m = o"),
    ("lt", m < o, "m < o"),
    ("null_if", m.null_if(o), "nullif(m, o)"),
    ("greatest", greatest(m, o), "greatest(m, o)"),
    ("round", m.round(1), "round(m, 1)"),
]

_ROUNDED_FLOATS: list[Call] = [
    *(("round", x.round(digits), f"round(x, {digits})") for digits in (0, 1, 2, 5)),
    *(("round", x.round(digits, "half_even"), f"bround(x, {digits})") for digits in (0, 1, 2, 5)),
]

_PAIRS = ("ix", "lx", "xl", "il", "lf", "fl", "fx", "fm", "lm", "ml", "mx", "xm")

NUMBERS = [
    *cases("ints", [*_WHOLE, *_SHIFTS]),
    *cases("longs", _WHOLE),
    *cases("doubles", _DOUBLES),
    *cases("floats", _FLOATS),
    *cases("floats of many digits", _ROUNDED_FLOATS),
    *cases("decimals", _DECIMALS),
    *cases("long decimals", _LONG_DECIMALS),
    *(case for pair in _PAIRS for case in cases("mixed numbers", _two(col(pair[0]), col(pair[1]), pair))),
    *cases("mixed numbers", [("is_in", col("l").is_in(2.0**53, 1.5), "l in (9007199254740992d, 1.5d)")]),
]

"""Reads sign, digits and exponent of a number before Arrow's own conversion to decimals gets it.

For some numbers beyond the widest decimal, Arrow's conversion (pyarrow 26.0.1) gives a wrong one or ends the process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["decimals_of", "has_decimals", "in_scale", "plain"]

_DIGITS = 38
_WIDEST = 76
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_SURVIVED = r"^[+-]?[0-9]{0,38}(?:\.[0-9]{0,38})?(?:[eE][+-]?0*(?:[0-2]?[0-9]|3[0-8]))?$"
_EXACT = [Inexact, InvalidOperation]


def has_decimals(data_type: pa.DataType) -> bool:
    """Return True if the type is a decimal or contains one."""
    return pa.types.is_decimal(data_type) or any(
        has_decimals(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def decimals_of(texts: pa.Array, data_type: pa.Decimal128Type) -> pa.Array:
    """Return numbers in texts, which may have an exponent, as decimals.

    Raises:
        pyarrow.ArrowInvalid: If a text is no number, or one that the type can't represent.

    Example:
        >>> decimals_of(pa.array(["0.5", "25e-2", "0e-400"]), pa.decimal128(3, 2)).to_pylist()
        [Decimal('0.50'), Decimal('0.25'), Decimal('0.00')]
    """
    texts = texts.cast(pa.string())
    if not _are_short_and_plain(texts):
        texts = _without_long_numbers(texts)
    return texts.cast(pa.decimal256(_WIDEST, data_type.scale)).cast(data_type)


def _are_short_and_plain(texts: pa.StringArray) -> bool:
    """Return True if no text has an exponent or many digits: faster than a look at each text."""
    _, ends, letters = texts.buffers()
    if ends is None or letters is None:
        return True
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or np.diff(offsets).max() > _WIDEST:
        return not len(texts)
    data = letters.slice(offsets[0], offsets[-1] - offsets[0]).to_pybytes()
    return b"e" not in data and b"E" not in data


def _without_long_numbers(texts: pa.StringArray) -> pa.StringArray:
    """Write numbers of many digits or with a large exponent without them; raise for what no decimal holds."""
    is_long = pc.fill_null(pc.invert(pc.match_substring_regex(texts, _SURVIVED)), False)
    numbers = texts.filter(is_long).to_pylist()
    if not numbers:
        return texts
    shorter = [plain(number) for number in numbers]
    if None in shorter:
        number = numbers[shorter.index(None)]
        raise pa.ArrowInvalid(f"{number[:80]!r} is no decimal: it is no number, or has more than {_DIGITS} digits")
    return pc.replace_with_mask(texts, is_long, pa.array(shorter, pa.string()))


def plain(text: str) -> str | None:
    """Return a number without exponent and needless zeros.

    Returns:
        None if it is no number, or has more than 38 digits before or behind the point.

    Example:
        >>> plain("0012.50e-1"), plain("1e-400"), plain("0e-400")
        ('1.25', None, '0')
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    sign, whole, behind, exponent = match.groups("")
    digits = (whole + behind).lstrip("0")
    # How many of the digits stand before the point.
    before = len(digits) - len(behind) + _bounded(exponent)
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if before > _DIGITS or len(digits) - before > _DIGITS:
        return None
    padded = "0" * -min(before, 0) + digits.ljust(before, "0")
    before = max(before, 0)
    return f"{sign}{padded[:before] or 0}.{padded[before:]}".removesuffix(".")


def _bounded(exponent: str) -> int:
    """Return an exponent; one of many digits as one of 18."""
    digits = exponent.lstrip("+-0")[:18]
    return int(digits or 0) * (-1 if exponent.startswith("-") else 1)


def in_scale(values: list[Any], data_type: pa.DataType) -> list[Any]:
    """Return Python values with each `Decimal` in them in the scale of its type, whatever its exponent was.

    Raises:
        pyarrow.ArrowInvalid: If a decimal's type can't represent it.
    """
    t = pa.types
    if t.is_decimal(data_type):
        return _of_scale(values, data_type)
    if not has_decimals(data_type):
        return values
    return [_in_scale(value, data_type) for value in values]


def _of_scale(values: list[Any], data_type: pa.Decimal128Type) -> list[Any]:
    unit = Decimal(1).scaleb(-data_type.scale)
    quantize = Context(prec=data_type.precision, traps=_EXACT).quantize
    value = None
    try:
        return [quantize(value, unit) if isinstance(value, Decimal) else value for value in values]
    except ArithmeticError as error:
        value = next(value for value in values if isinstance(value, Decimal) and not _fits(value, unit, quantize))
        name = f"decimal({data_type.precision},{data_type.scale})"
        raise pa.ArrowInvalid(f"{str(value)[:80]} is no {name}") from error


def _fits(value: Decimal, unit: Decimal, quantize: Any) -> bool:
    try:
        quantize(value, unit)
    except ArithmeticError:
        return False
    return True


def _in_scale(value: Any, data_type: pa.DataType) -> Any:
    t = pa.types
    if value is None:
        return None
    if t.is_struct(data_type):
        types = {field.name: field.type for field in data_type}
        return {name: in_scale([item], types[name])[0] if name in types else item for name, item in _pairs(value)}
    if t.is_map(data_type):
        pairs = _pairs(value)
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        return list(zip(in_scale(keys, data_type.key_type), in_scale(items, data_type.item_type), strict=True))
    return in_scale(list(value), data_type.value_type)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, Mapping) else value)

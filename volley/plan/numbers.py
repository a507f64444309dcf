"""Functions of numbers, as methods of expressions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Literal, TypeVar, get_args

from volley.errors import ExpressionError
from volley.plan.aggregates import Aggregable

__all__ = ["Numeric", "Rounding"]

E = TypeVar("E")

Rounding = Literal["half_up", "half_even"]
"""What to do with a number in the middle between two others."""

_MOST_DIGITS = 30


class Numeric(Aggregable, Generic[E]):
    """The functions of numbers as methods of expressions.

    Example:
        >>> from volley import col
        >>> col("price").round(2)
        col('price').round(2, 'half_up')
    """

    __slots__ = ()

    @abstractmethod
    def _call(self, op: str, *args: Any) -> E:
        """Return a call of a function whose first argument is this expression."""

    def is_nan(self) -> E:
        """Return true for NaN, false for other numbers."""
        return self._call("is_nan")

    def abs(self) -> E:
        """Return the number without its sign; the smallest integer raises."""
        return self._call("abs")

    def sign(self) -> E:
        """Return -1, 0 or 1; 0 for NaN."""
        return self._call("sign")

    def floor(self) -> E:
        """Return the largest whole number that is not larger; a decimal(10, 2) becomes a decimal(9, 0)."""
        return self._call("floor")

    def ceil(self) -> E:
        """Return the smallest whole number that is not smaller; a decimal(10, 2) becomes a decimal(9, 0)."""
        return self._call("ceil")

    def round(self, digits: int = 0, mode: Rounding = "half_up") -> E:
        """Return the nearest number with at most this many digits behind the point.

        A float is rounded as the shortest text that gives it back: 1.005 to two digits is 1.01. A decimal(10, 4)
        rounded to two digits becomes a decimal(9, 2), as 999999.9999 needs a digit more before the point; with as many
        digits as it has, or more, it stays.

        Args:
            digits: The number of digits, 0 to 30.
            mode: What to do in the middle: ``"half_up"`` = away from 0; ``"half_even"`` = to the even digit.
        """
        if type(digits) is not int or not 0 <= digits <= _MOST_DIGITS:
            raise ExpressionError(f"digits is {digits!r}", hint=f"a whole number from 0 to {_MOST_DIGITS}")
        if mode not in get_args(Rounding):
            raise ExpressionError(f"mode is {mode!r}", hint='"half_up" or "half_even"')
        return self._call("round", digits, mode)

    def sqrt(self) -> E:
        """Return the square root as a double; NaN for negative numbers."""
        return self._call("sqrt")

    def exp(self) -> E:
        """Return e to the power of the number, as a double."""
        return self._call("exp")

    def ln(self) -> E:
        """Return the natural logarithm as a double: -infinity for 0, NaN for negative numbers."""
        return self._call("ln")

    def log10(self) -> E:
        """Return the decimal logarithm as a double: -infinity for 0, NaN for negative numbers."""
        return self._call("log10")

    def power(self, exponent: Any) -> E:
        """Return the number to the power of another one, as a double."""
        return self._call("power", exponent)

    def int_div(self, divisor: Any) -> E:
        """Return the quotient of two whole numbers, rounded towards zero; what is left is ``%``."""
        return self._call("int_div", divisor)

    def bit_and(self, other: Any) -> E:
        """Return the bits that both whole numbers have."""
        return self._call("bit_and", other)

    def bit_or(self, other: Any) -> E:
        """Return the bits that one of two whole numbers has."""
        return self._call("bit_or", other)

    def bit_xor(self, other: Any) -> E:
        """Return the bits that exactly one of two whole numbers has."""
        return self._call("bit_xor", other)

    def bit_not(self) -> E:
        """Return the bits that a whole number does not have."""
        return self._call("bit_not")

    def shift_left(self, bits: Any) -> E:
        """Return a whole number's bits moved up by less places than its type has; bits beyond the type are lost."""
        return self._call("shift_left", bits)

    def shift_right(self, bits: Any) -> E:
        """Return a whole number's bits moved down by less places than its type has; the sign stays."""
        return self._call("shift_right", bits)

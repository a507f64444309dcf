"""Aggregate functions as plan values: what each group of a keyed stream is reduced to."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from volley.errors import ExpressionError
from volley.plan.expression_nodes import Column, ExprNode

__all__ = [
    *("AGGREGATES", "Aggregable", "Aggregation", "approx_distinct", "avg", "count", "count_distinct", "first", "last"),
    *("list_", "max_", "min_", "quantile", "sum_", "variance"),
]

AGGREGATES: dict[str, str] = {
    "count": "count",
    "sum": "sum_",
    "min": "min_",
    "max": "max_",
    "avg": "avg",
    "first": "first",
    "last": "last",
    "count_distinct": "count_distinct",
    "approx_distinct": "approx_distinct",
    "quantile": "quantile",
    "variance": "variance",
    "list": "list_",
}
"""Every aggregate function, and the name of the Python function that creates it; each backend implements all."""

_MOST_ITEMS = 1_000


@dataclass(frozen=True, repr=False)
class Aggregation:
    """An aggregate function of an expression: frozen, value-equal; its repr is the code that builds it.

    All functions skip nulls, as in SQL. A group without other values has the count 0, and null for all others.

    Args:
        function: One of AGGREGATES.
        value: The expression; None only for a count of rows.
        parameter: The quantile, or the most items of a list.

    Example:
        >>> from volley import col
        >>> (col("price") * 2).sum()
        sum_(col('price') * lit(2))
    """

    function: str
    value: ExprNode | None = None
    parameter: float | None = None

    def __repr__(self) -> str:
        arguments = [repr(argument) for argument in (self.value, self.parameter) if argument is not None]
        return f"{AGGREGATES[self.function]}({', '.join(arguments)})"


class Aggregable:
    """The aggregate functions as methods of expressions.

    Example:
        >>> from volley import col
        >>> col("price").max()
        max_(col('price'))
    """

    __slots__ = ()

    node: ExprNode

    def count(self) -> Aggregation:
        """Count the values that are not null. See `volley.count`."""
        return count(self)

    def sum(self) -> Aggregation:
        """Add the values up. See `volley.sum_`."""
        return sum_(self)

    def min(self) -> Aggregation:
        """Return the smallest value. See `volley.min_`."""
        return min_(self)

    def max(self) -> Aggregation:
        """Return the largest value. See `volley.max_`."""
        return max_(self)

    def avg(self) -> Aggregation:
        """Return the mean of the values. See `volley.avg`."""
        return avg(self)

    def first(self) -> Aggregation:
        """Return the value with the earliest time. See `volley.first`."""
        return first(self)

    def last(self) -> Aggregation:
        """Return the value with the latest time. See `volley.last`."""
        return last(self)

    def count_distinct(self) -> Aggregation:
        """Count the different values. See `volley.count_distinct`."""
        return count_distinct(self)

    def approx_distinct(self) -> Aggregation:
        """Estimate the number of different values. See `volley.approx_distinct`."""
        return approx_distinct(self)

    def quantile(self, q: float) -> Aggregation:
        """Estimate a quantile of the values. See `volley.quantile`."""
        return quantile(self, q)

    def variance(self) -> Aggregation:
        """Return the variance of the values as a sample. See `volley.variance`."""
        return variance(self)

    def to_list(self, limit: int = _MOST_ITEMS) -> Aggregation:
        """Return the values as an array. See `volley.list_`."""
        return list_(self, limit)


Value = Aggregable | str
"""An expression, or the name of a column."""


def count(value: Value | None = None) -> Aggregation:
    """Count the rows of each group; with a value, those in which it is not null. A long.

    Args:
        value: An expression, or the name of a column; None = all rows.

    Example:
        >>> from volley import count
        >>> count(), count("email")
        (count(), count(col('email')))
    """
    return Aggregation("count", None if value is None else _node("count", value))


def sum_(value: Value) -> Aggregation:
    """Add the values of each group up: whole numbers as a long, which raises beyond 64 bits, others in their type.

    Float and double give a double, decimals one of 38 digits.

    Args:
        value: A number: an expression, or the name of a column.
    """
    return Aggregation("sum", _node("sum_", value))


def min_(value: Value) -> Aggregation:
    """Return the smallest value of each group, in its type; NaN is the largest number.

    Args:
        value: A number, text, boolean, date or time: an expression, or the name of a column.
    """
    return Aggregation("min", _node("min_", value))


def max_(value: Value) -> Aggregation:
    """Return the largest value of each group, in its type; NaN is the largest number.

    Args:
        value: A number, text, boolean, date or time: an expression, or the name of a column.
    """
    return Aggregation("max", _node("max_", value))


def avg(value: Value) -> Aggregation:
    """Return the mean of the values of each group, a double.

    Args:
        value: A number: an expression, or the name of a column.
    """
    return Aggregation("avg", _node("avg", value))


def first(value: Value) -> Aggregation:
    """Return the value with the earliest event time of each group, in its type; of equal times the first to arrive.

    Args:
        value: An expression, or the name of a column.
    """
    return Aggregation("first", _node("first", value))


def last(value: Value) -> Aggregation:
    """Return the value with the latest event time of each group, in its type; of equal times the last to arrive.

    Args:
        value: An expression, or the name of a column.
    """
    return Aggregation("last", _node("last", value))


def count_distinct(value: Value) -> Aggregation:
    """Count the different values of each group exactly, a long. Keeps every value until its group is done.

    Args:
        value: An expression, or the name of a column.
    """
    return Aggregation("count_distinct", _node("count_distinct", value))


def approx_distinct(value: Value) -> Aggregation:
    """Estimate the number of different values of each group, a long, by a HyperLogLog sketch of Apache DataSketches.

    The sketch has at most 2 KiB; its standard error is about 1.6 %.

    Args:
        value: A number, text, boolean, date or time: an expression, or the name of a column.
    """
    return Aggregation("approx_distinct", _node("approx_distinct", value))


def quantile(value: Value, q: float) -> Aggregation:
    """Estimate a quantile of the values of each group, a double, by a t-digest of Apache DataSketches.

    NaN is skipped. The estimate is best at both ends.

    Args:
        value: A number: an expression, or the name of a column.
        q: The share of the values below it, 0 to 1: 0.5 = the median.

    Raises:
        ExpressionError: If `q` is not a number from 0 to 1.

    Example:
        >>> from volley import quantile
        >>> quantile("seconds", 0.99)
        quantile(col('seconds'), 0.99)
    """
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise ExpressionError(f"quantile {q!r} is not valid", hint="a number from 0 to 1, such as 0.5 for the median")
    return Aggregation("quantile", _node("quantile", value), float(q))


def variance(value: Value) -> Aggregation:
    """Return the variance of the values of each group as a sample, a double; null for less than two values.

    Args:
        value: A number: an expression, or the name of a column.
    """
    return Aggregation("variance", _node("variance", value))


def list_(value: Value, limit: int = _MOST_ITEMS) -> Aggregation:
    """Return the values of each group as an array, in the order of their event times.

    Args:
        value: An expression, or the name of a column.
        limit: The most values; the earliest are kept.

    Raises:
        ExpressionError: If `limit` is not a whole number above 0.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ExpressionError(f"limit {limit!r} is not valid", hint="a whole number above 0")
    return Aggregation("list", _node("list_", value), limit)


def _node(function: builtins.str, value: Value) -> ExprNode:
    if isinstance(value, Aggregable):
        return value.node
    if not isinstance(value, str) or not value:
        raise ExpressionError(
            f"{function} takes a column's name or an expression, not {value!r}", hint=f'for example {function}("price")'
        )
    return Column(value)

"""Aggregate functions as plan values: what each group of a keyed stream is reduced to."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, replace
from typing import Literal

from volley.errors import ExpressionError, brief
from volley.html_table import text_html
from volley.plan.expression_nodes import Column, ExprNode, column_names

__all__ = [
    *("AGGREGATES", "Aggregable", "Aggregation", "Gap", "Value", "approx_distinct", "avg", "count", "count_distinct"),
    *("first", "last", "list_", "max_", "min_", "quantile", "sum_", "top", "value_node", "variance"),
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
    "top": "top",
}
"""Every aggregate function, and the name of the Python function that creates it; each backend implements all."""

Gap = Literal["previous", "linear"]
"""What a window without rows has of an aggregate."""

_GAPS: dict[Gap | None, str] = {None: "", "previous": ".forward_fill()", "linear": ".interpolate()"}
_MOST_ITEMS = 1_000


@dataclass(frozen=True, repr=False)
class Aggregation:
    """An aggregate function of an expression: frozen, value-equal; its repr is the code that builds it.

    All functions skip nulls, as in SQL. A group without other values has the count 0, and null for all others.

    Args:
        function: One of AGGREGATES.
        value: The expression; None only for a count of rows.
        parameter: The quantile, or the most items of a list.
        by: The expression that ranks the values of `top`.
        gap: What a window without rows has: the result before, or one between those on both sides; None = the result
            for no rows.

    Example:
        >>> from volley import col
        >>> (col("price") * 2).sum()
        sum_(col('price') * lit(2))
    """

    function: str
    value: ExprNode | None = None
    parameter: float | None = None
    by: ExprNode | None = None
    gap: Gap | None = None

    @property
    def is_count(self) -> builtins.bool:
        """True if it is 0 for no rows, where others are null."""
        return self.function in ("count", "count_distinct", "approx_distinct")

    @property
    def used_columns(self) -> set[builtins.str]:
        """The names of the columns that it uses."""
        return set().union(*(column_names(node) for node in (self.value, self.by) if node is not None))

    def forward_fill(self) -> Aggregation:
        """Return an aggregate that gives windows without rows the result of the window before.

        It needs `KeyedStream.window(…, fill_gaps=…)`.

        Example:
            >>> from volley import last
            >>> last("level").forward_fill()
            last(col('level')).forward_fill()
        """
        return replace(self, gap="previous")

    def interpolate(self) -> Aggregation:
        """Return an aggregate that gives windows without rows a result on the line between both neighbours': a double.

        It needs `KeyedStream.window(…, fill_gaps=…)`, and a number.

        Example:
            >>> from volley import avg
            >>> avg("heat").interpolate()
            avg(col('heat')).interpolate()
        """
        return replace(self, gap="linear")

    def __repr__(self) -> str:
        arguments = [repr(argument) for argument in (self.value, self.parameter, self.by) if argument is not None]
        return f"{AGGREGATES[self.function]}({', '.join(arguments)}){_GAPS[self.gap]}"

    _repr_html_ = text_html


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

    def top(self, limit: int, by: Value | None = None) -> Aggregation:
        """Return the values with the largest ranks. See `volley.top`."""
        return top(self, limit, by)


Value = Aggregable | str
"""An expression, or the name of a column."""


@brief
def count(value: Value | None = None) -> Aggregation:
    """Count the rows of each group; with a value, those in which it is not null. A long.

    Args:
        value: An expression, or the name of a column; None = all rows.

    Example:
        >>> from volley import count
        >>> count(), count("email")
        (count(), count(col('email')))
    """
    return Aggregation("count", None if value is None else value_node("count", value))


@brief
def sum_(value: Value) -> Aggregation:
    """Add the values of each group up: whole numbers as a long, which raises beyond 64 bits, others in their type.

    Float and double give a double, decimals one of 38 digits, which raises beyond them.

    Args:
        value: A number: an expression, or the name of a column.
    """
    return Aggregation("sum", value_node("sum_", value))


@brief
def min_(value: Value) -> Aggregation:
    """Return the smallest value of each group, in its type; NaN is the largest number.

    Args:
        value: A number, text, boolean, date or time: an expression, or the name of a column.
    """
    return Aggregation("min", value_node("min_", value))


@brief
def max_(value: Value) -> Aggregation:
    """Return the largest value of each group, in its type; NaN is the largest number.

    Args:
        value: A number, text, boolean, date or time: an expression, or the name of a column.
    """
    return Aggregation("max", value_node("max_", value))


@brief
def avg(value: Value) -> Aggregation:
    """Return the mean of the values of each group, a double.

    Args:
        value: A number: an expression, or the name of a column.
    """
    return Aggregation("avg", value_node("avg", value))


@brief
def first(value: Value) -> Aggregation:
    """Return the value with the earliest event time of each group, in its type; of equal times the first to arrive.

    Args:
        value: An expression, or the name of a column.
    """
    return Aggregation("first", value_node("first", value))


@brief
def last(value: Value) -> Aggregation:
    """Return the value with the latest event time of each group, in its type; of equal times the last to arrive.

    Args:
        value: An expression, or the name of a column.
    """
    return Aggregation("last", value_node("last", value))


@brief
def count_distinct(value: Value) -> Aggregation:
    """Count the different values of each group exactly, a long. Keeps every value until its group is done.

    Args:
        value: An expression, or the name of a column.
    """
    return Aggregation("count_distinct", value_node("count_distinct", value))


@brief
def approx_distinct(value: Value) -> Aggregation:
    """Estimate the number of different values of each group, a long, by a HyperLogLog sketch of Apache DataSketches.

    The sketch has at most 2 KiB; its standard error is about 1.6 %.

    Args:
        value: A number, text, boolean, date or time: an expression, or the name of a column.
    """
    return Aggregation("approx_distinct", value_node("approx_distinct", value))


@brief
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
    return Aggregation("quantile", value_node("quantile", value), float(q))


@brief
def variance(value: Value) -> Aggregation:
    """Return the variance of the values of each group as a sample, a double; null for less than two values.

    Args:
        value: A number: an expression, or the name of a column.
    """
    return Aggregation("variance", value_node("variance", value))


@brief
def list_(value: Value, limit: int = _MOST_ITEMS) -> Aggregation:
    """Return the values of each group as an array, in the order of their event times.

    Args:
        value: An expression, or the name of a column.
        limit: The most values; the earliest are kept.

    Raises:
        ExpressionError: If `limit` is not a whole number above 0.
    """
    return Aggregation("list", value_node("list_", value), _limit(limit))


@brief
def top(value: Value, limit: int, by: Value | None = None) -> Aggregation:
    """Return the values of the rows that rank highest in each group, as an array, the highest first.

    Of rows with equal ranks the earliest are kept, of equal times those that came
    first. Rows whose value or rank is null are skipped.

    Args:
        value: An expression, or the name of a column; `struct` takes several columns of the rows.
        limit: The most values.
        by: The rank: a number, text, boolean, date or time, as an expression or the name of a column; None = the value.

    Raises:
        ExpressionError: If `limit` is not a whole number above 0.

    Example:
        >>> from volley import top
        >>> top("item", 3, by="price")
        top(col('item'), 3, col('price'))
    """
    return Aggregation("top", value_node("top", value), _limit(limit), value_node("top", value if by is None else by))


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ExpressionError(f"limit {limit!r} is not valid", hint="a whole number above 0")
    return limit


def value_node(function: builtins.str, value: Value) -> ExprNode:
    """Return the node of a function's value: an expression's, or that of a column.

    Raises:
        ExpressionError: If it is neither.
    """
    if isinstance(value, Aggregable):
        return value.node
    if not isinstance(value, str) or not value:
        raise ExpressionError(
            f"{function} takes a column's name or an expression, not {value!r}", hint=f'for example {function}("price")'
        )
    return Column(value)

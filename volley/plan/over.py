"""Functions of ordered rows as plan values: what a row gets from the rows of its key around it, SQL's OVER."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from volley.checks import count, count_or_zero, duration, keep, names, optional, text
from volley.errors import ConfigError, ExpressionError, brief
from volley.html_table import text_html
from volley.plan.aggregates import Aggregation, Value, value_node
from volley.plan.expression_nodes import ExprNode, column_names
from volley.plan.windows import Timing

__all__ = [
    *("RANKS", "Ordering", "OverFunction", "dense_rank", "lag", "lead", "rank", "row_number"),
    "rows_between",
]

RANKS = ("row_number", "rank", "dense_rank")
"""The functions that say where a row is."""


@dataclass(frozen=True, repr=False)
class OverFunction:
    """A function of a row and those around it: frozen, value-equal; its repr is the code that builds it.

    Args:
        function: One of `RANKS`, ``lag``, ``lead``, ``rows_between``.
        value: The expression of ``lag`` and ``lead``.
        before: How many rows before the row: of ``lag``, or where the rows of ``rows_between`` begin; None = the first.
        after: How many rows behind the row: of ``lead``, or where the rows of ``rows_between`` end; None = the last.
        aggregation: The aggregate of ``rows_between``.

    Example:
        >>> from volley import rows_between, sum_
        >>> rows_between(sum_("price"), before=2)
        rows_between(sum_(col('price')), before=2, after=0)
    """

    function: str
    value: ExprNode | None = None
    before: int | None = 0
    after: int | None = 0
    aggregation: Aggregation | None = None

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses."""
        if self.aggregation is not None:
            return self.aggregation.used_columns
        return set() if self.value is None else column_names(self.value)

    @property
    def needs_later_rows(self) -> bool:
        """True if a row behind another one can change what that gets."""
        return self.function not in (*RANKS, "lag")

    def __repr__(self) -> str:
        if self.function == "rows_between":
            return f"rows_between({self.aggregation!r}, before={self.before}, after={self.after})"
        distance = {"lag": self.before, "lead": self.after}.get(self.function)
        return f"{self.function}({'' if self.value is None else f'{self.value!r}, {distance}'})"

    _repr_html_ = text_html


@dataclass(frozen=True)
class Ordering(Timing):
    """How the rows of a key are ordered; the arguments of `KeyedStream.order_by`, checked.

    Args:
        order: The columns, each with ``asc`` or ``desc``.
        on: The event time among the keys: rows are final once the watermark is behind it; None = they never are.
        ttl: How long the rows of a key are kept after its last one, by the computer's clock; None = for ever.
    """

    order: tuple[str, ...] = ()
    on: str | None = None
    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        keep(self, order=names, on=optional(text), ttl=optional(duration))
        if self.on is not None and self.ttl is not None:
            raise ConfigError(
                f"order_by follows {self.on!r}, and has a ttl", hint="leave ttl out: rows go when they come out"
            )
        super().__post_init__()


@brief
def row_number() -> OverFunction:
    """Return the number of a row among those of its key, from 1; rows that the order does not tell apart have any.

    Which of them comes first is always the same: it follows from their values.

    Example:
        >>> from volley import row_number
        >>> row_number()
        row_number()
    """
    return OverFunction("row_number")


@brief
def rank() -> OverFunction:
    """Return one more than the number of rows before a row: rows that the order does not tell apart have the same."""
    return OverFunction("rank")


@brief
def dense_rank() -> OverFunction:
    """Return one more than the number of different places before a row: ranks without gaps."""
    return OverFunction("dense_rank")


@brief
def lag(value: Value, rows: int = 1) -> OverFunction:
    """Return the value of an earlier row; null where there is none.

    Args:
        value: An expression, or the name of a column.
        rows: How many rows before.

    Raises:
        ConfigError: If `rows` is not a whole number above 0.

    Example:
        >>> from volley import lag
        >>> lag("price")
        lag(col('price'), 1)
    """
    return OverFunction("lag", value_node("lag", value), before=count("rows", rows))


@brief
def lead(value: Value, rows: int = 1) -> OverFunction:
    """Return the value of a later row; null where there is none.

    Args:
        value: An expression, or the name of a column.
        rows: How many rows behind.

    Raises:
        ConfigError: If `rows` is not a whole number above 0.
    """
    return OverFunction("lead", value_node("lead", value), after=count("rows", rows))


@brief
def rows_between(aggregation: Aggregation, before: int | None = None, after: int | None = 0) -> OverFunction:
    """Return an aggregate of the rows around a row, and of itself.

    Args:
        aggregation: Any aggregate function. What goes by time, such as `first`, goes by the order of the rows.
        before: How many rows before the row; None = all of its key.
        after: How many rows behind it; None = all of its key.

    Raises:
        ConfigError: If `before` or `after` is not a whole number from 0 on.
        ExpressionError: If `aggregation` is not an aggregate, or fills gaps.

    Example:
        >>> from volley import avg, rows_between
        >>> rows_between(avg("price"), before=6)
        rows_between(avg(col('price')), before=6, after=0)
    """
    if not isinstance(aggregation, Aggregation):
        raise ExpressionError(
            f"rows_between takes an aggregate, not {type(aggregation).__name__}",
            hint='for example rows_between(avg("x"), before=6)',
        )
    if aggregation.gap:
        raise ExpressionError(
            f"rows_between has no gaps to fill: {aggregation!r}", hint=f"{replace(aggregation, gap=None)!r}"
        )
    bound = optional(count_or_zero)
    return OverFunction("rows_between", None, bound("before", before), bound("after", after), aggregation)

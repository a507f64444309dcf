"""Choices by conditions: ``when(condition).then(value)``; a condition may be a SQL text."""

from __future__ import annotations

from typing import Any

from volley.errors import brief
from volley.plan.expression_nodes import Call, ExprNode
from volley.plan.expressions import Expr, as_node
from volley.plan.sql import sql

__all__ = ["Branch", "Choice", "when"]


@brief
def when(condition: Any) -> Branch:
    """Begin a choice: ``when(condition).then(value)``, then further ``.when(…).then(…)``, then ``.otherwise(value)``.

    The first condition that is true decides; a value is computed only for the rows that get it. Without `otherwise`,
    rows for which no condition is true get null.

    Args:
        condition: A condition, an expression or a SQL text; null counts as false.

    Raises:
        ExpressionError: If the text is wrong.

    Example:
        >>> from volley import col, when
        >>> when(col("n") > 0).then("some").otherwise("none")
        when(col('n') > lit(0)).then(lit('some')).otherwise(lit('none'))
        >>> when("n > 0").then(1)
        when(col('n') > lit(0)).then(lit(1)).otherwise(lit(None))
    """
    return Branch((), _condition(condition))


def _condition(value: Any) -> ExprNode:
    return as_node(sql(value) if isinstance(value, str) else value)


class Branch:
    """A condition of a choice, whose value comes next; see `when`."""

    def __init__(self, before: tuple[ExprNode, ...], condition: ExprNode) -> None:
        self._before = before
        self._condition = condition

    def then(self, value: Any) -> Choice:
        """Set the value of the rows for which the condition is the first to be true."""
        return Choice((*self._before, self._condition, as_node(value)))


class Choice(Expr):
    """A choice between values; an expression that is null for all other rows."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[ExprNode, ...]) -> None:
        self._branches = branches
        super().__init__(Call("when", (*branches, as_node(None))))

    def when(self, condition: Any) -> Branch:
        """Begin a further branch, for rows for which no condition was true so far."""
        return Branch(self._branches, _condition(condition))

    def otherwise(self, value: Any) -> Expr:
        """Set the value of all other rows."""
        return Expr(Call("when", (*self._branches, as_node(value))))

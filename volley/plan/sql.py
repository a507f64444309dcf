"""Expressions from SQL text."""

from __future__ import annotations

from volley.errors import ExpressionError, brief
from volley.plan.expressions import Expr

__all__ = ["sql"]


@brief
def sql(text: str) -> Expr:
    """Return the expression that a SQL text says, so that filters and columns can be written in configuration.

    The text becomes the same expression as the methods of `Expr` build. Functions have Spark's names; unlike in
    Spark, names of columns are case-sensitive and quoted by ``"``, and a backslash stands for itself. ``/`` returns a
    double, ``timestamp '…'`` is an instant, in UTC without an offset, and ``timestamp_ntz '…'`` is a wall-clock time. A
    number with a point is a double, in Spark a decimal; write ``decimal '0.1'`` for a decimal. ``a.b`` is the field b
    of the struct a. Function names are not case-sensitive;
    `docs/reference/functions.md` lists them.

    Args:
        text: One expression, without aggregates and subqueries; ``as`` names it.

    Raises:
        ExpressionError: If the text is wrong, with the line and column of the mistake, or says what expressions can't.

    Example:
        >>> sql("price * 1.2 > 10 and status in ('a', 'b')")
        ((col('price') * lit(1.2)) > lit(10)) & col('status').is_in('a', 'b')
    """
    if not isinstance(text, str):
        raise ExpressionError(f"sql takes a text, not {type(text).__name__}", hint="""sql("status = 'active'")""")
    from volley.plan.sql_nodes import expression_of

    return expression_of(text)

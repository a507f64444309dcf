"""Functions of several expressions: choices between values, and texts, structs and lists put together."""

from __future__ import annotations

from typing import Any

from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, ExprNode
from volley.plan.expressions import Expr, as_node

__all__ = [
    *("Branch", "Choice", "array", "coalesce", "concat_str", "greatest", "least", "murmur3", "struct", "when"),
    "xxhash64",
]


def coalesce(*values: Any) -> Expr:
    """Return the first of some values that is not null; later ones are computed only where they are needed.

    Args:
        values: Expressions or constants of one type.

    Raises:
        ExpressionError: If there is none.

    Example:
        >>> from volley import coalesce, col
        >>> coalesce(col("nickname"), col("name"), "unknown")
        coalesce(col('nickname'), col('name'), lit('unknown'))
    """
    return _of_several("coalesce", values, 1)


def greatest(*values: Any) -> Expr:
    """Return the largest of some values, nulls passed over; NaN is the largest number.

    Raises:
        ExpressionError: If there are less than two.
    """
    return _of_several("greatest", values)


def least(*values: Any) -> Expr:
    """Return the smallest of some values, nulls passed over; NaN is the largest number.

    Raises:
        ExpressionError: If there are less than two.
    """
    return _of_several("least", values)


def concat_str(*values: Any, separator: str = "") -> Expr:
    """Return several texts as one; null if one of them is.

    Args:
        values: Expressions or constants.
        separator: The text between them.

    Raises:
        ExpressionError: If there is no value, or the separator is no text.

    Example:
        >>> from volley import col, concat_str
        >>> concat_str(col("first"), col("last"), separator=" ")
        concat_str(col('first'), col('last'), separator=' ')
    """
    if not isinstance(separator, str):
        raise ExpressionError(f"separator is {separator!r}", hint="a text, as a constant")
    return _of_several("concat_str", values, 1, separator)


def murmur3(*values: Any) -> Expr:
    """Return Spark's ``hash`` of some values: 32 bits of Murmur3, nulls passed over.

    Args:
        values: Numbers, booleans, texts, binary values, dates or timestamps; an int and a long have different hashes.

    Raises:
        ExpressionError: If there is none.

    Example:
        >>> from volley import col, murmur3
        >>> murmur3(col("tenant"), col("id"))
        murmur3(col('tenant'), col('id'))
    """
    return _of_several("murmur3", values, 1)


def xxhash64(*values: Any) -> Expr:
    """Return Spark's ``xxhash64`` of some values: 64 bits of xxHash, nulls passed over. See `murmur3`."""
    return _of_several("xxhash64", values, 1)


def struct(**fields: Any) -> Expr:
    """Return a struct of some values; it is never null itself.

    Args:
        fields: An expression or a constant for each field's name.

    Raises:
        ExpressionError: If there is none.

    Example:
        >>> from volley import col, struct
        >>> struct(city=col("city"), country="de")
        struct(city=col('city'), country=lit('de'))
    """
    if not fields:
        raise ExpressionError("struct got no fields", hint='struct(city=col("city"))')
    return Expr(Call("struct", tuple(as_node(part) for field in fields.items() for part in field)))


def array(*values: Any) -> Expr:
    """Return a list of some values, nulls among them.

    Args:
        values: Expressions or constants of one type.

    Raises:
        ExpressionError: If there is none.

    Example:
        >>> from volley import array, col
        >>> array(col("first"), col("last"))
        array(col('first'), col('last'))
    """
    return _of_several("array", values, 1)


def _of_several(op: str, values: tuple[Any, ...], least: int = 2, *parameters: Any) -> Expr:
    if len(values) < least:
        raise ExpressionError(f"{op} got {len(values)} values", hint=f"give at least {least}")
    return Expr(Call(op, tuple(map(as_node, (*values, *parameters)))))


def when(condition: Any) -> Branch:
    """Begin a choice: ``when(condition).then(value)``, then further ``.when(…).then(…)``, then ``.otherwise(value)``.

    The first condition that is true decides; a value is computed only for the rows that get it. Without `otherwise`,
    rows for which no condition is true get null.

    Args:
        condition: A condition; null counts as false.

    Example:
        >>> from volley import col, when
        >>> when(col("n") > 0).then("some").otherwise("none")
        when(col('n') > lit(0)).then(lit('some')).otherwise(lit('none'))
    """
    return Branch((), as_node(condition))


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
        return Branch(self._branches, as_node(condition))

    def otherwise(self, value: Any) -> Expr:
        """Set the value of all other rows."""
        return Expr(Call("when", (*self._branches, as_node(value))))

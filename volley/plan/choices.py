"""Functions of several expressions: the first or greatest of some values, and texts, structs and lists put together."""

from __future__ import annotations

from typing import Any

from volley.errors import ExpressionError, brief
from volley.plan.expression_nodes import Call
from volley.plan.expressions import Expr, as_node

__all__ = [
    *("array", "coalesce", "concat_str", "greatest", "least", "murmur3", "struct", "xxhash64"),
]


@brief
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


@brief
def greatest(*values: Any) -> Expr:
    """Return the largest of some values, nulls passed over; NaN is the largest number.

    Raises:
        ExpressionError: If there are less than two.
    """
    return _of_several("greatest", values)


@brief
def least(*values: Any) -> Expr:
    """Return the smallest of some values, nulls passed over; NaN is the largest number.

    Raises:
        ExpressionError: If there are less than two.
    """
    return _of_several("least", values)


@brief
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


@brief
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


@brief
def xxhash64(*values: Any) -> Expr:
    """Return Spark's ``xxhash64`` of some values: 64 bits of xxHash, nulls passed over. See `murmur3`."""
    return _of_several("xxhash64", values, 1)


@brief
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


@brief
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

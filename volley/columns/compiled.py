"""What an expression is compiled to, and what all operations need to compile theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal
from volley.types.arrow import type_name

__all__ = [
    *("CompiledExpression", "Datum", "Lowering", "all_null", "any_fails", "as_array", "misfit", "nonzero", "parameter"),
    *("refuse_zero", "to_type", "whole"),
]

Datum = Any
"""An Arrow array or scalar: pyarrow has no common type for them."""


@dataclass(frozen=True)
class CompiledExpression:
    """A compiled expression.

    Args:
        type: The Arrow type of its values.
        evaluate: Computes an array for a record batch, or a scalar if the expression is constant.
        can_fail: True if a row's values can make it raise (overflow, division by zero, cast).
    """

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Datum]
    can_fail: bool = False


def misfit(node: Call, types: Sequence[pa.DataType], expected: str) -> ExpressionError:
    """Return the error for operands of the wrong types."""
    names = " and ".join(map(type_name, types))
    return ExpressionError(f"{node!r} takes {expected}, not {names}", hint='cast it: .cast("…")')


def to_type(value: CompiledExpression, data_type: pa.DataType) -> Callable[[pa.RecordBatch], Datum]:
    """Return the evaluation of a value with a cast to the operands' common type, if it has another."""
    if value.type == data_type:
        return value.evaluate
    return lambda batch: cast(value.evaluate(batch), data_type)


def all_null(value: CompiledExpression) -> bool:
    """Return True for the constant null, which has no type yet."""
    return bool(pa.types.is_null(value.type))


def any_fails(args: Sequence[CompiledExpression]) -> bool:
    """Return True if one of the arguments can raise."""
    return any(arg.can_fail for arg in args)


def parameter(node: Call) -> Any:
    """Return the value of a call's last argument, a constant."""
    last = node.args[-1]
    assert isinstance(last, Literal)
    return last.value


def as_array(values: Datum, rows: int) -> pa.Array:
    """Return an array, also for a constant: its value for each row."""
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def refuse_zero(node: Call, dividends: Datum, divisors: Datum) -> None:
    """Raise ExpressionError if a dividend that is not null has the divisor zero."""
    zero = pc.and_(pc.equal(divisors, pa.scalar(0, divisors.type)), pc.is_valid(dividends))
    if (zero.as_py() if isinstance(zero, pa.Scalar) else pc.any(zero).as_py()) is True:
        raise ExpressionError(f"division by zero in {node!r}", hint="filter such rows out before")


def nonzero(node: Call, dividends: Datum, divisors: Datum) -> Datum:
    """Return the divisors of whole numbers, null for zero: SQL ignores that of a null dividend, and Arrow raises.

    Raises:
        ExpressionError: If a dividend that is not null has the divisor zero.
    """
    refuse_zero(node, dividends, divisors)
    zero = pa.scalar(0, divisors.type)
    return pc.if_else(pc.equal(divisors, zero), pa.scalar(None, divisors.type), divisors)


Lowering = Callable[[Call, list[CompiledExpression]], CompiledExpression]
"""Compiles a call whose arguments are compiled."""

"""Constants that are looked for among the items of lists, or the keys of maps."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.casts import cast
from volley.columns.compiled import misfit
from volley.columns.operand_types import literal_type, operand_type
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal

__all__ = ["constant_of", "equal_to"]


def constant_of(node: Call, among: pa.DataType, container: pa.DataType, expected: str) -> pa.Scalar:
    """Return a call's constant, in the type in which it is compared.

    Args:
        node: The call; its second argument is the constant.
        among: The type of the values that are compared with it.
        container: The type of what has them, for messages.
        expected: What the call takes, for messages.

    Raises:
        ExpressionError: If the argument is a column or null, or the values can't be compared with it.
    """
    constant = node.args[1]
    if not isinstance(constant, Literal) or constant.value is None:
        raise ExpressionError(f"{node!r} takes a constant that is not null", hint="compare with columns by map_batches")
    if pa.types.is_nested(among) or among == pa.uuid():
        raise misfit(node, [container], expected)
    common = operand_type(node, [among, literal_type(constant)])
    return cast(pa.scalar(constant.value, literal_type(constant)), common)


def equal_to(values: pa.Array, constant: pa.Scalar) -> pa.Array:
    """Return true for each value that is equal to a constant; NaN equals NaN, as for ``==``.

    Args:
        values: The values; they are compared in the constant's type.
        constant: The constant, as `constant_of` returns it.
    """
    operands = cast(values, constant.type)
    if pa.types.is_floating(constant.type) and math.isnan(constant.as_py()):
        return pc.is_nan(operands)
    return pc.equal(operands, constant)

"""Constants that are looked for among the items of lists, or the keys of maps."""

from __future__ import annotations

import pyarrow as pa

from volley.arrow.casts import cast
from volley.arrow.compiled import misfit
from volley.arrow.operand_types import literal_type, operand_type
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal

__all__ = ["constant_of"]


def constant_of(node: Call, among: pa.DataType, container: pa.DataType, expected: str) -> tuple[pa.DataType, pa.Scalar]:
    """Return the type in which a call's constant is compared, and the constant in it.

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
    return common, cast(pa.scalar(constant.value, literal_type(constant)), common)

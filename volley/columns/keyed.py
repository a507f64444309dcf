"""The base of operators with one input, whose keys are expressions of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from volley.columns.aggregates import key_fields
from volley.columns.compiled import CompiledExpression
from volley.columns.exact import stored
from volley.columns.expressions import compile_expression
from volley.columns.keys.normal import normal
from volley.columns.operators import Operator
from volley.plan.keyed_nodes import Aggregate, Over, Series

__all__ = ["KeyedOperator", "key_values"]


@dataclass(frozen=True)
class KeyedOperator(Operator):
    """An operator with one input, whose states have the keys of rows as ``key_0``, ``key_1``, …."""

    node: Aggregate | Series | Over
    input: pa.Schema

    @cached_property
    def key_fields(self) -> list[pa.Field]:
        """The keys, as rows that come out have them. Raises ExpressionError if one does not fit the input."""
        return key_fields(self.node.keys, self.input)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys in states."""
        return tuple(f"key_{number}" for number in range(len(self.node.keys)))

    @property
    def key_types(self) -> list[pa.DataType]:
        """The types of the keys in states."""
        return [stored(field.type) for field in self.key_fields]

    @cached_property
    def compiled_keys(self) -> Sequence[CompiledExpression]:
        """The keys, compiled for rows of the input."""
        return [compile_expression(key, self.input) for key in self.node.keys]

    def key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the keys of rows, as states have them."""
        return [key_values(key, batch) for key in self.compiled_keys]


def key_values(key: CompiledExpression, batch: pa.RecordBatch) -> pa.Array:
    """Return the key of each row; equal ones have equal bytes."""
    values = key.column(batch)
    return normal(values.cast(pa.string()) if pa.types.is_null(values.type) else values)

"""Checks what can be checked before Spark starts, which takes seconds: columns and types of every step, and sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volley import _plan
from volley._arrow import lower
from volley._types import canonical_schema
from volley.errors import ExpressionError, PlanError, near
from volley.source import SourceContext, SparkSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_keys", "preview", "united"]


def preview(plan: _plan.Node, state: str) -> None:
    """Check each step against the schema before it, and each sink, as far as sources know their schema by now.

    Args:
        plan: A plan that ends in a write.
        state: The fsspec URL under which sources keep what must live as long as the checkpoint.

    Raises:
        VolleyError: If a source can't be read, a step does not fit its input, or a sink can't take the rows.
    """
    _Preview(state).schema(plan)


class _Preview:
    def __init__(self, state: str) -> None:
        self._state = state
        self._sources = 0

    def schema(self, node: _plan.Node) -> pa.Schema | None:
        """The schema of the rows after a step; None if it is not known yet."""
        if isinstance(node, _plan.Read):
            return self._read(node)
        inputs = [self.schema(each) for each in node.inputs]
        known = [schema for schema in inputs if schema is not None]
        if isinstance(node, _plan.Write):
            node.sink.check(inputs[0])
            return inputs[0]
        if len(known) < len(inputs):
            return None
        if isinstance(node, _plan.Union):
            return united(known)
        if isinstance(node, _plan.Deduplicate):
            check_keys(node, known[0])
            return known[0]
        return lower([node], known[0]).schema

    def _read(self, node: _plan.Read) -> pa.Schema | None:
        if isinstance(node.source, SparkSource):
            return None
        number, self._sources = self._sources, self._sources + 1
        schema = node.source.preview(SourceContext(f"{self._state}/source-{number}"))
        return None if schema is None else canonical_schema(schema)


def united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of a union.

    Raises:
        PlanError: If the streams have different columns.
    """
    first, *others = schemas
    for other in others:
        if {field.name: field.type for field in first} != {field.name: field.type for field in other}:
            raise PlanError(
                f"union of streams with different columns: {_listed(first)} and {_listed(other)}",
                hint="bring them into one shape with select, cast and alias first",
            )
    return first


def check_keys(node: _plan.Deduplicate, schema: pa.Schema) -> None:
    """Raise ExpressionError if a column that tells rows apart is not in the schema."""
    for name in (*node.keys, *([node.event_time] if node.event_time else [])):
        if name not in schema.names:
            raise ExpressionError(f"deduplicate by unknown column {name!r}", hint=near(name, schema.names))


def _listed(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"

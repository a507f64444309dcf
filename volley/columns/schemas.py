"""Compiles the steps that keep state, and derives the schema after each step of a job: it checks that all fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volley.columns.aggregator import Aggregator
from volley.columns.first_rows import Deduplicator, Limiter
from volley.columns.joins import check_stream, schema_with_table
from volley.columns.nodes import lower
from volley.columns.operators import Operator
from volley.columns.over import OverOperator
from volley.columns.series import SeriesOperator
from volley.columns.snapshots import ExtractComparer
from volley.columns.stream_joins import StreamJoiner
from volley.errors import PlanError
from volley.plan import keyed_nodes, nodes
from volley.plan.joins import TableJoin
from volley.plan.places import naming

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.contracts.dimension import Dimension

__all__ = ["Schemas", "operator_of"]


class Schemas:
    """The schemas of a graph's nodes, each derived once.

    Args:
        of_read: Returns the schema of a read's rows; None = not known yet.
        of_table: Returns the schema of a joined table that is not open; None = not known yet.
    """

    def __init__(
        self,
        of_read: Callable[[nodes.Read], pa.Schema | None],
        of_table: Callable[[Dimension], pa.Schema | None] = lambda table: None,
    ) -> None:
        self._of_read, self._of_table = of_read, of_table
        self._schemas: dict[int, pa.Schema | None] = {}

    def known(self, node: nodes.Node) -> pa.Schema:
        """Return the schema of a node's output; the schemas of all reads must be known.

        Raises:
            VolleyError: See `of`.
        """
        schema = self.of(node)
        assert schema is not None, f"the schema behind {node.label()} is not known"
        return schema

    def of(self, node: nodes.Node) -> pa.Schema | None:
        """Return the schema of a node's output (for a write, its input); None = not known yet.

        Raises:
            ExpressionError: If a step names an unknown column or combines types that don't fit.
            PlanError: If the streams of a union have different columns.
        """
        if id(node) not in self._schemas:
            with naming(node):
                self._schemas[id(node)] = self._of_read(node) if isinstance(node, nodes.Read) else self._derive(node)
        return self._schemas[id(node)]

    def _derive(self, node: nodes.Node) -> pa.Schema | None:
        inputs = [self.of(source) for source in node.inputs]
        known = [schema for schema in inputs if schema is not None]
        if isinstance(node, nodes.Write):
            return inputs[0]
        if len(known) < len(inputs):
            return None
        if isinstance(node, nodes.Join) and node.rows is None:
            return self._joined(node.join, known[0])
        if isinstance(node, nodes.Union):
            return _united(known)
        if isinstance(node, keyed_nodes.Keyed):
            return operator_of(node, *known).output
        if isinstance(node, keyed_nodes.Side):
            return known[0]
        return lower([node], known[0]).schema

    def _joined(self, join: TableJoin, schema: pa.Schema) -> pa.Schema | None:
        table = self._of_table(join.table)
        if table is None:
            check_stream(join, schema)
            return None
        return schema_with_table(join, schema, table)


def operator_of(step: keyed_nodes.Keyed, *inputs: pa.Schema) -> Operator:
    """Return a step compiled for the rows of its inputs."""
    match step:
        case keyed_nodes.JoinStreams():
            return StreamJoiner(step, *inputs)
        case keyed_nodes.Series():
            return SeriesOperator(step, *inputs)
        case keyed_nodes.Over():
            return OverOperator(step, *inputs)
        case keyed_nodes.Deduplicate():
            return Deduplicator(step, *inputs)
        case keyed_nodes.Limit():
            return Limiter(step, *inputs)
        case keyed_nodes.CompareExtracts():
            return ExtractComparer(step, *inputs)
    assert isinstance(step, keyed_nodes.Aggregate)
    return Aggregator(step, *inputs)


def _united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    first, *others = schemas
    for other in others:
        if {field.name: field.type for field in first} != {field.name: field.type for field in other}:
            raise PlanError(
                f"union of streams with different columns: {_listed(first)} and {_listed(other)}",
                hint="bring them into one shape with select, cast and alias first",
            )
    return first


def _listed(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"

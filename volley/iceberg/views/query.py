"""Compiles a view's query to operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from volley.errors import PlanError
from volley.iceberg.dimension import IcebergDimension
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.views.group import Group
from volley.iceberg.views.join import Join
from volley.iceberg.views.operators import Operator, Steps, Union
from volley.iceberg.views.scan import Pin, Scan, Tally
from volley.plan import graph, keyed_nodes, nodes
from volley.plan.places import naming
from volley.plan.pushdown import used_columns, used_rows

__all__ = ["Compiler", "sources_of"]


def sources_of(query: nodes.Node) -> list[IcebergSourceConfig]:
    """Return the settings of a query's sources and joined tables, in plan order."""
    return [_config(node) for node in graph.walk([query]) if isinstance(node, nodes.Read | nodes.Join)]


def _config(node: nodes.Read | nodes.Join) -> IcebergSourceConfig:
    source = node.join.table if isinstance(node, nodes.Join) else node.source
    assert isinstance(source, IcebergSource | IcebergDimension), "check_query refuses others"
    return source.config


@dataclass(frozen=True)
class Compiler:
    """Compiles a query.

    Args:
        query: The last node of the query.
        pin: Returns the table of a source, at two snapshots.
        tally: Counts what is read.
    """

    query: nodes.Node
    pin: Callable[[IcebergSourceConfig], Pin]
    tally: Tally
    _operators: dict[int, Operator] = field(default_factory=dict)

    def operator(self, node: nodes.Node) -> Operator:
        """Return the operator of a node; of a node that several steps continue, the same one.

        Raises:
            PlanError: If a view can't have one of the steps.
            ExpressionError: If a step names an unknown column, or types do not fit.
        """
        if id(node) not in self._operators:
            with naming(node):
                self._operators[id(node)] = self._compiled(node)
        return self._operators[id(node)]

    def _compiled(self, node: nodes.Node) -> Operator:
        match node:
            case nodes.Read():
                return self._scan(node)
            case nodes.Union():
                return Union(node, [self.operator(before) for before in node.inputs])
            case keyed_nodes.Aggregate():
                return Group(node, self.operator(node.input), self.tally, node is self.query)
            case keyed_nodes.Deduplicate():
                return self._distinct(node)
            case nodes.Join():
                return Join(node, self.operator(node.input), self._table(node))
        return self._steps(node)

    def _steps(self, node: nodes.Node) -> Operator:
        steps, before = [node], node.inputs[0]
        while _is_step(before):
            steps.insert(0, before)
            before = before.inputs[0]
        return Steps(steps, self.operator(before))

    def _scan(self, node: nodes.Read) -> Scan:
        config, roots = _config(node), [self.query]
        return Scan(node, config, self.pin(config), used_columns(roots, node), used_rows(roots, node), self.tally)

    def _table(self, node: nodes.Join) -> Scan:
        config, join = _config(node), node.join
        columns = None if join.columns is None else frozenset((*join.right_keys, *join.columns))
        if columns is not None and join.valid_from is not None:
            columns |= {join.valid_from}
        return Scan(nodes.Read(IcebergSource(config)), config, self.pin(config), columns, None, self.tally)

    def _distinct(self, node: keyed_nodes.Deduplicate) -> Group:
        before = self.operator(node.input)
        if {*node.keys} != {*before.schema.names}:
            raise PlanError(
                f"a view can't have the step {node.label()}: which row of a key is the first is not determined",
                hint='distinct values: select("key").deduplicate("key"); or key_by("key").aggregate(…)',
            )
        return Group(node, before, self.tally, node is self.query)


def _is_step(node: nodes.Node) -> bool:
    return node.narrow and not isinstance(node, nodes.Union | nodes.Join)

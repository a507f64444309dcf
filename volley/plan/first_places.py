"""Finds the first places of ordered rows, of which a step keeps no more: filters by a place, and rows with a limit.

The rows of `row_number() <= 3` are the first three of each key, and no later row brings a fourth one back. Apache
Flink's Top-N is found so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from volley.plan import nodes
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal, output_name
from volley.plan.graph import followers_in, rebuilt
from volley.plan.keyed_nodes import Over
from volley.plan.nodes import Node, Write
from volley.plan.over import Ordering

__all__ = ["with_first_places"]


def with_first_places(writes: Sequence[Write]) -> list[Write]:
    """Return the graph of a job in which ordered rows come out as far as the filters behind them let them through.

    The first rows of an order are the first places of all rows, which a job keeps up to date.
    """
    found = list(nodes.walk(writes))
    followers = followers_in(found)
    first: dict[int, tuple[str, int]] = {}
    for node in found:
        if not isinstance(node, nodes.Filter):
            continue
        for column, last in _bounds(node.predicate):
            step, name = node.input, column
            while len(followers[id(step)]) == 1 and not isinstance(step, Over):
                before = _before(step, name)
                if before is None:
                    break
                step, name = step.inputs[0], before
            if isinstance(step, Over) and len(followers[id(step)]) == 1 and name in step.ranks and step.first is None:
                first[id(step)] = name, last
    in_order = iter([first.get(id(node)) for node in found])

    def changed(node: Node) -> Node:
        place = next(in_order)
        if isinstance(node, nodes.Ordered) and node.rows is not None:
            ordering = Ordering(node.order, buckets=1)
            return Over(node.input, (), (), ordering, (None, node.rows), place=node.place)
        return replace(node, first=place) if isinstance(node, Over) and place is not None else node

    return [write for write in rebuilt(writes, changed) if isinstance(write, Write)]


def _bounds(predicate: ExprNode) -> Iterator[tuple[str, int]]:
    """Yield the columns that a predicate bounds, with the largest number that they have where it holds."""
    if not isinstance(predicate, Call):
        return
    if predicate.op == "and_":
        for part in predicate.args:
            yield from _bounds(part)
        return
    match predicate.op, predicate.args:
        case ("lt_eq" | "eq", (Column(name=name), Literal(value=int(value)))):
            yield name, value
        case ("lt", (Column(name=name), Literal(value=int(value)))):
            yield name, value - 1


def _before(step: Node, column: str) -> str | None:
    """Return the column of a step's input that a column of its rows is; None if it is another one, or not known."""
    match step:
        case nodes.Filter():
            return column
        case nodes.Select():
            value = next((value for value in step.columns if output_name(value) == column), None)
            while isinstance(value, Call) and value.op == "alias":
                value = value.args[0]
            return value.name if isinstance(value, Column) else None
        case nodes.WithColumns():
            return None if column in dict(step.columns) else column
        case nodes.Rename():
            before = {new: old for old, new in step.names}
            return before.get(column, None if column in before.values() else column)
    return None

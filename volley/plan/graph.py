"""Graphs of nodes: a walk through one, a changed copy, its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from volley.plan.nodes import Node

__all__ = ["Followers", "describe", "followers_in", "rebuilt", "walk"]

Followers = Mapping[int, Sequence[Node]]
"""The steps that take a node's output, by the node's id."""


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield every node of the graph that ends in `nodes` once, inputs first.

    Streams that continue one stream share its nodes: nodes are the same by identity, not by value.
    """
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for source in node.inputs:
            yield from visit(source)
        yield node

    for node in nodes:
        yield from visit(node)


def rebuilt(roots: Sequence[Node], change: Callable[[Node], Node]) -> list[Node]:
    """Return the graph that ends in `roots` with changed nodes: the changed roots; shared nodes stay shared.

    Args:
        roots: The nodes in which the graph ends.
        change: Returns what takes a node's place; the node has its new inputs already.
    """
    copies: dict[int, Node] = {}
    for node in walk(roots):
        before = [copies[id(source)] for source in node.inputs]
        moved = any(new is not old for new, old in zip(before, node.inputs, strict=True))
        copies[id(node)] = change(node.after(before) if moved else node)
    return [copies[id(root)] for root in roots]


def followers_in(nodes: Iterable[Node]) -> Followers:
    """Return the steps that take each node's output."""
    followers: dict[int, list[Node]] = {}
    for node in nodes:
        for source in node.inputs:
            followers.setdefault(id(source), []).append(node)
    return followers


def describe(node: Node) -> str:
    """Return the plan as text: the last step first, its inputs indented below it."""
    lines: list[str] = []

    def add(step: Node, depth: int) -> None:
        lines.append("  " * depth + step.label())
        for source in step.inputs:
            add(source, depth + 1)

    add(node, 0)
    return "\n".join(lines)

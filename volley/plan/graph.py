"""The graph that a job's nodes make: a walk through it, its reads, its text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from volley.contracts.source import SparkSource
from volley.plan.nodes import Node, Read, Write

__all__ = ["describe", "is_bounded", "reads", "rebuilt", "states", "walk", "worker_modules"]


def worker_modules(writes: Sequence[Write]) -> set[str]:
    """Return the modules that tasks import for the sources and sinks of a job."""
    sources = (node.source for node in walk(writes) if isinstance(node, Read))
    return {
        *(name for source in sources for name in source.worker_modules),
        *(name for write in writes for name in write.sink.worker_modules),
    }


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


def reads(writes: Sequence[Node]) -> list[Read]:
    """Return the reads of a job in plan order."""
    return [node for node in walk(writes) if isinstance(node, Read)]


def is_bounded(writes: Sequence[Write]) -> bool:
    """Return True if every source of a job has an end."""
    return all(read.source.bounded for read in reads(writes))


def states(writes: Sequence[Write], folder: str) -> list[tuple[Read, str]]:
    """Return the reads of a job, each with the folder for its source's state.

    Args:
        writes: The writes of the job.
        folder: The fsspec URL of the folder that holds all of these folders.
    """
    numbers = itertools.count()
    # Spark itself keeps the state of a SparkSource, which gets no number.
    return [
        (read, folder if isinstance(read.source, SparkSource) else f"{folder}/source-{next(numbers)}")
        for read in reads(writes)
    ]


def describe(node: Node) -> str:
    """Return the plan as text: the last step first, its inputs indented below it."""
    lines: list[str] = []

    def add(step: Node, depth: int) -> None:
        lines.append("  " * depth + step.label())
        for source in step.inputs:
            add(source, depth + 1)

    add(node, 0)
    return "\n".join(lines)

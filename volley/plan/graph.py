"""The graph that a job's nodes make: its execution path, its reads, and what Spark and the tasks run of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from volley.plan.keyed_nodes import Keyed
from volley.plan.nodes import Node, Read, Repartition, Write
from volley.source import SparkSource

__all__ = [
    "ExecutionPath",
    "choose_path",
    "describe",
    "ends",
    "heads",
    "is_bounded",
    "reads",
    "rebuilt",
    "stateful",
    "states",
    "uses",
    "walk",
    "worker_modules",
]


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


@dataclass(frozen=True)
class ExecutionPath:
    """How a plan runs, and why: on Arrow batches from source to sink, or through Spark's own operators."""

    arrow_native: bool
    reason: str

    def __str__(self) -> str:
        return f"{'Arrow-native' if self.arrow_native else 'general'} ({self.reason})"


def choose_path(nodes: Iterable[Node], arrow_native: bool = True) -> ExecutionPath:
    """Choose the execution path of a graph; `arrow_native` False forces the general one."""
    if not arrow_native:
        return ExecutionPath(False, "Environment(arrow_native=False)")
    for node in walk(nodes):
        if isinstance(node, Read):
            if isinstance(node.source, SparkSource):
                return ExecutionPath(False, f"{type(node.source).__name__} is read by Spark itself")
        elif not node.narrow and not isinstance(node, Keyed | Repartition):
            return ExecutionPath(False, f"{node.label()} needs rows of more than one batch")
    if any(isinstance(node, Keyed) for node in walk(nodes)):
        return ExecutionPath(True, "every step works on Arrow batches, or on Arrow files of its state")
    return ExecutionPath(True, "every step works on one Arrow batch at a time")


def uses(writes: Sequence[Write], path: ExecutionPath) -> list[tuple[Node, Node]]:
    """Return the nodes that run, in plan order, each with a node behind it that has its rows and belongs to it alone.

    On the Arrow-native path that is the node itself. On the general path Spark runs a shared node once for each head.
    """
    if path.arrow_native:
        return [(node, node) for node in walk(writes)]
    return [(node, head) for head, _ in heads(writes) for node in _below(head)]


def reads(writes: Sequence[Write], path: ExecutionPath) -> list[Read]:
    """Return the reads of a job in plan order; on the general path, a shared read once per stream that uses it."""
    return [node for node, _ in uses(writes, path) if isinstance(node, Read)]


def is_bounded(writes: Sequence[Write], path: ExecutionPath) -> bool:
    """Return True if every source of a job has an end."""
    return all(read.source.bounded for read in reads(writes, path))


def stateful(writes: Sequence[Write], path: ExecutionPath) -> list[Node]:
    """Return the steps of which Spark keeps the state, in plan order, once for each time that it runs them."""
    return [node for node, _ in uses(writes, path) if node.stateful]


def states(writes: Sequence[Write], path: ExecutionPath, folder: str) -> list[tuple[Read, str]]:
    """Return the reads of a job, each with the folder for its source's state.

    Args:
        writes: The writes of the job.
        path: Its execution path.
        folder: The fsspec URL of the folder that holds all of these folders.
    """
    numbers = itertools.count()
    # Spark itself keeps the state of a SparkSource, which gets no number.
    return [
        (read, folder if isinstance(read.source, SparkSource) else f"{folder}/source-{next(numbers)}")
        for read in reads(writes, path)
    ]


def ends(writes: Sequence[Write]) -> dict[int, Node]:
    """Return what ends the first stage of a job: the writes before which no keyed step stands, then all intakes.

    Returns:
        The writes by their index, the intakes of the keyed steps by the indices that follow.
    """
    lines = enumerate([list(walk([write])) for write in writes])
    intakes = [intake for node in walk(writes) if isinstance(node, Keyed) for intake in node.intakes]
    direct: dict[int, Node] = {
        number: writes[number] for number, line in lines if not any(isinstance(node, Keyed) for node in line)
    }
    return direct | dict(enumerate(intakes, start=len(writes)))


def heads(writes: Sequence[Write]) -> list[tuple[Node, dict[int, Node]]]:
    """Return the nodes whose rows Spark passes to the tasks, each with the ends that follow through narrow steps.

    Ends that follow the same wide step (one that only Spark can run) share a head: their last common node.
    """
    shared: dict[int, tuple[list[Node], dict[int, Node]]] = {}
    for number, end in ends(writes).items():
        line = _narrow_line(end.inputs[0])
        previous, followers = shared.get(id(line[0]), (line, {}))
        common = [node for node, other in zip(previous, line, strict=False) if node is other]
        shared[id(line[0])] = common, {**followers, number: end}
    return [(line[-1], followers) for line, followers in shared.values()]


def _narrow_line(node: Node) -> list[Node]:
    """Return the narrow steps that lead to a node, after the wide step, read or union that they start from."""
    line = [node]
    while line[0].narrow and len(line[0].inputs) == 1:
        line.insert(0, line[0].inputs[0])
    return line


def _below(node: Node) -> Iterator[Node]:
    """Yield all nodes that lead to a node, then itself; a shared node once for each use."""
    for source in node.inputs:
        yield from _below(source)
    yield node


def describe(node: Node) -> str:
    """Return the plan as text: the last step first, its inputs indented below it."""
    lines: list[str] = []

    def add(step: Node, depth: int) -> None:
        lines.append("  " * depth + step.label())
        for source in step.inputs:
            add(source, depth + 1)

    add(node, 0)
    return "\n".join(lines)

"""The frozen nodes a job is made of: what is to be done, value-equal and printable; nothing here does it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from volley.plan.expressions import ExprNode
from volley.sink import Sink
from volley.source import Source, SparkSource

__all__ = [
    "Deduplicate",
    "Drop",
    "ExecutionPath",
    "Filter",
    "FlatMap",
    "Map",
    "MapBatches",
    "Node",
    "Read",
    "Rename",
    "Rest",
    "Select",
    "Union",
    "WithColumn",
    "Write",
    "choose_path",
    "describe",
    "heads",
    "reads",
    "stateful",
    "states",
    "walk",
]


class Node(ABC):
    """One step of a plan; `inputs` are the steps before it."""

    narrow: ClassVar[bool] = False
    """True if a row's output depends on that row alone, so that the step can run on Arrow batches in any task."""

    stateful: ClassVar[bool] = False
    """True if Spark keeps state for the step: its frame must be evaluated once in every epoch."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @abstractmethod
    def label(self) -> str:
        """The step in one line, without its inputs and without secrets."""


@dataclass(frozen=True)
class Read(Node):
    """The rows of a source."""

    source: Source

    def label(self) -> str:
        return f"read {self.source!r}"


@dataclass(frozen=True)
class _Step(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Filter(_Step):
    """Rows for which the predicate is true (not false, not null)."""

    narrow: ClassVar[bool] = True
    predicate: ExprNode

    def label(self) -> str:
        return f"filter {self.predicate!r}"


@dataclass(frozen=True)
class Rest(_Step):
    """Rows for which the predicate is not true: false or null."""

    narrow: ClassVar[bool] = True
    predicate: ExprNode

    def label(self) -> str:
        return f"filter not is_true({self.predicate!r})"


@dataclass(frozen=True)
class Select(_Step):
    """Exactly these columns, in this order."""

    narrow: ClassVar[bool] = True
    columns: tuple[ExprNode, ...]

    def label(self) -> str:
        return f"select {', '.join(map(repr, self.columns))}"


@dataclass(frozen=True)
class WithColumn(_Step):
    """One column more at the end, or one replaced where it stands."""

    narrow: ClassVar[bool] = True
    name: str
    value: ExprNode

    def label(self) -> str:
        return f"with_column {self.name!r} = {self.value!r}"


@dataclass(frozen=True)
class Drop(_Step):
    """All columns but these."""

    narrow: ClassVar[bool] = True
    columns: tuple[str, ...]

    def label(self) -> str:
        return f"drop {', '.join(map(repr, self.columns))}"


@dataclass(frozen=True)
class Rename(_Step):
    """The same columns under other names: pairs of (old, new)."""

    narrow: ClassVar[bool] = True
    names: tuple[tuple[str, str], ...]

    def label(self) -> str:
        return "rename " + ", ".join(f"{old!r} → {new!r}" for old, new in self.names)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


@dataclass(frozen=True)
class _Apply(_Step):
    """A Python function; `schema` describes its output (see `volley.types.names`), None = the input's schema."""

    narrow: ClassVar[bool] = True
    verb: ClassVar[str]
    function: Callable[..., Any]
    schema: Any = None

    def label(self) -> str:
        return f"{self.verb} {_name(self.function)}"


@dataclass(frozen=True)
class Map(_Apply):
    """One row (a dict) in, one row out."""

    verb: ClassVar[str] = "map"


@dataclass(frozen=True)
class FlatMap(_Apply):
    """One row (a dict) in, any number of rows out."""

    verb: ClassVar[str] = "flat_map"


@dataclass(frozen=True)
class MapBatches(_Apply):
    """One Arrow record batch in, one out."""

    verb: ClassVar[str] = "map_batches"


@dataclass(frozen=True)
class Union(Node):
    """The rows of several streams with the same columns."""

    narrow: ClassVar[bool] = True
    streams: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def label(self) -> str:
        return "union"


@dataclass(frozen=True)
class Deduplicate(_Step):
    """The first row of each key; with `within`, keys are forgotten that long after their `event_time`."""

    stateful: ClassVar[bool] = True
    keys: tuple[str, ...]
    event_time: str | None = None
    within: timedelta | None = None

    def label(self) -> str:
        window = f" within {self.within} of {self.event_time!r}" if self.within else ""
        return f"deduplicate by {', '.join(map(repr, self.keys))}{window}"


@dataclass(frozen=True)
class Write(_Step):
    """The rows go to a sink, bad ones to its dead letter: an end of the graph. A job's writes are its whole graph."""

    narrow: ClassVar[bool] = True
    sink: Sink
    dead_letter: Sink | None = None

    def label(self) -> str:
        return f"write {self.sink!r}"


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Every node of the graph that ends in `nodes`, once each, inputs first.

    Streams that were built from one stream share its nodes: a node is told by its identity, not by its value.
    """
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for each in node.inputs:
            yield from visit(each)
        yield node

    for node in nodes:
        yield from visit(node)


@dataclass(frozen=True)
class ExecutionPath:
    """How a plan runs: on Arrow batches from source to sink, or through Spark's own operators; and why."""

    arrow_native: bool
    reason: str

    def __str__(self) -> str:
        return f"{'Arrow-native' if self.arrow_native else 'general'} ({self.reason})"


def choose_path(nodes: Iterable[Node], arrow_native: bool = True) -> ExecutionPath:
    """The path that a graph takes; `arrow_native` False forces the general one."""
    if not arrow_native:
        return ExecutionPath(False, "Environment(arrow_native=False)")
    for each in walk(nodes):
        if isinstance(each, Read):
            if isinstance(each.source, SparkSource):
                return ExecutionPath(False, f"{type(each.source).__name__} is read by Spark itself")
        elif not each.narrow:
            return ExecutionPath(False, f"{each.label()} needs rows of more than one batch")
    return ExecutionPath(True, "every step works on one Arrow batch at a time")


def reads(writes: Sequence[Write], path: ExecutionPath) -> list[Read]:
    """The reads of a job in plan order; on the general path those that streams share come as often as they are used."""
    if path.arrow_native:
        return [node for node in walk(writes) if isinstance(node, Read)]
    return [node for head, _ in heads(writes) for node in _below(head) if isinstance(node, Read)]


def stateful(writes: Sequence[Write], path: ExecutionPath) -> list[Node]:
    """The steps that keep state, in plan order, as often as Spark runs them."""
    if path.arrow_native:
        return []
    return [node for head, _ in heads(writes) for node in _below(head) if node.stateful]


def states(writes: Sequence[Write], path: ExecutionPath, folder: str) -> list[tuple[Read, str]]:
    """The reads of a job, each with the folder where its source keeps its state.

    Args:
        writes: The writes of a job.
        path: The path that it takes.
        folder: The fsspec URL of the folder for all of them.
    """
    found = reads(writes, path)
    # Spark keeps what its own sources need.
    numbers = iter(range(len(found)))
    return [
        (read, folder if isinstance(read.source, SparkSource) else f"{folder}/source-{next(numbers)}") for read in found
    ]


def heads(writes: Sequence[Write]) -> list[tuple[Node, dict[int, Write]]]:
    """The nodes whose rows Spark hands to the tasks, each with the writes behind it: only narrow steps lie between.

    Writes behind the same step that only Spark can run share a head: the last node that all of them have in common.
    """
    shared: dict[int, tuple[list[Node], dict[int, Write]]] = {}
    for number, write in enumerate(writes):
        line = _narrow_line(write.input)
        known, behind = shared.get(id(line[0]), (line, {}))
        common = [node for node, other in zip(known, line, strict=False) if node is other]
        shared[id(line[0])] = common, {**behind, number: write}
    return [(line[-1], behind) for line, behind in shared.values()]


def _narrow_line(node: Node) -> list[Node]:
    """The narrow steps that lead to a node, and in front of them the first node that is none, or has several inputs."""
    line = [node]
    while line[0].narrow and len(line[0].inputs) == 1:
        line.insert(0, line[0].inputs[0])
    return line


def _below(node: Node) -> Iterator[Node]:
    """A node behind all that leads to it; nodes that are shared come as often as they are used."""
    for each in node.inputs:
        yield from _below(each)
    yield node


def describe(node: Node) -> str:
    """The plan as text, the last step first, inputs indented below it."""
    lines: list[str] = []

    def add(each: Node, depth: int) -> None:
        lines.append("  " * depth + each.label())
        for below in each.inputs:
            add(below, depth + 1)

    add(node, 0)
    return "\n".join(lines)

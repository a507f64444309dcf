"""Graphs of nodes: a changed copy, its text; and that of a job as one value, with its checks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

from volley.contracts.sink import Sink
from volley.contracts.source import Source, SparkSource
from volley.errors import PlanError
from volley.plan.changes import changes_rows, starts_of
from volley.plan.event_times import event_times
from volley.plan.expression_nodes import Now
from volley.plan.keyed_nodes import Aggregate, Changing, CompareExtracts, Keyed
from volley.plan.nodes import Apply, Expect, Node, Ordered, ProcessingTime, Read, Write, walk

__all__ = ["Followers", "JobGraph", "describe", "followers_in", "levels_of", "reads_clock", "rebuilt"]

Followers = Mapping[int, Sequence[Node]]
"""The steps that take a node's output, by the node's id."""
_ORDERED = ("first", "last", "list", "top")


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


def reads_clock(part: object) -> bool:
    """Return True if a node, or what it is made of, depends on the time of processing; its inputs don't count.

    Args:
        part: A node, an expression, or a frozen value with such, as an aggregate.
    """
    if isinstance(part, Now | ProcessingTime):
        return True
    values = (
        part
        if isinstance(part, tuple)
        else [getattr(part, each.name) for each in fields(part)]
        if is_dataclass(part)
        else ()
    )
    return any(reads_clock(value) for value in values if not isinstance(value, Node | Source | Sink))


def describe(node: Node) -> str:
    """Return the plan as text: the last step first, its inputs indented below it."""
    lines: list[str] = []

    def add(step: Node, depth: int) -> None:
        lines.append("  " * depth + step.label())
        for source in step.inputs:
            add(source, depth + 1)

    add(node, 0)
    return "\n".join(lines)


@dataclass(frozen=True)
class JobGraph:
    """The graph of a job: what leads to its writes, each for one of its sinks. Made by `of`.

    Args:
        writes: In the order of the sinks.
        nodes: All nodes, inputs first.
        reads: The reads, in plan order.
        state_names: For each read, the name of the folder for its source's state; "" = Spark keeps it.
        keyed: The keyed steps, in plan order: those before a step stand before it.
        levels: The numbers of the keyed steps whose rows are there once those of the level before have come out.
        letters: The dead-letter sinks, each once.
        targets: The names of the targets of all sinks, then of the dead-letter sinks.
        followers: The steps that take each node's output.
        ends: What takes rows at the end of a level: the writes by their sink's index, then the intakes of keyed steps.
        sinks_behind: By the id of each node, the indices of the sinks that its rows get to, also through keyed steps.
        starts: For each write, the reads and keyed steps whose rows get to it without another keyed step between.
        is_bounded: True if every source has an end.
        worker_modules: The modules that tasks import for the sources and sinks.
    """

    writes: tuple[Write, ...]
    nodes: tuple[Node, ...]
    reads: tuple[Read, ...]
    state_names: tuple[str, ...]
    keyed: tuple[Keyed, ...]
    levels: tuple[tuple[int, ...], ...]
    letters: tuple[Sink, ...]
    targets: tuple[str | None, ...]
    followers: Followers
    ends: Mapping[int, Node]
    sinks_behind: Mapping[int, tuple[int, ...]]
    starts: tuple[tuple[Node, ...], ...]
    is_bounded: bool
    worker_modules: frozenset[str]

    @property
    def has_queries(self) -> bool:
        """True if Spark reads a source: the job is then a streaming query of Spark's."""
        return any(isinstance(read.source, SparkSource) for read in self.reads)

    @property
    def is_small(self) -> bool:
        """True if the job reads few rows, and the driver may run its steps: no functions of the user's."""
        calls = any(isinstance(node, Apply) for node in self.nodes)
        return not calls and self.is_bounded and all(read.source.is_small() for read in self.reads)

    @classmethod
    def of(cls, writes: Sequence[Write]) -> JobGraph:
        """Return the graph of a job.

        Raises:
            PlanError: If a sink or a target is there twice, a keyed step that takes no rows back or a union follows
                one whose rows replace earlier ones, it is not known how late rows of an earlier step can be, or late
                rows have no dead letter.
        """
        nodes, letters = tuple(walk(writes)), _letters(writes)
        reads = tuple(node for node in nodes if isinstance(node, Read))
        keyed = tuple(node for node in nodes if isinstance(node, Keyed))
        graph = cls(
            writes=tuple(writes),
            nodes=nodes,
            reads=reads,
            state_names=_state_names(reads),
            keyed=keyed,
            levels=levels_of(keyed),
            letters=letters,
            targets=tuple(sink.target for sink in (*(write.sink for write in writes), *letters)),
            followers=followers_in(nodes),
            ends=dict(enumerate([*writes, *(intake for step in keyed for intake in step.intakes)])),
            sinks_behind=_sinks_behind(writes),
            starts=tuple(tuple(starts_of(write)) for write in writes),
            is_bounded=all(read.source.bounded for read in reads),
            worker_modules=frozenset(
                name
                for modules in (
                    *(read.source.worker_modules for read in reads),
                    *(write.sink.worker_modules for write in writes),
                )
                for name in modules
            ),
        )
        graph._check()
        return graph

    @property
    def numbers(self) -> Mapping[int, int]:
        """The number of each node, by its id: its place among all."""
        return {id(node): number for number, node in enumerate(self.nodes)}

    def behind(self, number: int) -> tuple[int, ...]:
        """Return the indices of the sinks behind the keyed step of this number."""
        return self.sinks_behind[id(self.keyed[number])]

    @property
    def expectations(self) -> dict[str, Expect]:
        """The expectations by their names."""
        bounds = (step.expectation for step in self.keyed if isinstance(step, CompareExtracts))
        nodes = (*(node for node in self.nodes if isinstance(node, Expect)), *filter(None, bounds))
        return {node.name: node for node in nodes}

    def _check(self) -> None:
        self._check_sinks()
        self._check_expectations()
        if order := next((node for node in self.nodes if isinstance(node, Ordered)), None):
            raise PlanError(
                f"a job can't run {order.label()}: rows come epoch by epoch",
                hint="sort what is read of its table; or keep the first rows in a materialised view",
            )
        for step in self.keyed:
            _check_step(step)
            self._check_late_rows(step)
        for write, starts in zip(self.writes, self.starts, strict=True):
            if len(starts) > 1 and any(map(changes_rows, starts)):
                raise PlanError(
                    f"a union of rows that replace earlier ones with others:\n{describe(write)}",
                    hint="write them to two sinks, in one job: execute(name, first, second)",
                )

    def _check_sinks(self) -> None:
        sinks = [write.sink for write in self.writes]
        for number, sink in enumerate(sinks):
            if any(other is sink for other in sinks[:number]):
                raise PlanError(f"{sink!r} is in this job twice", hint="make a second sink")
        # The second sink of a target would find the first one's mark and skip every epoch.
        names = [name for name in self.targets if name is not None]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PlanError(
                f"two sinks or dead letters of this job write to {twice[0]}",
                hint="give each of them a table of its own",
            )

    def _check_expectations(self) -> None:
        """Raise PlanError if two expectations of one name differ, or the rows of one have no dead letter to go to."""
        known = self.expectations
        for node in self.nodes:
            if not isinstance(node, Expect):
                continue
            other = known[node.name]
            if (node.predicate, node.on_fail, node.max_failed) != (other.predicate, other.on_fail, other.max_failed):
                raise PlanError(
                    f"two expectations are named {node.name!r}: {node.label()}; {other.label()}",
                    hint="give each a name of its own: counts are told by it",
                )
            if node.on_fail == "dead_letter" and not all(
                self.writes[sink].dead_letter for sink in self.sinks_behind[id(node)]
            ):
                raise PlanError(
                    f"{node.label()}, and a sink behind it has no dead letter",
                    hint='give each sink one: to_sink(sink, dead_letter=…); or take on_fail="drop"',
                )

    def _check_late_rows(self, step: Keyed) -> None:
        sinks = [self.writes[sink] for sink in self.sinks_behind[id(step)]]
        if step.timing.late == "dead_letter" and not any(write.dead_letter for write in sinks):
            raise PlanError(
                f'{step.label()} has late="dead_letter", and no sink behind it has a dead letter',
                hint="give the sink one: to_sink(sink, dead_letter=…)",
            )


def _check_aggregates(step: Aggregate) -> None:
    ordered = next((value for _, value in step.aggregates if value.function in _ORDERED), None)
    if step.windowing is None and ordered is not None:
        raise PlanError(
            f"{step.label()}: {ordered!r} goes by the time of rows, and has none without a window",
            hint='group by time, too: key_by(…).window(tumbling("1d"), on="at", emit="updates").aggregate(…)',
        )


def _letters(writes: Sequence[Write]) -> tuple[Sink, ...]:
    letters: list[Sink] = []
    for write in writes:
        if write.dead_letter is not None and write.dead_letter not in letters:
            letters.append(write.dead_letter)
    return tuple(letters)


def _state_names(reads: Sequence[Read]) -> tuple[str, ...]:
    numbers = itertools.count()
    return tuple("" if isinstance(read.source, SparkSource) else f"source-{next(numbers)}" for read in reads)


def levels_of(keyed: Sequence[Keyed]) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of keyed steps, which are in plan order, by how many keyed steps stand before each."""
    depths: dict[int, int] = {}
    for step in keyed:
        depths[id(step)] = 1 + max((depths[id(node)] for node in walk(step.inputs) if id(node) in depths), default=0)
    return tuple(
        tuple(number for number, step in enumerate(keyed) if depths[id(step)] == depth)
        for depth in sorted({*depths.values()})
    )


def _sinks_behind(writes: Sequence[Write]) -> dict[int, tuple[int, ...]]:
    behind: dict[int, tuple[int, ...]] = {}
    for number, write in enumerate(writes):
        for node in walk([write]):
            behind[id(node)] = (*behind.get(id(node), ()), number)
    return behind


def _check_step(step: Keyed) -> None:
    if isinstance(step, Aggregate):
        _check_aggregates(step)
    if not isinstance(step, Changing):
        for intake in step.intakes:
            if changing := next((start for start in starts_of(intake) if changes_rows(start)), None):
                raise PlanError(
                    f"{step.label()} follows a step whose rows replace earlier ones: {changing.label()}",
                    hint='let final rows come out of it: emit="final"; or write it to a table, and read that in '
                    "another job",
                )
    before = [node for node in walk(step.inputs) if isinstance(node, Keyed)]
    if isinstance(step, CompareExtracts) and (earlier := next((node for node in before if not node.passes_rows), None)):
        raise PlanError(
            f"{step.label()} follows another step that keeps state: {earlier.label()}",
            hint="compare the extracts before that",
        )
    event_times(step)

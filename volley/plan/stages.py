"""The levels of a job: what leads to its steps that keep state by key, and what follows each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from volley.errors import PlanError
from volley.plan.graph import describe, walk
from volley.plan.keyed_nodes import Aggregate, Keyed
from volley.plan.nodes import Node, Read, Write

__all__ = ["Stages", "stages", "starts"]


@dataclass(frozen=True)
class Stages:
    """The keyed steps of a job, and what ends each of its levels.

    Args:
        keyed: The keyed steps, in plan order: those before a step stand before it.
        ends: What takes rows: the writes by the index of their sink, then the intakes of the keyed steps.
        levels: The numbers of the keyed steps whose rows are there once those of the level before have come out.
        behind: For each keyed step, the indices of all sinks that its rows get to, through other keyed steps too.
    """

    keyed: tuple[Keyed, ...]
    ends: dict[int, Node]
    levels: tuple[tuple[int, ...], ...]
    behind: tuple[tuple[int, ...], ...]


def stages(writes: Sequence[Write]) -> Stages:
    """Divide a job into its levels.

    Raises:
        PlanError: If an aggregate has no window, a keyed step follows one whose rows are not those that went in, or
            rows of such a step meet other rows.
    """
    keyed = tuple(node for node in walk(writes) if isinstance(node, Keyed))
    for step in keyed:
        _check(step)
    for write in writes:
        if len({isinstance(start, Keyed) and not start.passes_rows for start in starts(write)}) > 1:
            raise PlanError(
                f"a union of the rows of windows or joins with others:\n{describe(write)}",
                hint="write them to two sinks, in one job: execute(name, first, second)",
            )
    intakes = (intake for step in keyed for intake in step.intakes)
    lines = [list(walk([write])) for write in writes]
    behind = tuple(
        tuple(number for number, line in enumerate(lines) if any(node is step for node in line)) for step in keyed
    )
    return Stages(keyed, dict(enumerate([*writes, *intakes])), _levels(keyed), behind)


def _levels(keyed: Sequence[Keyed]) -> tuple[tuple[int, ...], ...]:
    depths: dict[int, int] = {}
    for step in keyed:
        depths[id(step)] = 1 + max((depths[id(node)] for node in walk(step.inputs) if id(node) in depths), default=0)
    return tuple(
        tuple(number for number, step in enumerate(keyed) if depths[id(step)] == depth)
        for depth in sorted({*depths.values()})
    )


def _check(step: Keyed) -> None:
    if isinstance(step, Aggregate) and step.windowing is None:
        raise PlanError(
            f"a job can't run {step.label()}: without a window, a key's row is never final",
            hint='group by time, too: key_by(…).window(tumbling("1m"), on="at").aggregate(…); or keep the result up to '
            "date as a materialised view",
        )
    before = (node for node in walk(step.inputs) if isinstance(node, Keyed) and not node.passes_rows)
    if earlier := next(before, None):
        raise PlanError(
            f"{step.label()} follows another step that keeps state: {earlier.label()}",
            hint="do it before that, or write the first one to a table, and read that in another job",
        )


def starts(node: Node) -> Iterator[Node]:
    """Yield the reads and keyed steps whose rows get to a node without another keyed step between."""
    for source in node.inputs:
        if isinstance(source, Read | Keyed):
            yield source
        else:
            yield from starts(source)

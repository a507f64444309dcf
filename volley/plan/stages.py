"""The two stages of a job that keeps state by key: what leads to its keyed steps, and what follows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from volley.errors import PlanError
from volley.plan.graph import describe, ends, walk
from volley.plan.keyed_nodes import Aggregate, Keyed
from volley.plan.nodes import Node, Read, Repartition, Write

__all__ = ["Stages", "stages"]


@dataclass(frozen=True)
class Stages:
    """The stages of a job. A job without keyed steps has the first one only.

    Args:
        keyed: The keyed steps, in plan order.
        ends: What ends the first stage: its writes by the index of their sink, then the intakes of the keyed steps.
        writes: For each keyed step, the writes behind it, by the index of their sink.
    """

    keyed: tuple[Keyed, ...]
    ends: dict[int, Node]
    writes: tuple[dict[int, Write], ...]


def stages(writes: Sequence[Write]) -> Stages:
    """Divide a job into its stages.

    Raises:
        PlanError: If an aggregate has no window, a keyed step follows another one, or its rows meet other rows.
    """
    keyed = tuple(node for node in walk(writes) if isinstance(node, Keyed))
    for step in keyed:
        _check(step)
    before = {number: list(_starts(write)) for number, write in enumerate(writes)}
    for number, starts in before.items():
        if len({isinstance(start, Keyed) for start in starts}) > 1:
            raise PlanError(
                f"a union of the rows of windows or joins with others:\n{describe(writes[number])}",
                hint="write them to two sinks, in one job: execute(name, first, second)",
            )
    behind = tuple(
        {number: write for number, write in enumerate(writes) if any(start is step for start in before[number])}
        for step in keyed
    )
    return Stages(keyed, ends(writes), behind)


def _check(step: Keyed) -> None:
    if isinstance(step, Aggregate) and step.windowing is None:
        raise PlanError(
            f"a job can't run {step.label()}: without a window, a key's row is never final",
            hint='group by time, too: key_by(…).window(tumbling("1m"), on="at").aggregate(…); or keep the result up to '
            "date as a materialised view",
        )
    if earlier := next((node for node in walk(step.inputs) if isinstance(node, Keyed)), None):
        raise PlanError(
            f"{step.label()} follows another step that keeps state: {earlier.label()}",
            hint="write the first one to a table, and read that in another job",
        )


def _starts(node: Node) -> Iterator[Node]:
    """Yield the reads and keyed steps whose rows get to a node without another keyed step between."""
    for source in node.inputs:
        if isinstance(source, Read | Keyed):
            yield source
            continue
        starts = list(_starts(source))
        wide = not source.narrow and not isinstance(source, Repartition)
        if wide and (step := next((start for start in starts if isinstance(start, Keyed)), None)):
            raise PlanError(f"{source.label()} follows {step.label()}", hint="do it before that, or in another job")
        yield from starts

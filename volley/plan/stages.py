"""The two stages of a job with windows: what leads to the windows, and what follows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from volley.errors import PlanError
from volley.plan.graph import describe, ends, walk
from volley.plan.nodes import Aggregate, Node, Read, Write

__all__ = ["Stages", "stages"]


@dataclass(frozen=True)
class Stages:
    """The stages of a job. A job without windows has the first one only.

    Args:
        aggregates: The windowed aggregates, in plan order.
        ends: What ends the first stage: its writes by the index of their sink, then the aggregates.
        writes: For each aggregate, the writes behind it, by the index of their sink.
    """

    aggregates: tuple[Aggregate, ...]
    ends: dict[int, Write | Aggregate]
    writes: tuple[dict[int, Write], ...]


def stages(writes: Sequence[Write]) -> Stages:
    """Divide a job into its stages.

    Raises:
        PlanError: If an aggregate has no window, or follows another one, or rows of windows meet other rows.
    """
    aggregates = tuple(node for node in walk(writes) if isinstance(node, Aggregate))
    for aggregate in aggregates:
        _check(aggregate)
    before = {number: list(_starts(write)) for number, write in enumerate(writes)}
    for number, starts in before.items():
        if len({isinstance(start, Aggregate) for start in starts}) > 1:
            raise PlanError(
                f"a union of windows with rows that are in none:\n{describe(writes[number])}",
                hint="write them to two sinks, in one job: execute(name, first, second)",
            )
    behind = tuple(
        {number: write for number, write in enumerate(writes) if any(start is aggregate for start in before[number])}
        for aggregate in aggregates
    )
    return Stages(aggregates, ends(writes), behind)


def _check(aggregate: Aggregate) -> None:
    if aggregate.windowing is None:
        raise PlanError(
            f"a job can't run {aggregate.label()}: without a window, a key's row is never final",
            hint='group by time, too: key_by(…).window(tumbling("1m"), on="at").aggregate(…); or keep the result up to '
            "date as a materialised view",
        )
    if any(isinstance(node, Aggregate) for node in walk([aggregate.input])):
        raise PlanError(
            f"{aggregate.label()} follows another aggregate",
            hint="write the first one to a table, and read that in another job",
        )


def _starts(node: Node) -> Iterator[Node]:
    """Yield the reads and aggregates whose rows get to a node without another aggregate between."""
    for source in node.inputs:
        if isinstance(source, Read | Aggregate):
            yield source
            continue
        starts = list(_starts(source))
        if not source.narrow and any(isinstance(start, Aggregate) for start in starts):
            raise PlanError(f"{source.label()} follows windows", hint="do it before key_by, or in another job")
        yield from starts

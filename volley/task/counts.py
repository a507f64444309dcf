"""What a task counts while it runs: the rows that it reads, and those behind each node of the job's graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Counted", "Passed"]

Passed = tuple[Sequence[int], Sequence[int]]
"""The numbers of consecutive steps in the job's graph, and the rows behind each that was reached."""


@dataclass
class Counted:
    """The rows that one task has read, passed on and turned down.

    Args:
        rows: The rows behind each node of the job's graph, by the node's number.
        bad: The bad rows at each node.
        read: The rows read of each source; empty if the task reads none.
    """

    rows: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    read: Sequence[int] = ()

    @classmethod
    def none(cls, nodes: int) -> Counted:
        """Return no rows, for a graph with so many nodes."""
        return cls([0] * nodes, [0] * nodes)

    def pass_on(self, passed: Iterable[Passed]) -> None:
        """Count the rows behind steps."""
        for numbers, behind in passed:
            for number, rows in zip(numbers, behind, strict=False):
                self.rows[number] += rows

    def turn_down(self, number: int | None) -> None:
        """Count a bad row at a node; None = a graph that is not counted."""
        if number is not None:
            self.bad[number] += 1

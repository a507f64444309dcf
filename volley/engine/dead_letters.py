"""The sinks that take a job's dead letters, committed by the driver before the job's own sinks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volley.epoch import Epoch
from volley.plan.nodes import Write
from volley.sink import Committer, Sink, SinkContext
from volley.task.sorter import SCHEMA, DeadLetters

if TYPE_CHECKING:
    from volley.metrics import Metrics

__all__ = ["DeadLetterSinks", "dead_letters"]


@dataclass(frozen=True)
class DeadLetterSinks:
    """The driver's side: the sinks that take dead letters, each once, however many sinks send theirs to it.

    Args:
        sinks: The targets.
        committers: Their committers.
        routes: For each sink of the job the number of its target; None = it has none.
    """

    sinks: tuple[Sink, ...]
    committers: tuple[Committer, ...]
    routes: tuple[int | None, ...]
    counters: tuple[Metrics, ...]

    @classmethod
    def open(cls, writes: Sequence[Write], job: str, metrics: Metrics, known: Collection[str] = ()) -> DeadLetterSinks:
        """Reach the targets of a job's sinks; make them if they are absent.

        Args:
            writes: The writes of the job.
            job: The job's name.
            metrics: Where to count.
            known: The names of targets that the job has written to before.

        Raises:
            VolleyError: If dead letters can't be written there.
        """
        targets = dead_letters(writes)
        counters = tuple(metrics.of_sink(target.label) for target in targets)
        committers = tuple(
            target.open(SinkContext(job, SCHEMA, counter, resumed=target.target in known, shared=True))
            for target, counter in zip(targets, counters, strict=True)
        )
        routes = tuple(None if write.dead_letter is None else targets.index(write.dead_letter) for write in writes)
        return cls(tuple(targets), committers, routes, counters)

    def letters(self, job: str, epoch: Epoch, due: Sequence[bool]) -> DeadLetters | None:
        """What the tasks of an epoch are told; None if no sink has a dead letter.

        Args:
            job: The job's name.
            epoch: The epoch.
            due: For each target whether it still lacks the epoch.
        """
        if not self.committers:
            return None
        writers = tuple(
            committer.writer(epoch) if is_due else None for committer, is_due in zip(self.committers, due, strict=True)
        )
        return DeadLetters(job, epoch.number, writers, self.routes)


def dead_letters(writes: Sequence[Write]) -> list[Sink]:
    """The sinks that take the dead letters of a job's sinks, each once."""
    found: list[Sink] = []
    for write in writes:
        if write.dead_letter is not None and write.dead_letter not in found:
            found.append(write.dead_letter)
    return found

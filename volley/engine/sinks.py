"""The open sinks of a job: those of its dead letters, which are committed first, and the tasks that sinks run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volley.columns.letters import SCHEMA
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, ExecutorTask, SinkContext, Writer
from volley.plan.graph import JobGraph
from volley.spark.run import EpochCounters, run_tasks
from volley.task.sorter import DeadLetters

if TYPE_CHECKING:
    from pyspark import SparkContext

    from volley.metrics.metrics import Metrics

__all__ = ["DeadLetterSinks", "ExecutorTasks", "OpenSink", "writers_of"]


@dataclass(frozen=True)
class OpenSink:
    """An open sink of a job, or of its dead letters: these run no executor tasks."""

    committer: Committer
    metrics: Metrics
    tasks: ExecutorTasks | None = None

    def taken(self) -> list[WriteResult]:
        """Return what its executor tasks have written since the last call."""
        return [] if self.tasks is None else self.tasks.take()


def writers_of(sinks: Sequence[OpenSink], due: Sequence[bool], epoch: Epoch) -> tuple[Writer | None, ...]:
    """Return the writer of each sink that lacks the epoch, and None for the others."""
    return tuple(sink.committer.writer(epoch) if is_due else None for sink, is_due in zip(sinks, due, strict=True))


@dataclass(frozen=True)
class DeadLetterSinks:
    """The open dead-letter sinks of a job, each once, even if several sinks share it.

    Args:
        routes: Per sink of the job, the index of its dead-letter sink; None = it has none.
        replays: True if the job reads dead letters again.
    """

    sinks: tuple[OpenSink, ...]
    routes: tuple[int | None, ...]
    replays: bool = False

    @classmethod
    def open(cls, graph: JobGraph, job: str, metrics: Metrics, known: Collection[str] = ()) -> DeadLetterSinks:
        """Open the dead-letter sinks of a job.

        Args:
            known: The names of targets that the job has written to before.

        Raises:
            VolleyError: If dead letters can't be written there.
        """
        sinks = []
        for sink in graph.letters:
            counters = metrics.of_sink(sink.label)
            context = SinkContext(job, SCHEMA, counters, resumed=sink.target in known, shared=True)
            sinks.append(OpenSink(sink.open(context), counters))
        letters = (write.dead_letter for write in graph.writes)
        routes = (None if letter is None else graph.letters.index(letter) for letter in letters)
        return cls(tuple(sinks), tuple(routes), any(read.source.reads_letters for read in graph.reads))

    def letters(
        self, job: str, epoch: Epoch, due: Sequence[bool], behind: Sequence[Sequence[int]] = ()
    ) -> DeadLetters | None:
        """Return what the tasks of an epoch need for dead letters; None if no sink has one.

        Args:
            due: Per dead-letter sink, whether it lacks the epoch.
            behind: Per input of a keyed step, the sinks behind the step: rows that it leaves out go to the first
                dead letter of these.
        """
        if not self.sinks:
            return None
        of_inputs = (
            next((self.routes[sink] for sink in sinks if self.routes[sink] is not None), None) for sinks in behind
        )
        writers, routes = writers_of(self.sinks, due, epoch), (*self.routes, *of_inputs)
        return DeadLetters(job, epoch.number, writers, routes, self.replays)


@dataclass
class ExecutorTasks:
    """Runs the ExecutorTasks of one sink and counts what they write.

    Args:
        counters: Counts what each one wrote while others still run.
        metrics: The sink's counters.
    """

    context: SparkContext
    job: str
    counters: EpochCounters
    metrics: Metrics
    _results: list[WriteResult] = field(default_factory=list)

    def __call__(self, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        results = run_tasks(self.context, tasks, self.job, self.counters)
        # Without their rows, which the tasks that read them have counted.
        written = [WriteResult(files=result.files, bytes=result.bytes, seconds=result.seconds) for result in results]
        for result in written:
            self.metrics.record_write(result)
        self._results += written
        return results

    def take(self) -> list[WriteResult]:
        """Return what was written since the last call."""
        results, self._results = self._results, []
        return results

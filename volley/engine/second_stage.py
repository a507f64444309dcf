"""The second stage of an epoch, in a job with keyed steps: merges the states that the tasks which read have made."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from volley.engine.state import KeyedState, Merge
from volley.epoch import WriteResult
from volley.metrics import Metrics
from volley.sink import Writer
from volley.source import Offset, Reader
from volley.spark.log import NO_OFFSET, SparkLog
from volley.spark.run import run_splits
from volley.spark.session import runs_locally
from volley.task.failpoints import reach
from volley.task.task import InputSplit, Task, TaskPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RunEnd", "SecondStage"]

_log = logging.getLogger(__name__)

_Results = list[tuple[WriteResult, ...]]
"""Per task, a result for each sink, then for each input of each keyed step, then for each dead letter."""


@dataclass(frozen=True)
class SecondStage:
    """Runs the second stage of a job's epochs.

    Args:
        job: The job's name.
        states: The state of each keyed step.
        plan: What the tasks of the second stage do.
        sinks: The number of the job's sinks.
        metrics: Per keyed step, the counters of the first sink behind it.
    """

    job: str
    states: tuple[KeyedState, ...]
    plan: TaskPlan
    sinks: int
    metrics: tuple[Metrics, ...]
    _merges: dict[int, Merge] = field(default_factory=dict, compare=False)

    @property
    def behind(self) -> list[tuple[int, ...]]:
        """For each input of each keyed step, the sinks behind the step."""
        pairs = zip(self.states, self.plan.trees, strict=True)
        return [tree.sinks for state, tree in pairs for _ in range(state.inputs)]

    def first(self, task: Task, due: Sequence[bool]) -> Task:
        """Return the first stage of an epoch: a task that also makes states of rows for the steps before due sinks.

        Args:
            task: The task with a writer for each sink.
            due: Per sink, whether it lacks the epoch.

        Raises:
            StorageError: If the state is missing, or damaged.
        """
        partials: list[Writer | None] = []
        for state, tree in zip(self.states, self.plan.trees, strict=True):
            is_due = any(due[sink] for sink in tree.sinks)
            if not is_due:
                state.check(task.epoch)
            partials += state.writers(task.epoch) if is_due else [None] * state.inputs
        return replace(task, writers=(*_reached(task.plan, task.writers), *partials))

    def skip(self, epoch: int) -> None:
        """Check that the state has an epoch that all sinks have.

        Raises:
            StorageError: If it does not.
        """
        for state in self.states:
            state.check(epoch)

    def second(self, spark: SparkSession, task: Task, results: _Results, sources: Sequence[int] | None) -> _Results:
        """Run the second stage; return the results of both without those of the keyed steps.

        On one machine the driver merges few states itself.

        Args:
            spark: The session.
            task: The task with a writer for each sink.
            results: The results of the first stage.
            sources: The number of the source of each task's rows; None = rows of all sources are mixed.
        """
        merges: dict[int, Merge] = {}
        numbers, end = sources or [0] * len(results), self.sinks
        for number, state in enumerate(self.states):
            begin, end = end, end + state.inputs
            # Tasks behind those of the sources only write rows for sinks.
            read = results[: len(numbers)]
            partials = [[each for part in result[begin:end] for each in part.committables] for result in read]
            if any(partials) or not results:
                merges[number] = state.merge(task.epoch, list(zip(numbers, partials, strict=True)))
        if merges:
            reach("after-partials", task.epoch)
            splits = [InputSplit(number, split) for number, merge in merges.items() for split in merge.splits]
            writers = (*_reached(self.plan, task.writers), *[None] * (end - self.sinks))
            stage = replace(task, plan=self.plan, writers=writers, first=len(results))
            is_small = all(merge.is_small for merge in merges.values())
            if is_small and runs_locally(spark) and self.plan.suits_driver(writers):
                results = [*results, *stage(splits)]
            else:
                results = results + run_splits(spark, stage, splits)
            for number, merge in merges.items():
                self.states[number].finish(merge)
        self._merges.update(merges)
        return [(*result[: self.sinks], *result[end:]) for result in results]

    def record(self) -> None:
        """Count the rows that were left out, and the watermarks, of an epoch that is committed."""
        for number, merge in self._merges.items():
            misfits = merge.misfits
            self.metrics[number].record_misfits(misfits.late, misfits.ahead, misfits.untimed)
            self.metrics[number].record_watermark(merge.watermark)
            if misfits.late or misfits.ahead or misfits.untimed:
                _log.warning(
                    "%s: epoch %d leaves rows out of %s: %s late, %s too far ahead of the clock, %s without a time",
                    *(self.job, merge.epoch, self.states[number].operator.folder),
                    *(f"{rows:,}" for rows in (misfits.late, misfits.ahead, misfits.untimed)),
                )
        self._merges.clear()


def _reached(plan: TaskPlan, writers: Sequence[Writer | None]) -> list[Writer | None]:
    """Return the writers of the sinks that rows of a stage can get to, and None for the others."""
    return [writer if plan.reaches(sink) else None for sink, writer in enumerate(writers)]


class RunEnd:
    """Where a run over bounded sources ends, set when the run starts.

    Args:
        log: Spark's log of the query.
    """

    def __init__(self, log: SparkLog) -> None:
        self._log = log
        last = log.last_planned
        self._starts = [] if last is None else log.offsets(last)
        self._targets: dict[int, Offset] = {}
        self._initial: dict[int, Offset] = {}

    def target(self, number: int, reader: Reader) -> Offset:
        """Return the last offset that the run reads of a source.

        Args:
            number: The number of its line in Spark's offset log.
            reader: Its reader.
        """
        self._initial[number] = reader.initial_offset()
        start = self._offset(number, self._starts)
        target = reader.latest_offset(start, None, reader.latest_offset(start, None, None))
        self._targets[number] = target
        return target

    def reached(self, epoch: int) -> bool:
        """Return True if the run ends with an epoch."""
        lines = self._log.offsets(epoch)
        return all(self._offset(number, lines) == target for number, target in self._targets.items())

    def _offset(self, number: int, lines: Sequence[str]) -> Offset:
        if number >= len(lines) or lines[number] == NO_OFFSET:
            return self._initial[number]
        offset: Mapping[str, object] = json.loads(lines[number])
        return dict(offset)

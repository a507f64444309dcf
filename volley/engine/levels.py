"""The levels of an epoch, in a job with keyed steps: each merges the states that the tasks before it have made."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from volley.contracts.epoch import WriteResult
from volley.contracts.sink import Writer
from volley.contracts.source import Offset, Reader
from volley.engine.state import EpochMerge, KeyedState
from volley.metrics.metrics import Metrics
from volley.spark.compile import CompiledPlan
from volley.spark.log import NO_OFFSET, SparkLog
from volley.spark.run import TaskResults, of_sources, run_on_driver, run_splits
from volley.spark.session import runs_locally
from volley.task.failpoints import reach
from volley.task.partials import NO_ROWS
from volley.task.task import InputSplit, Task, TaskPlan

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Levels", "RunEnd"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Levels:
    """Runs the levels of a job's epochs.

    Args:
        merging: What the tasks of the keyed steps do.
        states: The state of each keyed step.
        metrics: The counters of each sink.
        of_job: Those of the job.
    """

    job: str
    plan: CompiledPlan
    merging: TaskPlan
    states: tuple[KeyedState, ...]
    metrics: Sequence[Metrics]
    of_job: Metrics
    _merges: dict[int, EpochMerge] = field(default_factory=dict, compare=False)

    @property
    def behind_inputs(self) -> list[Sequence[int]]:
        """For each input of each keyed step, the sinks behind the step."""
        return [sinks for state, sinks in self._with_sinks() for _ in range(state.inputs)]

    def _with_sinks(self) -> Iterator[tuple[KeyedState, Sequence[int]]]:
        """Yield the state of each keyed step, and the sinks behind it."""
        return ((state, self.plan.graph.behind(number)) for number, state in enumerate(self.states))

    def task(self, task: Task, due: Sequence[bool]) -> Task:
        """Return the task of an epoch that also makes states of rows, for the steps before due sinks.

        Args:
            task: The task with a writer for each sink.
            due: Per sink, whether it lacks the epoch.

        Raises:
            StorageError: If the state is missing, or damaged.
        """
        partials: list[Writer | None] = []
        for state, sinks in self._with_sinks():
            is_due = any(due[sink] for sink in sinks)
            if not is_due:
                state.check(task.epoch)
            partials += state.writers(task.epoch) if is_due else [None] * state.inputs
        return replace(task, writers=(*task.writers, *partials))

    def skip(self, epoch: int) -> None:
        """Check that the state has an epoch that all sinks have.

        Raises:
            StorageError: If it does not.
        """
        for state in self.states:
            state.check(epoch)

    def run(self, context: SparkContext, task: Task, results: TaskResults) -> list[tuple[WriteResult, ...]]:
        """Run the levels; return the results of all tasks without those of the keyed steps.

        Args:
            task: The epoch's task, with a writer for each sink and each input of a keyed step.
            results: The results of the tasks that read the job's sources.
        """
        for level in self.plan.graph.levels:
            merges = {number: self._merge(number, task, results) for number in level if self._is_due(number, task)}
            if merges:
                results = results + self._merged(context, task, merges, first=len(results))
            self._merges.update(merges)
        first, end = self._first(0), self._first(len(self.states))
        return [(*result[:first], *result[end:]) for _, result in results]

    def _is_due(self, number: int, task: Task) -> bool:
        return task.writers[self._first(number)] is not None

    def _first(self, number: int) -> int:
        """Return the place of a step's first input in a task's results."""
        return len(self.metrics) + sum(state.inputs for state in self.states[:number])

    def _merge(self, number: int, task: Task, results: TaskResults) -> EpochMerge:
        first, state = self._first(number), self.states[number]
        partials = [
            (source, [next(iter(intake.committables), NO_ROWS) for intake in result[first : first + state.inputs]])
            for source, result in results
            if source is not None
        ]
        return state.merge(task.epoch, partials)

    def _merged(self, context: SparkContext, task: Task, merges: Mapping[int, EpochMerge], first: int) -> TaskResults:
        """Run the tasks of a level. On one machine the driver merges few states itself."""
        reach("after-partials", task.epoch)
        splits = [InputSplit(number, split) for number, merge in merges.items() for split in merge.splits]
        stage = replace(task, plan=self.merging, writers=self.merging.reached(task.writers, merges), first=first)
        is_small = all(merge.is_small for merge in merges.values())
        if is_small and runs_locally(context) and self.merging.suits_driver(stage.writers):
            # One split a step.
            results = run_on_driver(stage, splits)
        else:
            results = run_splits(context, stage, splits)
        for number, merge in merges.items():
            self.states[number].finish(merge)
        # What Spark reads counts as one source, the last one.
        sources = len(self.plan.tasks.readers) + 1
        return of_sources([sources + split.reader for split in splits], results)

    def record(self) -> None:
        """Count the rows that were rejected, and the watermarks, of an epoch that is committed."""
        for number, merge in self._merges.items():
            rejected, metrics = merge.rejected, self.metrics[self.plan.graph.behind(number)[0]]
            metrics.record_rejected(rejected.late, rejected.early, rejected.untimed)
            at = self.plan.graph.numbers[id(self.plan.graph.keyed[number])]
            self.of_job.record_rejected_at(at, rejected.late + rejected.early + rejected.untimed)
            if merge.watermark is not None:
                metrics.record_watermark(merge.watermark)
            if rejected.late or rejected.early or rejected.untimed:
                _log.warning(
                    "%s: epoch %d rejects rows of %s: %s late, %s too far ahead of the clock, %s without a time",
                    *(self.job, merge.epoch, self.states[number].operator.folder),
                    *(f"{rows:,}" for rows in (rejected.late, rejected.early, rejected.untimed)),
                )
        self.of_job.record_source_watermarks(self._source_watermarks())
        self._merges.clear()

    def _source_watermarks(self) -> dict[str, datetime]:
        """Return the watermark of each source's rows at the slowest step that gets them, by the source's name."""
        sources, of_spark = self.plan.sources, len(self.plan.tasks.readers)
        slowest: dict[str, datetime] = {}
        for merge in self._merges.values():
            for number, at in merge.source_watermarks.items():
                # The sources that Spark reads count as one; the numbers behind theirs are those of keyed steps.
                of_number = sources[of_spark:] if number == of_spark else sources[:of_spark][number : number + 1]
                for source in of_number:
                    slowest[source.identity] = min(at, slowest.get(source.identity, at))
        return slowest


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

"""The levels of an epoch, in a job with keyed steps: each merges the states that the tasks before it have made."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from volley.columns.operators import BEFORE_ALL, Operator
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import Writer
from volley.contracts.source import Offset, Reader, Source
from volley.engine.state import EpochMerge, KeyedState
from volley.metrics.metrics import Metrics
from volley.plan.event_times import EventTime, event_times
from volley.plan.graph import JobGraph
from volley.spark.log import NO_OFFSET, SparkLog
from volley.task.failpoints import reach
from volley.task.partials import NO_ROWS, PartialWriter
from volley.task.task import InputSplit, Task, TaskPlan, TaskResults, of_sources

__all__ = ["Levels", "RunEnd", "keyed_states"]

_log = logging.getLogger(__name__)

RunMerges = Callable[[Task, Sequence[InputSplit], bool], list[tuple[WriteResult, ...]]]
"""Runs a task for each split, and returns their results; True = few states are merged."""


@dataclass(frozen=True)
class Levels:
    """Runs the levels of a job's epochs.

    Args:
        sources: The source of each tree in `tasks`.
        tasks: What the tasks do that read sources.
        merging: What the tasks of the keyed steps do.
        states: The state of each keyed step.
        metrics: The counters of each sink.
        of_job: Those of the job.
        without_rows: The numbers of the keyed steps that have had no row with a time.
    """

    job: str
    graph: JobGraph
    sources: Sequence[Source]
    tasks: TaskPlan
    merging: TaskPlan
    states: tuple[KeyedState, ...]
    metrics: Sequence[Metrics]
    of_job: Metrics
    without_rows: set[int] = field(default_factory=set, compare=False)
    _merges: dict[int, EpochMerge] = field(default_factory=dict, compare=False)

    @property
    def behind_inputs(self) -> list[Sequence[int]]:
        """For each input of each keyed step, the sinks behind the step."""
        return [sinks for state, sinks in self._with_sinks() for _ in range(state.inputs)]

    def _with_sinks(self) -> Iterator[tuple[KeyedState, Sequence[int]]]:
        """Yield the state of each keyed step, and the sinks behind it."""
        return ((state, self.graph.behind(number)) for number, state in enumerate(self.states))

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

    def run(self, run: RunMerges, task: Task, results: TaskResults) -> list[tuple[WriteResult, ...]]:
        """Run the levels; return the results of all tasks without those of the keyed steps.

        Args:
            run: Runs the tasks of a level.
            task: The epoch's task, with a writer for each sink and each input of a keyed step.
            results: The results of the tasks that read the job's sources.
        """
        merges: dict[int, EpochMerge] = {}
        for level in self.graph.levels:
            due = {number: self._merge(number, task, results, merges) for number in level if self._is_due(number, task)}
            if due:
                results = results + self._merged(run, task, due, first=len(results))
            merges |= due
        for number, merge in self._closed_together(merges).items():
            state, at = self.states[number], self.graph.numbers[id(self.graph.keyed[number])]
            self.of_job.record_state_bytes(at, state.name, state.finish(merge))
            rows = any(clock.latest is not None for clock in merge.done.clocks)
            (self.without_rows.discard if rows else self.without_rows.add)(number)
        self._merges.update(merges)
        first, end = self._first(0), self._first(len(self.states))
        return [(*result[:first], *result[end:]) for _, result in results]

    def _closed_together(self, merges: Mapping[int, EpochMerge]) -> dict[int, EpochMerge]:
        """Return the merges of an epoch; at the end of all sources, with watermarks that close earlier steps, too.

        Each step has closed by the latest of its own rows. Rows of a later run that get through an earlier step must
        not be late behind it: they are late at the first step, where they are counted.
        """
        closed = dict(merges)
        for number in sorted(merges, reverse=True):
            watermark = closed[number].done.watermark
            if not closed[number].ends or watermark == BEFORE_ALL:
                continue
            for at in (at for times in self._follows[number].values() for at in times):
                before = self._numbers[id(at.step)]
                closed[before] = closed[before].raised(at.least(watermark))
        return closed

    def _is_due(self, number: int, task: Task) -> bool:
        return task.writers[self._first(number)] is not None

    def _first(self, number: int) -> int:
        """Return the place of a step's first input in a task's results."""
        return len(self.graph.writes) + sum(state.inputs for state in self.states[:number])

    def _merge(self, number: int, task: Task, results: TaskResults, merges: Mapping[int, EpochMerge]) -> EpochMerge:
        """Return the merge of a step after those of the levels before."""
        first, state = self._first(number), self.states[number]
        partials = [
            (source, [next(iter(intake.committables), NO_ROWS) for intake in result[first : first + state.inputs]])
            for source, result in results
            if source is not None
        ]
        outputs = {pair: self._output(times, merges) for pair, times in self._follows[number].items()}
        return state.merge(task.epoch, partials, outputs)

    def _output(self, times: Sequence[EventTime], merges: Mapping[int, EpochMerge]) -> int | None:
        """Return the output watermark of rows that come in one or several ways from keyed steps; None = no row yet."""
        known = [(at, merges[self._numbers[id(at.step)]].done.watermark) for at in times]
        if any(watermark == BEFORE_ALL for _, watermark in known):
            return None
        return min(at.output(watermark) for at, watermark in known)

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The number of each keyed step, by its id."""
        return {id(step): number for number, step in enumerate(self.graph.keyed)}

    @cached_property
    def _follows(self) -> Sequence[Mapping[tuple[int, int], Sequence[EventTime]]]:
        """For each keyed step, by its input and the number of a keyed step that is its source, the times it follows."""
        first = len(self.tasks.readers) + 1
        return [
            {
                (input, first + self._numbers[start]): times
                for input, starts in enumerate(event_times(step))
                for start, times in starts.items()
            }
            for step in self.graph.keyed
        ]

    def _merged(self, run: RunMerges, task: Task, merges: Mapping[int, EpochMerge], first: int) -> TaskResults:
        """Run the tasks of a level."""
        reach("after-partials", task.epoch)
        splits = [InputSplit(number, split) for number, merge in merges.items() for split in merge.splits]
        writers = self.merging.reached(self._without_bounds(task.writers), merges)
        stage = replace(task, plan=self.merging, writers=writers, first=first)
        results = run(stage, splits, all(merge.is_small for merge in merges.values()))
        # What Spark reads counts as one source, the last one.
        sources = len(self.tasks.readers) + 1
        return of_sources([sources + split.reader for split in splits], results)

    def _without_bounds(self, writers: Sequence[Writer | None]) -> list[Writer | None]:
        """Return the writers for rows of keyed steps: the end of a window may be far ahead of the clock."""
        changed = list(writers)
        for number, follows in enumerate(self._follows):
            for input, _ in follows:
                place = self._first(number) + input
                if isinstance(writer := changed[place], PartialWriter):
                    changed[place] = writer.without_bound
        return changed

    def record(self) -> None:
        """Count the rows that were rejected, and the watermarks, of an epoch that is committed."""
        for number, merge in self._merges.items():
            rejected, metrics = merge.rejected, self.metrics[self.graph.behind(number)[0]]
            metrics.record_rejected(rejected.late, rejected.early, rejected.untimed)
            at = self.graph.numbers[id(self.graph.keyed[number])]
            self.of_job.record_rejected_at(at, rejected.late + rejected.early + rejected.untimed)
            if merge.watermark is not None and self.states[number].operator.is_timed:
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
        sources, of_spark = self.sources, len(self.tasks.readers)
        slowest: dict[str, datetime] = {}
        timed = (merge for number, merge in self._merges.items() if self.states[number].operator.is_timed)
        for merge in timed:
            for number, at in merge.source_watermarks.items():
                # The sources that Spark reads count as one; the numbers behind theirs are those of keyed steps.
                of_number = sources[of_spark:] if number == of_spark else sources[:of_spark][number : number + 1]
                for source in of_number:
                    slowest[source.identity] = min(at, slowest.get(source.identity, at))
        return slowest


def keyed_states(
    operators: Sequence[Operator],
    tasks: TaskPlan,
    merging: TaskPlan,
    folder: str,
    cores: int,
    ends: Callable[[int], bool],
) -> tuple[KeyedState, ...]:
    """Return the state of each keyed step.

    Args:
        tasks: What the tasks do that read sources.
        merging: What the tasks of the keyed steps do.
        folder: The URL of the folder below which each has its files.
        cores: The most tasks that merge a state.
        ends: Returns True if the sources end with an epoch.
    """
    states, first = [], len(tasks.sinks) - sum(len(operator.states) for operator in operators)
    for number, operator in enumerate(operators):
        intakes = range(first, first := first + len(operator.states))
        clocked = _clocked(tasks, merging, intakes)
        states.append(KeyedState(operator, f"{folder}/{operator.folder}-{number}", clocked, cores, ends))
    return tuple(states)


def _clocked(tasks: TaskPlan, merging: TaskPlan, intakes: Sequence[int]) -> list[tuple[int, int]]:
    """Return a keyed step's inputs and the sources whose rows they get; each pair has a clock.

    The frames that Spark reads are one source, as a task may have rows of several; keyed steps are sources, too.

    Args:
        merging: What the tasks of the keyed steps do.
    """
    of_spark = len(tasks.readers)
    trees = [
        *((min(number, of_spark), tree) for number, tree in enumerate(tasks.trees)),
        *enumerate(merging.trees, start=of_spark + 1),
    ]
    pairs = [
        (number, source) for number, intake in enumerate(intakes) for source, tree in trees if intake in tree.sinks
    ]
    return list(dict.fromkeys(pairs))


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

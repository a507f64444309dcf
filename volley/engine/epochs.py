"""What a job does in each epoch: ask the sinks, let the tasks write, commit, look for what died on the way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from volley.engine.dead_letters import DeadLetterSinks
from volley.engine.landed import Landed
from volley.epoch import Epoch, WriteResult
from volley.errors import CommitStateUnknownError, LayoutChangedError, PlanError, StorageError, VolleyError
from volley.metrics import Metrics
from volley.sink import Committer, ExecutorTask
from volley.source import Split
from volley.spark.compile import CompiledPlan
from volley.spark.log import SparkLog
from volley.spark.progress import EpochCounters
from volley.spark.run import evaluate, run_on_executors, run_rows, run_splits
from volley.task.failpoints import reach
from volley.task.task import InputSplit, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EpochResult", "Epochs", "ExecutorTasks"]

_log = logging.getLogger(__name__)
_WRITES = 4


@dataclass(frozen=True)
class EpochResult:
    """An epoch that is visible in every sink.

    Args:
        epoch: The epoch.
        sinks: For each sink of the job, what each task wrote to it.
        letters: For each dead-letter target, what each task wrote to it.
        skipped: True if all of it was there already.
        orphans: Files that attempts of this epoch have left behind; empty unless there was a reason to look.
    """

    epoch: Epoch
    sinks: Sequence[Sequence[WriteResult]]
    letters: Sequence[Sequence[WriteResult]]
    skipped: bool
    orphans: Sequence[str]


@dataclass
class ExecutorTasks:
    """Has the chores of one sink done by the executors, and counts what they write.

    Args:
        spark: The job's session.
        job: The job's name.
        counters: Where each tells what it wrote before all are done.
        metrics: The sink's counters.
    """

    spark: SparkSession
    job: str
    counters: EpochCounters
    metrics: Metrics
    _done: list[WriteResult] = field(default_factory=list)

    def __call__(self, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        results = run_on_executors(self.spark, self.job, self.counters, tasks)
        # Their rows were counted when tasks took them.
        written = [WriteResult(files=each.files, bytes=each.bytes, seconds=each.seconds) for each in results]
        for each in written:
            self.metrics.record_write(each)
        self._done += written
        return results

    def take(self) -> list[WriteResult]:
        """What was written since this was asked last."""
        taken, self._done = self._done, []
        return taken


@dataclass(frozen=True)
class Epochs:
    """Runs the epochs of one job.

    Args:
        job: The job's name.
        plan: What Spark and the tasks do.
        splits: Gives the splits of an epoch, each with its reader's number; None: Spark has its rows.
        committers: One for each sink of the job.
        executor_tasks: Per sink: runs its executor tasks and counts what they write.
        targets: Where bad rows go.
        counters: What the running epoch's tasks have reported.
        metrics: Where to count.
        log: Spark's log of the query.
        landed: How far each target was.
        unfinished: The epoch in which an earlier run died, if any.
        speculative: True if Spark may run copies of a task, and kill those that lose.
    """

    job: str
    plan: CompiledPlan
    splits: Callable[[int], list[tuple[int, Split]]] | None
    committers: Sequence[Committer]
    executor_tasks: Sequence[ExecutorTasks]
    targets: DeadLetterSinks
    counters: EpochCounters
    metrics: Metrics
    log: SparkLog
    landed: Landed
    unfinished: int | None
    speculative: bool

    def epoch(self, query_id: str, number: int) -> Epoch:
        """The epoch of this number, with the offsets that Spark has planned for it."""
        return Epoch(query_id, number, self.log.digest(number))

    def backfill(self, epoch: Epoch, new: Sequence[bool]) -> None:
        """Write and commit an epoch to new sinks alone, and to the dead letters that are new with them.

        Args:
            epoch: The epoch.
            new: For each sink whether it is new.

        Raises:
            PlanError: If a new sink has rows of this query, or shares a dead letter with rows of it.
            VolleyError: If it failed; the next start tries again.
        """
        due = [is_new and self._is_empty(each, epoch) for each, is_new in zip(self.committers, new, strict=True)]
        routes = {route for route, is_due in zip(self.targets.routes, due, strict=True) if is_due and route is not None}
        letters_due = [
            number in routes and self._is_empty(each, epoch) for number, each in enumerate(self.targets.committers)
        ]
        if any(due):
            self._write_and_commit(self.plan.frame, epoch, [*due, *letters_due], [[] for _ in self._all])

    def remember(self, query_id: str) -> None:
        """Keep beside the checkpoint how far the targets are, for the next run to compare."""
        try:
            self.landed.remember(self._all, query_id)
        except Exception as error:
            # The run has ended well: the next one compares with what was kept before.
            _log.warning("%s: how far its targets are was not written down: %s", self.job, error)

    @staticmethod
    def _is_empty(committer: Committer, epoch: Epoch) -> bool:
        """Whether it has no epoch of the query; True of all but one that a backfill has filled before it died."""
        last = committer.last_epoch(epoch.query_id)
        if last is not None and last < epoch.number:
            raise PlanError(
                f"{committer} has epochs of this job up to {last} already: a backfill up to epoch {epoch.number} would "
                "double their rows",
                hint="write to another table, or start over with fresh=True",
            )
        return last is None

    def run(self, frame: DataFrame, epoch: Epoch) -> EpochResult:
        """Write and commit what is missing of one epoch.

        Args:
            frame: The epoch's rows; empty if the driver has its splits.
            epoch: The epoch.

        Raises:
            VolleyError: If it failed; what is known not to have landed is deleted again.
        """
        due, count = self._due(epoch), len(self.committers)
        skipped = not any(due[:count])
        results: list[list[WriteResult]] = [[] for _ in self._all]
        if skipped:
            reach("in-recovery", epoch.number)
            if self.plan.stateful:
                evaluate(frame)
        else:
            reach("before-files", epoch.number)
            self.log.make_durable(epoch.number)
            self._write_and_commit(frame, epoch, due, results)
            reach("before-checkpoint", epoch.number)
        sinks = [[*written, *tasks.take()] for written, tasks in zip(results, self.executor_tasks, strict=False)]
        return EpochResult(epoch, sinks, results[count:], skipped, self._orphans(epoch, results))

    @cached_property
    def _all(self) -> tuple[Committer, ...]:
        """In the order of what a task returns: the sinks, then the targets of dead letters."""
        return (*self.committers, *self.targets.committers)

    @cached_property
    def _committer_metrics(self) -> tuple[Metrics, ...]:
        """Of each of them."""
        return (*(tasks.metrics for tasks in self.executor_tasks), *self.targets.counters)

    def _due(self, epoch: Epoch) -> list[bool]:
        """For each of them whether it still lacks the epoch."""
        return [self._lacks(committer, epoch) for committer in self._all]

    def _lacks(self, committer: Committer, epoch: Epoch) -> bool:
        last = committer.last_epoch(epoch.query_id)
        self.landed.check(committer, last)
        if last is None or last < epoch.number:
            return True
        landed = committer.landed_offsets(epoch)
        if landed == epoch.offsets or (landed is None and last == epoch.number):
            return False
        raise StorageError(
            f"epoch {epoch.number} is in {committer} already, but not known to have the rows that the checkpoint has "
            f"planned for it (the last epoch there is {last}): the checkpoint is an old copy, or has lost entries",
            hint='restore its newest copy; or start over: fresh=True, with into="replace" to empty the target first',
        )

    def _write_and_commit(
        self, frame: DataFrame, epoch: Epoch, due: list[bool], landed: list[list[WriteResult]]
    ) -> None:
        """Write and commit, anew if a target has got another layout meanwhile; `landed` gets what each one took."""
        for left in reversed(range(_WRITES)):
            results = self._write(frame, epoch, due)
            reach("after-files", epoch.number)
            try:
                self._commit_all(epoch, results, due, landed)
                return
            except LayoutChangedError as error:
                if not left:
                    raise
                _log.warning("%s: epoch %d is written anew: %s", self.job, epoch.number, error.message)
            for tasks in self.executor_tasks:
                tasks.take()  # what they wrote is deleted again
            # Those that were committed before it have the epoch by now, the dead letters too.
            due = self._due(epoch)

    def _write(self, frame: DataFrame, epoch: Epoch, all_due: Sequence[bool]) -> list[list[WriteResult]]:
        due, letters_due = all_due[: len(self.committers)], all_due[len(self.committers) :]
        writers = tuple(
            committer.writer(epoch) if is_due else None for committer, is_due in zip(self.committers, due, strict=True)
        )
        letters = self.targets.letters(self.job, epoch, letters_due)
        task = Task(epoch.number, self.plan.tasks, writers, letters, self.counters.task_counts)
        if self.splits is None:
            tasks = run_rows(frame, task)
        else:
            splits = [InputSplit(reader, split) for reader, split in self.splits(epoch.number)]
            tasks = run_splits(frame.sparkSession, task, splits)
        return [[task[index] for task in tasks] for index in range(len(self._all))]

    def _commit_all(
        self,
        epoch: Epoch,
        results: Sequence[list[WriteResult]],
        due: Sequence[bool],
        landed: list[list[WriteResult]],
    ) -> None:
        # The letters first: a row that is in no sink is never in no dead letter either.
        count = len(self.committers)
        order = [*range(count, len(self._all)), *range(count)]
        for position, index in enumerate(order):
            if index == 0:
                reach("between-commits", epoch.number)
            if not due[index]:
                continue
            try:
                self._commit(index, epoch, results[index])
            except Exception:
                for later in order[position + 1 :]:
                    if due[later]:
                        self._all[later].abort(epoch, results[later])
                raise
            landed[index] = results[index]
            if index >= count:
                self._tell(index, epoch, sum(result.rows for result in results[index]))

    def _tell(self, index: int, epoch: Epoch, rows: int) -> None:
        if rows:
            self._committer_metrics[index].record_failed(rows)
            sink = self.targets.sinks[index - len(self.committers)]
            _log.warning("%s: %s bad rows of epoch %d are in %r", self.job, f"{rows:,}", epoch.number, sink)

    def _commit(self, index: int, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        committer, metrics, began = self._all[index], self._committer_metrics[index], time.monotonic()
        try:
            committer.commit(epoch, results)
        except LayoutChangedError:
            # Its rows are counted when they have been written anew.
            committer.abort(epoch, results)
            raise
        except Exception as error:
            self._count(index, results)
            metrics.record_commit(time.monotonic() - began, succeeded=False)
            metrics.record_failed(sum(result.rows for result in results))
            if isinstance(error, VolleyError) and not isinstance(error, CommitStateUnknownError):
                committer.abort(epoch, results)
            raise
        self._count(index, results)
        if any(result.rows for result in results):
            metrics.record_commit(time.monotonic() - began, succeeded=True)

    def _count(self, index: int, results: Sequence[WriteResult]) -> None:
        # Dead letters are counted as failed rows, by `_tell`.
        for result in results if index < len(self.committers) else ():
            self._committer_metrics[index].record_write(result)

    def _orphans(self, epoch: Epoch, results: Sequence[Sequence[WriteResult]]) -> list[str]:
        """A look costs a listing: it is taken where a driver or a task has died, or a copy may have been killed."""
        retried = any(result.attempt for each in results for result in each)
        if not retried and not self.speculative and epoch.number != self.unfinished:
            return []
        found: list[str] = []
        for committer in self._all:
            # The epoch is committed: that a folder can't be listed is no reason to stop.
            try:
                found += committer.orphans(epoch)
            except VolleyError as error:
                _log.warning("%s: what dead attempts left can't be looked for: %s", self.job, error.message)
        if found:
            _log.warning("%s: attempts of epoch %d that died left %d files", self.job, epoch.number, len(found))
        return found

"""Runs one epoch: find the sinks that lack it, write, commit, look for orphaned files."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from volley.columns.expectations import Outcome
from volley.columns.letters import LEFT, REPLAYED
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.reports import DeadLetter
from volley.contracts.rows import Tallies
from volley.contracts.sink import Committer
from volley.contracts.source import Split
from volley.engine.commits import Commits
from volley.engine.history import Notes
from volley.engine.joins import JoinedTables
from volley.engine.levels import Levels
from volley.engine.options import JobContext
from volley.engine.progress import Phases
from volley.engine.records import Landed, RunStart
from volley.engine.sinks import DeadLetterSinks, OpenSink, writers_of
from volley.errors import (
    ExpectationError,
    LayoutChangedError,
    PlanError,
    SchemaChangedError,
    VolleyError,
)
from volley.metrics.metrics import LAST_LETTERS
from volley.plan.nodes import Expect
from volley.spark.compile import CompiledPlan
from volley.spark.log import PlannedEpochs, SparkLog
from volley.spark.run import EpochCounters, evaluate, run_merges, run_sources
from volley.spark.session import runs_once_locally
from volley.task.failpoints import LEARNED_POINT, reach
from volley.task.joined_rows import begin_epoch
from volley.task.task import InputSplit, Task, of_sources, run_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EpochResult", "Epochs"]

_log = logging.getLogger(__name__)
_ATTEMPTS = 4
_SHOWN = 8
# In bytes. The driver reads and writes them in some 10 ms, as long as Spark takes for a job without any.
_SMALL = 1 << 20


@dataclass(frozen=True)
class EpochResult:
    """An epoch that is visible in every sink.

    Args:
        sinks: Per sink of the job, what each task wrote.
        letters: Per dead-letter sink, what each task wrote.
        skipped: True if every sink had the epoch already.
        orphans: Files that dead attempts of this epoch left behind, if there was a reason to look for them.
        tallies: What the tasks have counted of their rows.
        last_letters: The last rows that went to dead letters.
    """

    epoch: Epoch
    sinks: Sequence[Sequence[WriteResult]]
    letters: Sequence[Sequence[WriteResult]]
    skipped: bool
    orphans: Sequence[str]
    tallies: Tallies
    last_letters: Sequence[DeadLetter] = ()


@dataclass(frozen=True)
class Epochs:
    """Runs the epochs of one job.

    Args:
        query_id: The id of the query, in the checkpoint.
        planned: Has the splits of each epoch.
        counters: The counts of the running epoch.
        landed: The last known epoch of each target.
        unfinished: The epoch in which an earlier run died, if any.
        speculative: True if Spark may run copies of a task, and kill the slower ones.
        levels: Runs the levels of a job with keyed steps; None without any.
        run_start: Records the first epoch of a bounded run; None = no sink asks for it.
        phases: Has the times of the running epoch.
    """

    job: JobContext
    query_id: str
    plan: CompiledPlan
    planned: PlannedEpochs
    sinks: tuple[OpenSink, ...]
    letters: DeadLetterSinks
    counters: EpochCounters
    landed: Landed
    tables: JoinedTables
    unfinished: int | None
    speculative: bool
    levels: Levels | None = None
    run_start: RunStart | None = None
    phases: Phases = field(default_factory=Phases)
    _tallies: Counter[str] = field(default_factory=Counter)
    _last_letters: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=LAST_LETTERS))

    @property
    def log(self) -> SparkLog:
        """Spark's log of the query."""
        return self.job.checkpoint.log

    @cached_property
    def first(self) -> int | None:
        """The first epoch of the run; None if no sink asks for it, or the run is not bounded."""
        return None if self.run_start is None else self.run_start.begin()

    def end_run(self) -> None:
        """Record that a bounded run has ended.

        Raises:
            StorageError: If the checkpoint can't be written.
        """
        if self.run_start is not None and self.first is not None:
            self.run_start.end(self.first)

    @cached_property
    def notes(self) -> Notes:
        """What its tasks have noted while they read."""
        return Notes(self.job.name, self.plan.notes, self.job.metrics.record_lost)

    def epoch(self, number: int) -> Epoch:
        """Return the epoch of this number, with the digest of its offsets in Spark's log."""
        return Epoch(self.query_id, number, self.log.digest(number), self.first)

    def backfill(self, epoch: Epoch, new: Sequence[bool]) -> None:
        """Write and commit an epoch to new sinks only, and to their dead letters, if these are new, too.

        Args:
            new: Per sink, whether it is new.

        Raises:
            PlanError: If a new sink, or its dead letter, has earlier epochs of this query.
            VolleyError: If it failed; the next start retries.
        """
        due = [is_new and self._is_empty(sink.committer, epoch) for sink, is_new in zip(self.sinks, new, strict=True)]
        routes = {route for route, is_due in zip(self.letters.routes, due, strict=True) if is_due and route is not None}
        letters_due = [
            number in routes and self._is_empty(sink.committer, epoch) for number, sink in enumerate(self.letters.sinks)
        ]
        if any(due):
            splits = self.planned.splits_up_to(epoch.number)
            self._write_and_commit(None, epoch, splits, [*due, *letters_due], self._no_results())

    def remember(self) -> None:
        """Record the last epoch of each target in the checkpoint, for the next run to check."""
        try:
            self.landed.remember([sink.committer for sink in self.all_sinks], self.query_id)
        except Exception as error:
            # Not a failure of the run: the next one checks against the older record.
            _log.warning("%s: the last epochs of its targets were not recorded: %s", self.job.name, error)

    @staticmethod
    def _is_empty(committer: Committer, epoch: Epoch) -> bool:
        """Return True if a target has no epoch of the query; False if a backfill that died has filled it already."""
        last = committer.last_epoch(epoch.query_id)
        if last is not None and last < epoch.number:
            raise PlanError(
                f"{committer} has epochs of this job up to {last} already: a backfill up to epoch {epoch.number} would "
                "double their rows",
                hint="write to another table, or start over with fresh=True",
            )
        return last is None

    def run(self, frame: DataFrame | None, epoch: Epoch) -> EpochResult:
        """Write and commit an epoch to the sinks that lack it.

        Args:
            frame: The epoch's rows of the sources that Spark reads; None = it reads none.

        Raises:
            VolleyError: If it failed; files that are known not to have landed are deleted.
        """
        self._drop_results()
        self._count(())
        with self.phases("plan"):
            due, count = self._due(epoch), len(self.sinks)
        skipped = not any(due[:count])
        results = self._no_results()
        if skipped:
            reach("in-recovery", epoch.number)
            if self.levels is not None:
                self.levels.skip(epoch.number)
            if frame is not None:
                evaluate(frame)
        else:
            reach("before-files", epoch.number)
            with self.phases("plan"):
                self.log.make_durable(epoch.number)
                self.tables.pin(epoch.number)
                splits = self.planned.splits(epoch.number)
            self._write_and_commit(frame, epoch, splits, due, results)
            if self.levels is not None:
                self.levels.record()
            self._log_left()
            reach("before-checkpoint", epoch.number)
        sinks = [[*written, *sink.taken()] for written, sink in zip(results, self.sinks, strict=False)]
        orphans, letters = self._orphans(epoch, results), tuple(self._last_letters)
        return EpochResult(epoch, sinks, results[count:], skipped, orphans, dict(self._tallies), letters)

    def _no_results(self) -> list[list[WriteResult]]:
        return [[] for _ in self.all_sinks]

    @cached_property
    def committers(self) -> list[Committer]:
        """The committers of the job's sinks."""
        return [sink.committer for sink in self.sinks]

    @cached_property
    def all_sinks(self) -> tuple[OpenSink, ...]:
        """The job's sinks, then those of dead letters, as a task's results come."""
        return (*self.sinks, *self.letters.sinks)

    @cached_property
    def _commits(self) -> Commits:
        return Commits(self.job.name, self.sinks, self.letters.sinks)

    def _due(self, epoch: Epoch) -> list[bool]:
        """Return per sink, and dead letter, whether its target lacks the epoch."""
        return [self._needs_epoch(sink.committer, epoch) for sink in self.all_sinks]

    def _needs_epoch(self, committer: Committer, epoch: Epoch) -> bool:
        last = committer.last_epoch(epoch.query_id)
        self.landed.check(committer, last)
        return committer.lacks(epoch, last)

    def _write_and_commit(
        self,
        frame: DataFrame | None,
        epoch: Epoch,
        splits: Sequence[tuple[int, Split]],
        due: list[bool],
        landed: list[list[WriteResult]],
    ) -> None:
        """Write and commit; again if a target's layout has changed. Fills `landed` with the committed results."""
        for attempt in range(1, _ATTEMPTS + 1):
            results = self._write(frame, epoch, splits, due)
            self._check_expectations(epoch, results)
            reach("after-files", epoch.number)
            try:
                with self.phases("commit"):
                    self._commits.commit(epoch, results, due, landed, replayed=self._tallies[REPLAYED])
                return
            except LayoutChangedError as error:
                if attempt == _ATTEMPTS:
                    raise
                _log.warning("%s: epoch %d is written again: %s", self.job.name, epoch.number, error.message)
            self._drop_results()
            # Targets that were committed before the failing one have the epoch now.
            due = self._due(epoch)

    def _drop_results(self) -> None:
        """Drop what executor tasks of an attempt that failed have counted: their files are deleted."""
        for sink in self.sinks:
            sink.taken()

    def _write(
        self, frame: DataFrame | None, epoch: Epoch, splits: Sequence[tuple[int, Split]], all_due: Sequence[bool]
    ) -> list[list[WriteResult]]:
        due, letters_due = all_due[: len(self.sinks)], all_due[len(self.sinks) :]
        writers = writers_of(self.sinks, due, epoch)
        behind = [] if self.levels is None else self.levels.behind_inputs
        letters = self.letters.letters(self.job.name, epoch, letters_due, behind)
        now = self.log.clock(epoch.number)
        task = Task(epoch.number, self.plan.tasks, writers, letters, self.counters.task_counts, now=now)
        if self.levels is not None:
            task = self.levels.task(task, due)
        inputs = [InputSplit(reader, split) for reader, split in splits]
        reading = replace(task, writers=task.plan.reached(task.writers))
        context = self.plan.context
        if self.tables:
            begin_epoch(context, epoch.number)
        with self.phases("read"):
            if frame is None and self._suits_driver(reading, inputs):
                results = of_sources([split.reader for split in inputs], run_here(reading, inputs))
            else:
                results = run_sources(context, reading, inputs, frame)
        tasks = [result for _, result in results]
        self.notes.record(tasks)
        self._learn(epoch, tasks)
        if self.levels is not None:
            with self.phases("merge"):
                tasks = self.levels.run(partial(run_merges, context), task, results)
        self._count(tasks)
        return [[task[index] for task in tasks] for index in range(len(self.all_sinks))]

    def _learn(self, epoch: Epoch, tasks: Sequence[Sequence[WriteResult]]) -> None:
        """Raise SchemaChangedError if rows have columns that their source lacks: it keeps them, to be opened anew."""
        seen = [columns for results in tasks for result in results for columns in result.seen]
        if not seen:
            return
        for number, sink in enumerate(self.all_sinks):
            sink.committer.abort(epoch, [task[number] for task in tasks if number < len(task)])
        reach("before-learned", epoch.number)
        for reader in self.plan.readers:
            if reader is not None and reader.learns:
                reader.learn(seen)
        reach(LEARNED_POINT, epoch.number)
        names = sorted({each.column for columns in seen for each in columns.seen})
        raise SchemaChangedError(f"rows of epoch {epoch.number} have columns that were not there: {names[:_SHOWN]}")

    def _count(self, tasks: Sequence[Sequence[WriteResult]]) -> None:
        """Sum up what the tasks of this attempt have counted; what one before has counted does not count."""
        self._tallies.clear()
        self._last_letters.clear()
        for results in tasks:
            for result in results:
                self._tallies.update(result.tallies)
                self._last_letters.extend(result.letters)

    def _check_expectations(self, epoch: Epoch, results: Sequence[Sequence[WriteResult]]) -> None:
        """Raise ExpectationError if more rows fail an expectation than may; the epoch's files are deleted then."""
        for expected in self.job.graph.expectations.values():
            outcome = Outcome.of(expected.name, self._tallies)
            if outcome.exceeds(expected.limit):
                for sink, written in zip(self.all_sinks, results, strict=True):
                    sink.committer.abort(epoch, written)
                raise self._unmet(epoch, expected, outcome)

    def _unmet(self, epoch: Epoch, expected: Expect, outcome: Outcome) -> ExpectationError:
        row = self.notes.unmet(expected.name)
        return ExpectationError(
            f"{outcome.failed:,} of {outcome.rows:,} rows of epoch {epoch.number} do not meet {expected.name!r} "
            f"({expected.predicate!r}); at most {expected.limit:g} may" + (f". One of them is {row}" if row else ""),
            hint="nothing of the epoch was committed: mend the rows at their source, or change the expectation",
        )

    def _suits_driver(self, task: Task, splits: Sequence[InputSplit]) -> bool:
        """Return True if the rows are so few that a Spark job would cost more than the work in its tasks."""
        letters = task.letters.writers if task.letters else ()
        if not runs_once_locally(self.plan.context) or not task.plan.suits_driver((*task.writers, *letters)):
            return False
        readers = [reader for reader in self.plan.readers if reader is not None]
        sizes = [readers[split.reader].size(split.split) for split in splits]
        return None not in sizes and sum(filter(None, sizes)) <= _SMALL

    def _log_left(self) -> None:
        if left := self._tallies[LEFT]:
            text = "%s: %s dead letters can't be read again, and stay as they are: see their format and sinks"
            _log.warning(text, self.job.name, f"{left:,}")

    def _orphans(self, epoch: Epoch, results: Sequence[Sequence[WriteResult]]) -> list[str]:
        """Listing is expensive: do it only after a retried task, with speculation, or in the epoch that crashed."""
        retried = any(result.attempt for tasks in results for result in tasks)
        if not retried and not self.speculative and epoch.number != self.unfinished:
            return []
        files: list[str] = []
        for sink in self.all_sinks:
            # The epoch is committed: don't fail because a folder can't be listed.
            try:
                files += sink.committer.orphans(epoch)
            except VolleyError as error:
                _log.warning("%s: can't look for orphaned files: %s", self.job.name, error.message)
        if files:
            _log.warning("%s: dead attempts of epoch %d left %d files", self.job.name, epoch.number, len(files))
        return files

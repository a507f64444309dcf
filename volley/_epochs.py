"""What a job does in each epoch: ask the sinks, let the tasks write, commit, look for what died on the way."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from volley._dead_letters import Targets
from volley._failpoints import reach
from volley._spark import Program, Task, run_task
from volley.errors import CommitStateUnknownError, VolleyError
from volley.metrics import Metrics
from volley.sink import Committer, Epoch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Done", "Epochs"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Done:
    """An epoch that is visible in every sink.

    Args:
        epoch: The epoch.
        sinks: For each sink of the stream, what each task wrote to it.
        letters: For each dead-letter target, what each task wrote to it.
        skipped: True if all of it was there already.
        orphans: Files that attempts of this epoch have left behind; empty unless there was a reason to look.
    """

    epoch: Epoch
    sinks: Sequence[Sequence[WriteResult]]
    letters: Sequence[Sequence[WriteResult]]
    skipped: bool
    orphans: Sequence[str]


@dataclass(frozen=True)
class Epochs:
    """Runs the epochs of one job.

    Args:
        job: The job's name.
        program: What the tasks do.
        committers: One for each sink of the stream.
        targets: Where bad rows go.
        metrics: Where to count.
        unfinished: The epoch in which an earlier run died, if any.
        speculative: True if Spark may run copies of a task, and kill those that lose.
    """

    job: str
    program: Program
    committers: Sequence[Committer]
    targets: Targets
    metrics: Metrics
    unfinished: int | None
    speculative: bool

    def run(self, frame: DataFrame, epoch: Epoch) -> Done:
        """Write and commit what is missing of one epoch.

        Args:
            frame: The epoch's rows, or its splits.
            epoch: The epoch.

        Raises:
            VolleyError: If it failed; what is known not to have landed is deleted again.
        """
        due = [_lacks(committer, epoch) for committer in self.committers]
        skipped = not any(due)
        results: list[list[WriteResult]] = [[] for _ in self._all]
        if skipped:
            reach("in-recovery", epoch.number)
        else:
            letters_due = [_lacks(committer, epoch) for committer in self.targets.committers]
            reach("before-files", epoch.number)
            results = self._write(frame, epoch, due, letters_due)
            reach("after-files", epoch.number)
            self._commit_all(epoch, results, [*due, *letters_due])
            reach("before-checkpoint", epoch.number)
        sinks, letters = results[: len(due)], results[len(due) :]
        return Done(epoch, sinks, letters, skipped, self._orphans(epoch, results))

    @cached_property
    def _all(self) -> tuple[Committer, ...]:
        """In the order of what a task returns: the sinks, then the targets of dead letters."""
        return (*self.committers, *self.targets.committers)

    def _write(
        self, frame: DataFrame, epoch: Epoch, due: Sequence[bool], letters_due: Sequence[bool]
    ) -> list[list[WriteResult]]:
        writers = tuple(
            # A sink that has the epoch already still tells which rows were not fit for it.
            committer.writer(epoch) if is_due or route is not None else None
            for committer, is_due, route in zip(self.committers, due, self.targets.routes, strict=True)
        )
        letters = self.targets.letters(self.job, epoch, due, letters_due)
        tasks = run_task(frame, Task(epoch.number, self.program.source, self.program.segments, writers, letters))
        results = [[task[index] for task in tasks] for index in range(len(self._all))]
        for result in (each for sink in results[: len(writers)] for each in sink):
            self.metrics.record_write(result)
        return results

    def _commit_all(self, epoch: Epoch, results: Sequence[Sequence[WriteResult]], due: Sequence[bool]) -> None:
        # The letters first: a row that is in no sink is never in no dead letter either.
        count = len(self.committers)
        order = [*range(count, len(self._all)), *range(count)]
        for position, index in enumerate(order):
            if index == 0:
                reach("between-commits", epoch.number)
            if not due[index]:
                continue
            try:
                self._commit(self._all[index], epoch, results[index])
            except Exception:
                for later in order[position + 1 :]:
                    if due[later]:
                        self._all[later].abort(epoch, results[later])
                raise
            if index >= count:
                self._tell(index - count, epoch, sum(result.rows for result in results[index]))

    def _tell(self, target: int, epoch: Epoch, rows: int) -> None:
        if rows:
            self.metrics.record_failed(rows)
            sink = self.targets.sinks[target]
            _log.warning("%s: %s bad rows of epoch %d are in %r", self.job, f"{rows:,}", epoch.number, sink)

    def _commit(self, committer: Committer, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        began = time.monotonic()
        try:
            committer.commit(epoch, results)
        except Exception as error:
            self.metrics.record_commit(time.monotonic() - began, succeeded=False)
            self.metrics.record_failed(sum(result.rows for result in results))
            if isinstance(error, VolleyError) and not isinstance(error, CommitStateUnknownError):
                committer.abort(epoch, results)
            raise
        if any(result.rows for result in results):
            self.metrics.record_commit(time.monotonic() - began, succeeded=True)

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


def _lacks(committer: Committer, epoch: Epoch) -> bool:
    last = committer.last_epoch(epoch.query_id)
    return last is None or last < epoch.number

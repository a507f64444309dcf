"""The work of a Spark task: read splits or take the batches of a frame of Spark, run the steps, feed the writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol

import pyarrow as pa

from volley.columns.clock import epoch_of
from volley.columns.letters import shown
from volley.contracts.epoch import WriteResult
from volley.contracts.rows import BadRow, has_seen, numbered, taken_letters, taken_notes, taken_seen, taken_tallies
from volley.contracts.sink import TaskWriter, Writer
from volley.contracts.source import Split, SplitReader
from volley.errors import VolleyError
from volley.task.counts import Counted
from volley.task.failpoints import reach
from volley.task.replay import ReplaySorter
from volley.task.sorter import DeadLetters, Sorter, gathered, with_bad_row
from volley.task.tree import DATA_ERRORS, SinkStep, Tree
from volley.task.worker import peak_memory, task_and_attempt, task_context

__all__ = ["InputSplit", "Record", "Task", "TaskPlan", "TaskResults", "of_sources", "run_here"]


@dataclass(frozen=True)
class TaskPlan:
    """What the tasks of a job do in every epoch; pickled to the executors.

    Args:
        readers: Read the splits.
        trees: The steps and sinks of the rows: one tree per reader, then one per frame that Spark reads.
        sinks: The last step before each sink.
        of_sources: True if the readers are those of the job's sources, False if they read what tasks have written.
        nodes: The number of nodes in the job's graph whose rows are counted.
    """

    readers: tuple[SplitReader, ...]
    trees: tuple[Tree, ...]
    sinks: tuple[SinkStep, ...]
    of_sources: bool = True
    nodes: int = 0

    @property
    def exchanges(self) -> int:
        """The number of tasks that write the rows which those that read divide; 0 = each writes its own."""
        return max((step.exchange.tasks for step in self.sinks if step.exchange), default=0)

    def reached(
        self, writers: Sequence[Writer | None], trees: Iterable[int] | None = None
    ) -> tuple[Writer | None, ...]:
        """Return the writers of the sinks that rows can get to, and None for the others.

        Args:
            trees: The numbers of the trees that the rows are of; None = all.
        """
        rows = self.trees if trees is None else [self.trees[number] for number in trees]
        sinks = {sink for tree in rows for sink in tree.sinks}
        return tuple(writer if sink in sinks else None for sink, writer in enumerate(writers))

    def suits_driver(self, writers: Iterable[Writer | None]) -> bool:
        """Return True if the driver may run a task over a few rows."""
        is_plain = all(tree.is_plain for tree in self.trees) and not self.exchanges
        return is_plain and all(writer is None or writer.suits_driver for writer in writers)

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows for each tree in a batch from Spark, with the tree's index.

        With several frames, a batch has a struct column per frame: a row's values are in one, the others are null.
        """
        first = len(self.readers)
        if len(self.trees) == first + 1:
            yield first, batch
            return
        for number, part in enumerate(batch.columns, start=first):
            rows = part.filter(part.is_valid())
            if len(rows):
                yield number, pa.RecordBatch.from_struct_array(rows)


Record = tuple[int, bytes | tuple[WriteResult, ...]]
"""What one task has for another: a sink's number and rows as an Arrow stream, or a task's own number and results."""


@dataclass(frozen=True)
class InputSplit:
    """A split, and the index of its reader."""

    reader: int
    split: Split


TaskResults = list[tuple[int | None, tuple[WriteResult, ...]]]
"""Per task, the number of the source of its rows, and a result for each sink, then for each input of each keyed step,
then for each dead letter. The sources that Spark reads have one number, behind the others, and keyed steps those behind
that; None = the task only writes what others have read."""


def of_sources(sources: Sequence[int], results: Sequence[tuple[WriteResult, ...]]) -> TaskResults:
    """Return the results of tasks with the sources of those that read, which come first."""
    return list(zip_longest(sources, results))


class Counts(Protocol):
    """Counts what tasks have written while others still run."""

    def add(self, results: Sequence[WriteResult], counted: Counted) -> None:
        """Count the results of one task: one per sink, then one per dead letter; and what it has counted itself."""


@dataclass(frozen=True)
class Task:
    """The tasks of one epoch: each reads splits or takes batches, runs the steps, feeds the writers, returns results.

    Args:
        plan: The readers, steps and sinks.
        writers: One per sink; None = the sink has the epoch already.
        letters: The destinations of bad rows; None = a bad row fails the job. Their results follow the sinks'.
        counts: Counts what a task wrote while the epoch still runs.
        first: The number of the first task, for file names: the tasks of an earlier stage have those below.
        now: The epoch's processing time, in microseconds since 1970.
    """

    epoch: int
    plan: TaskPlan
    writers: tuple[Writer | None, ...]
    letters: DeadLetters | None = None
    counts: Counts | None = None
    first: int = 0
    now: int = 0

    def __call__(self, inputs: Iterable[Any]) -> Iterator[tuple[WriteResult, ...]]:
        """Run one task.

        Args:
            inputs: The task's splits, as InputSplits, or its batches from Spark.

        Yields:
            One tuple: the task's results.
        """
        yield self._written(self._opened(), lambda writers: self._run(inputs, writers))

    def divide(self, inputs: Iterable[Any]) -> Iterator[tuple[int, Record]]:
        """Run one task whose rows for some sinks other tasks write.

        Yields:
            Records, each with the number of the task that takes it.
        """
        number, _ = task_and_attempt()
        for results in self(inputs):
            own = list(results)
            for sink, step in enumerate(self.plan.sinks):
                if step.exchange:
                    yield from ((to, (sink, data)) for rows in results[sink].committables for to, data in rows)
                    told = results[sink]
                    own[sink] = WriteResult(
                        notes=told.notes, tallies=told.tallies, letters=told.letters, seen=told.seen
                    )
            yield 0, (number, tuple(own))

    def take(self, records: Iterable[Record]) -> Iterator[tuple[tuple[int, int], tuple[WriteResult, ...]]]:
        """Run one task that writes rows which others have divided.

        Yields:
            The results of tasks, those that divide before those that take, each with what to sort it by.
        """
        dividers: list[tuple[int, tuple[WriteResult, ...]]] = []

        def write(writers: Sequence[TaskWriter | None]) -> Counted:
            for number, content in records:
                if not isinstance(content, bytes):
                    dividers.append((number, content))
                elif writer := writers[number]:
                    for batch in pa.ipc.open_stream(content):
                        self.plan.sinks[number].write(batch, writer)
            return Counted.none(self.plan.nodes)

        results = self._written(self._opened(takes=True), write)
        yield from (((0, number), result) for number, result in dividers)
        yield (1, task_and_attempt()[0]), results

    def _opened(self, takes: bool = False) -> list[TaskWriter | None]:
        """Return the task's writers: one per sink, then one per dead letter.

        Args:
            takes: True for a task that writes rows which others have divided.
        """
        number = self.first + task_and_attempt()[0]
        targets = self.letters.writers if self.letters else ()
        return [
            *(
                step.open(writer, number, takes) if writer and (step.exchange or not takes) else None
                for step, writer in zip(self.plan.sinks, self.writers, strict=True)
            ),
            *(writer.open(number) if writer and not takes else None for writer in targets),
        ]

    def _written(
        self, writers: Sequence[TaskWriter | None], write: Callable[[Sequence[TaskWriter | None]], Counted]
    ) -> tuple[WriteResult, ...]:
        """Write rows, close the writers and return the results; abort all if anything fails.

        Args:
            write: Feeds them; returns the rows that it has counted.
        """
        attempt, is_spark_task = task_and_attempt()[1], task_context() is not None
        # Those of an attempt that failed.
        taken_notes(), taken_tallies(), taken_letters(), taken_seen()
        try:
            with epoch_of(self.now):
                counted = write(writers)
                self._reach("in-task", attempt, is_spark_task)
                closed = [writer.close() if writer else None for writer in writers]
            memory = peak_memory() if is_spark_task else 0
            first, *others = (
                replace(result, attempt=attempt, worker_memory=memory) if result else WriteResult() for result in closed
            )
            letters = tuple(map(shown, taken_letters()))
            told = replace(first, notes=taken_notes(), tallies=taken_tallies(), letters=letters, seen=taken_seen())
            results = told, *others
            self._reach("after-task", attempt, is_spark_task)
            if self.counts:
                self.counts.add(results, counted)
        except BaseException:
            for writer in writers:
                if writer:
                    writer.abort()
            raise
        return results

    def _reach(self, point: str, attempt: int, is_spark_task: bool) -> None:
        if (is_spark_task or self.plan.of_sources) and attempt == 0:
            reach(point, self.epoch)

    def _run(self, inputs: Iterable[Any], writers: Sequence[TaskWriter | None]) -> Counted:
        """Feed the writers, and the dead letters with bad rows; return the rows read and passed on."""
        read, counted = [0] * len(self.plan.trees), Counted.none(self.plan.nodes)
        sorters = [self._sorter(tree, writers, counted) for tree in self.plan.trees]
        for item in inputs:
            if not isinstance(item, InputSplit):
                self._take_batch(item, writers, sorters, read, counted)
            elif sorter := sorters[item.reader]:
                read[item.reader] += self._sort(item, sorter)
            else:
                read[item.reader] += self._read(item, writers, counted)
        for sorter in filter(None, sorters):
            sorter.finish()
        for tree, rows in zip(self.plan.trees, read, strict=True):
            if tree.number is not None:
                counted.rows[tree.number] += rows
        counted.read = read if self.plan.of_sources else ()
        return counted

    def _sorter(self, tree: Tree, writers: Sequence[TaskWriter | None], counted: Counted) -> Sorter | None:
        """Return what sorts out the bad rows of a tree; None if these have no dead letter."""
        if not self.letters or not self.letters.takes(tree):
            return None
        sinks, kind = len(self.plan.sinks), ReplaySorter if self.letters.replays else Sorter
        return kind(self.letters, tree, self.plan.sinks, writers[:sinks], writers[sinks:], counted)

    def _take_batch(
        self,
        batch: pa.RecordBatch,
        writers: Sequence[TaskWriter | None],
        sorters: Sequence[Sorter | None],
        read: list[int],
        counted: Counted,
    ) -> None:
        """Feed the rows of a batch from Spark, and count them."""
        for number, rows in self.plan.parts(batch):
            if sorter := sorters[number]:
                # Of all frames together, so that no two rows of a task have one position.
                for positioned in numbered(iter([rows]), f"task {task_and_attempt()[0]}", sum(read)):
                    sorter.write(positioned)
            else:
                self._feed(number, rows, writers, lambda row: None, counted)
            read[number] += rows.num_rows

    def _sort(self, split: InputSplit, sorter: Sorter) -> int:
        """Feed the rows of a split, and its bad rows to the dead letters; return their number."""
        count = 0
        for rows in gathered(self.plan.readers[split.reader].read_tolerant(split.split)):
            if has_seen():
                # The epoch is read again, with more columns: what is left of the split only tells which.
                continue
            sorter.write(rows)
            count += 1 if isinstance(rows, BadRow) else rows.batch.num_rows
        return count

    def _read(self, split: InputSplit, writers: Sequence[TaskWriter | None], counted: Counted) -> int:
        """Feed the rows of a split; return their number."""
        before, reached = 0, [writer for sink in self.plan.trees[split.reader].sinks if (writer := writers[sink])]
        for batch in self.plan.readers[split.reader].read(split.split):
            if has_seen():
                continue
            self._feed(split.reader, batch, writers, partial(self._position, split, before), counted)
            before += batch.num_rows
            if reached and all(writer.is_full for writer in reached):
                break
        return before

    def _feed(
        self,
        number: int,
        batch: pa.RecordBatch,
        writers: Sequence[TaskWriter | None],
        position: Callable[[int], str | None],
        counted: Counted,
    ) -> None:
        tree = self.plan.trees[number]
        try:
            for sink, rows in tree.outputs(batch, counted):
                if writer := writers[sink]:
                    self.plan.sinks[sink].write(rows, writer)
        except DATA_ERRORS as error:
            raise with_bad_row(error, batch, tree, writers, position) from error

    def _position(self, split: InputSplit, before: int, row: int) -> str | None:
        """Return a row's position in the source by reading its split again; None = unknown."""
        number = before + row
        with suppress(VolleyError):
            for rows in self.plan.readers[split.reader].read_tolerant(split.split):
                if isinstance(rows, BadRow):
                    continue
                if number < rows.batch.num_rows:
                    return rows.position(number)
                number -= rows.batch.num_rows
        return None


def run_here(task: Task, splits: Sequence[InputSplit]) -> list[tuple[WriteResult, ...]]:
    """Run one task per split in this process, one after the other; return their results."""
    tasks = (replace(task, first=task.first + number) for number in range(len(splits)))
    return [results for split, own in zip(splits, tasks, strict=True) for results in own([split])]

"""The work of Spark tasks: read or take batches, run the steps, feed the writers; and the chores between commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark import TaskContext

from volley.bad_rows import BadRow
from volley.epoch import WriteResult
from volley.errors import VolleyError
from volley.sink import TaskWriter, Writer
from volley.source import Reader, Split
from volley.task.failpoints import reach
from volley.task.memory import peak_memory
from volley.task.sorter import DeadLetters, Sorter, with_bad_row
from volley.task.tree import DATA_ERRORS, SinkStep, Tree

__all__ = ["InputSplit", "Task", "TaskPlan", "place"]


@dataclass(frozen=True)
class TaskPlan:
    """What the tasks of a job do with its rows; travels to the executors.

    Args:
        readers: Read the splits, on the Arrow-native path; empty: Spark hands over rows.
        trees: What happens to the rows, one tree a reader; without readers one for each part of a row.
        sinks: What each sink is handed.
    """

    readers: tuple[Reader, ...]
    trees: tuple[Tree, ...]
    sinks: tuple[SinkStep, ...]

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows for each tree in a batch that Spark hands over, with the tree's number.

        A row of several parts has a struct for each tree: its values stand in one, the others are null.
        """
        if len(self.trees) == 1:
            yield 0, batch
            return
        for number, part in enumerate(batch.columns):
            rows = part.filter(part.is_valid())
            if len(rows):
                yield number, pa.RecordBatch.from_struct_array(rows)


@dataclass(frozen=True)
class InputSplit:
    """A split and the number of the reader that reads it."""

    reader: int
    split: Split


class TaskCounts(Protocol):
    """Counts what tasks have written, while others still run."""

    def add(self, results: Sequence[WriteResult]) -> None:
        """Count the results of one task, one a sink; those behind them are of dead letters."""


@dataclass(frozen=True)
class Task:
    """What one Spark task does: read or take batches, run the steps, feed the writers, return the results.

    Args:
        epoch: The epoch's number.
        plan: What to do with the rows.
        writers: One for each sink; None = the sink has the epoch already.
        letters: Where bad rows go; None = the first one stops the job. Their results come behind the sinks'.
        counts: Counts what it wrote, while the epoch still runs.
    """

    epoch: int
    plan: TaskPlan
    writers: tuple[Writer | None, ...]
    letters: DeadLetters | None = None
    counts: TaskCounts | None = None

    def __call__(self, given: Iterable[Any]) -> Iterator[tuple[WriteResult, ...]]:
        """Do it.

        Args:
            given: The splits, each an InputSplit; without readers the batches.
        """
        number, attempt = place()
        targets = self.letters.writers if self.letters else ()
        writers = [writer.open(number) if writer else None for writer in (*self.writers, *targets)]
        try:
            self._run(given, writers)
            self._reach("in-task", attempt)
            closed = [writer.close() if writer else None for writer in writers]
            memory = peak_memory()
            results = tuple(
                replace(each, attempt=attempt, worker_memory=memory) if each else WriteResult() for each in closed
            )
            self._reach("after-task", attempt)
            if self.counts:
                self.counts.add(results)
        except BaseException:
            for writer in writers:
                if writer:
                    writer.abort()
            raise
        yield results

    def _reach(self, point: str, attempt: int) -> None:
        if attempt == 0:
            reach(point, self.epoch)

    def _run(self, given: Iterable[Any], writers: Sequence[TaskWriter | None]) -> None:
        if not self.plan.readers:
            for batch in given:
                for number, rows in self.plan.parts(batch):
                    self._feed(number, rows, writers, lambda row: None)
            return
        for split in given:
            if self.letters and self.letters.takes(self.plan.trees[split.reader]):
                self._sort(split, self.letters, writers)
            else:
                self._read(split, writers)

    def _sort(self, split: InputSplit, letters: DeadLetters, writers: Sequence[TaskWriter | None]) -> None:
        count = len(self.plan.sinks)
        tree = self.plan.trees[split.reader]
        sorter = Sorter(letters, tree, self.plan.sinks, writers[:count], writers[count:])
        for found in self.plan.readers[split.reader].read_tolerant(split.split):
            sorter.take(found)
        sorter.finish()

    def _read(self, split: InputSplit, writers: Sequence[TaskWriter | None]) -> None:
        before = 0
        for batch in self.plan.readers[split.reader].read(split.split):
            self._feed(split.reader, batch, writers, partial(self._position, split, before))
            before += batch.num_rows

    def _feed(
        self,
        number: int,
        batch: pa.RecordBatch,
        writers: Sequence[TaskWriter | None],
        position: Callable[[int], str | None],
    ) -> None:
        tree = self.plan.trees[number]
        try:
            for sink, rows in tree.outputs(batch):
                if writer := writers[sink]:
                    self.plan.sinks[sink].write(rows, writer)
        except DATA_ERRORS as error:
            raise with_bad_row(error, batch, tree, writers, position) from error

    def _position(self, split: InputSplit, before: int, row: int) -> str | None:
        """Where a row stands in the source, found by reading its split again; None if that is not known."""
        number = before + row
        with suppress(VolleyError):
            for found in self.plan.readers[split.reader].read_tolerant(split.split):
                if isinstance(found, BadRow):
                    continue
                if number < found.batch.num_rows:
                    return found.position(number)
                number -= found.batch.num_rows
        return None


def place() -> tuple[int, int]:
    """The number of the Spark task that this is part of, and that of its attempt; outside of Spark both are 0."""
    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)

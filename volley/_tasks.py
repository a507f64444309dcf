"""The work of Spark tasks: read or take batches, run the steps, feed the writers; and the chores between commits."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from volley import _columns
from volley._dead_letters import DeadLetters, Sorter, blamed
from volley._failpoints import CHORE_POINT, reach
from volley._spark_errors import translate
from volley._tally import Reports, Tally
from volley._tree import DATA_ERRORS, SinkStep, Tree
from volley._workers import peak_memory, settle
from volley.errors import VolleyError
from volley.sink import Chore, TaskWriter, Writer, WriteResult
from volley.source import BadRow, Reader, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["InputSplit", "Task", "TaskPlan", "evaluate", "run_chores", "run_rows", "run_splits"]

T = TypeVar("T")


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


@dataclass(frozen=True)
class Task:
    """What one Spark task does: read or take batches, run the steps, feed the writers, return the results.

    Args:
        epoch: The epoch's number.
        plan: What to do with the rows.
        writers: One for each sink; None = the sink has the epoch already.
        letters: Where bad rows go; None = the first one stops the job. Their results come behind the sinks'.
        reports: Where it tells what it wrote before the epoch is done.
    """

    epoch: int
    plan: TaskPlan
    writers: tuple[Writer | None, ...]
    letters: DeadLetters | None = None
    reports: Reports | None = None

    def __call__(self, given: Iterator[Any]) -> Iterator[tuple[WriteResult, ...]]:
        """Do it.

        Args:
            given: The splits, each an InputSplit; without readers the batches.
        """
        number, attempt = _place()
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
            if self.reports:
                self.reports.task(results)
        except BaseException:
            for writer in writers:
                if writer:
                    writer.abort()
            raise
        yield results

    def _reach(self, point: str, attempt: int) -> None:
        if attempt == 0:
            reach(point, self.epoch)

    def _run(self, given: Iterator[Any], writers: Sequence[TaskWriter | None]) -> None:
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
            raise blamed(error, batch, tree, writers, position) from error

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


def _place() -> tuple[int, int]:
    """The number of the Spark task that this is part of, and that of its attempt; outside of Spark both are 0."""
    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)


def run_splits(spark: SparkSession, task: Task, splits: Sequence[InputSplit]) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's splits, each by a Spark task of its own; one entry for each, one result a sink."""
    return _in_tasks(spark, task, splits)


def run_rows(frame: DataFrame, task: Task) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's rows; one entry a Spark task, one result a sink."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results in task(batches):
            yield pa.record_batch({"result": pa.array([pickle.dumps(results)], pa.binary())})
        settle()

    return [pickle.loads(row.result) for row in _columns.map_in_arrow(frame, work, "result binary").collect()]


def evaluate(frame: DataFrame) -> None:
    """Compute an epoch's rows and drop them, so that Spark commits the state of its stateful operators."""
    frame.write.format("noop").mode("overwrite").save()


def run_chores(spark: SparkSession, job: str, tally: Tally, chores: Sequence[Chore]) -> list[WriteResult]:
    """Have each chore done by a Spark task of its own; the results in their order.

    Args:
        spark: The session.
        job: The job's name.
        tally: Where each tells what it wrote before all are done.
        chores: What to do.

    Raises:
        VolleyError: If one fails for good.
    """

    epoch, reports, last = tally.epoch, tally.reports, len(chores) - 1

    def work(given: Iterator[Chore]) -> Iterator[WriteResult]:
        for chore in given:
            done = chore()
            if _place() == (last, 0):
                reach(CHORE_POINT, epoch)
            reports.chore(done)
            yield done

    try:
        return _in_tasks(spark, work, chores)
    except Exception as error:
        made = translate(error, job)
        raise made from made.__cause__


def _in_tasks(spark: SparkSession, work: Callable[[Iterator[Any]], Iterator[T]], items: Sequence[Any]) -> list[T]:
    """What the work yields for each item, by a Spark task of its own.

    An RDD: a DataFrame of as many rows would be analyzed, optimized and compiled anew each time, which costs more
    than the whole job, and `repartition` may put two rows into one task.
    """

    def settled(given: Iterator[Any]) -> Iterator[T]:
        yield from work(given)
        settle()

    if not items:
        return []
    done: list[T] = spark.sparkContext.parallelize(items, len(items)).mapPartitions(settled).collect()
    return done

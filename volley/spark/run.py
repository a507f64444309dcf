"""Runs the tasks of an epoch on Spark's executors, and counts what those that have finished wrote."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.metrics.figures import EpochProgress
from volley.spark.errors import translating
from volley.spark.session import runs_locally, runs_once_locally
from volley.task.counts import Counted
from volley.task.failpoints import EXECUTOR_TASK_POINT, reach
from volley.task.task import InputSplit, Record, Task, TaskResults, of_sources, run_here
from volley.task.worker import carried, settle, task_and_attempt

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

__all__ = [
    "EpochCounters",
    "TaskCounts",
    "evaluate",
    "run_beside",
    "run_merges",
    "run_sources",
    "run_splits",
    "run_tasks",
]

T = TypeVar("T")


_Counts = tuple[int, ...]
"""Tasks, files and bytes, then the rows read per source, the rows written per sink, the rows behind each node of the
job's graph, and the bad rows at each."""


def run_sources(
    context: SparkContext, task: Task, splits: Sequence[InputSplit], frame: DataFrame | None
) -> TaskResults:
    """Run one Spark task per split, and those in which Spark reads the rows of a frame.

    Rows that other tasks write go to them through Spark's shuffle.

    Args:
        frame: The rows that Spark reads in it; None = it reads no source.
    """
    sources, of_spark = [split.reader for split in splits], len(task.plan.readers)
    if frame is None:
        return of_sources(sources, run_splits(context, task, splits))
    if task.plan.exchanges:
        divided = _run_over(frame, task.divide)
        if splits:
            divided = context.union([_divided(context, task, splits), divided])
        readers = divided.getNumPartitions() - len(splits)
        return of_sources([*sources, *[of_spark] * readers], _exchanged(task, divided))
    results = of_sources(sources, run_splits(context, task, splits))
    rows = _run_over(frame, replace(task, first=len(results))).collect()
    return results + of_sources([of_spark] * len(rows), rows)


def run_splits(context: SparkContext, task: Task, splits: Sequence[InputSplit]) -> list[tuple[WriteResult, ...]]:
    """Run one Spark task per split. Return one entry per split, with one result per sink.

    Rows that other tasks write go to them through Spark's shuffle; their entries follow.
    """
    if not task.plan.exchanges or not splits:
        return _in_tasks(context, task, splits)
    return _exchanged(task, _divided(context, task, splits))


def run_merges(
    context: SparkContext, task: Task, splits: Sequence[InputSplit], few: bool
) -> list[tuple[WriteResult, ...]]:
    """Run one task per split, as `run_splits` does; on one machine the driver merges few states itself."""
    on_driver = few and runs_locally(context) and task.plan.suits_driver(task.writers)
    return run_here(task, splits) if on_driver else run_splits(context, task, splits)


def _divided(context: SparkContext, task: Task, splits: Sequence[InputSplit]) -> RDD[Any]:
    return context.parallelize(splits, len(splits)).mapPartitions(_settled(task.divide))


def _run_over(frame: DataFrame, run: Callable[[Iterable[Any]], Iterator[Any]]) -> RDD[Any]:
    """Return what a task yields over the rows of a frame."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for item in run(batches):
            yield pa.record_batch({"item": pa.array([pickle.dumps(item)], pa.binary())})
        settle()

    return _map_in_arrow(frame, work, "item binary").rdd.map(lambda row: pickle.loads(row.item))


def _exchanged(task: Task, divided: RDD[Any]) -> list[tuple[WriteResult, ...]]:
    """Run the tasks that write what others have divided. Return the results of these, then their own."""
    taking = replace(task, first=task.first + divided.getNumPartitions())

    def take(records: Iterable[tuple[int, Record]]) -> Iterator[Any]:
        yield from taking.take(record for _, record in records)

    results = divided.partitionBy(task.plan.exchanges, int).mapPartitions(_settled(take)).collect()
    return [result for _, result in sorted(results, key=lambda pair: pair[0])]


def evaluate(frame: DataFrame) -> None:
    """Compute the rows that Spark reads in an epoch and discard them, so that Spark commits the state of its frames."""
    frame.write.format("noop").mode("overwrite").save()


def run_tasks(
    context: SparkContext,
    tasks: Sequence[ExecutorTask],
    job: str = "maintenance",
    counters: EpochCounters | None = None,
) -> list[WriteResult]:
    """Run each ExecutorTask in its own Spark task, and return the results in the same order.

    On one machine the driver runs those that are little work itself.

    Args:
        job: The job's name, for errors.
        counters: Count what each one wrote in the running epoch while others still run; None = outside of epochs.

    Raises:
        VolleyError: If one fails after Spark's retries.
    """
    epoch, counts = (counters.epoch, counters.task_counts) if counters else (-1, None)
    last = len(tasks) - 1

    def done(task: ExecutorTask, number: int, attempt: int) -> WriteResult:
        result = replace(task(), attempt=attempt)
        if counts:
            if (number, attempt) == (last, 0):
                reach(EXECUTOR_TASK_POINT, epoch)
            counts.add_executor_task(result)
        return result

    def work(items: Iterable[ExecutorTask]) -> Iterator[WriteResult]:
        for task in items:
            yield done(task, *task_and_attempt())

    with translating(job):
        if runs_once_locally(context) and all(getattr(task, "suits_driver", False) for task in tasks):
            return [done(task, number, 0) for number, task in enumerate(tasks)]
        return _in_tasks(context, work, tasks)


def run_beside(context: SparkContext, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    """Run ExecutorTasks one at a time, so that they never hold more than one core that an epoch may need.

    Raises:
        VolleyError: If one fails after Spark's retries.
    """
    return [result for task in tasks for result in run_tasks(context, [task])]


def _in_tasks(context: SparkContext, work: Callable[[Iterable[Any]], Iterator[T]], items: Sequence[Any]) -> list[T]:
    """Run the work for each item in its own Spark task, and return what it yields.

    Uses an RDD: Spark would analyze, optimize and compile a DataFrame of these items again each time, which costs more
    than the whole job, and `repartition` may put two items into one task.
    """
    if not items:
        return []
    results: list[T] = context.parallelize(items, len(items)).mapPartitions(_settled(work)).collect()
    return results


def _settled(work: Callable[[Iterable[Any]], Iterator[T]]) -> Callable[[Iterable[Any]], Iterator[T]]:
    def settled(partition: Iterable[Any]) -> Iterator[T]:
        with carried():
            yield from work(partition)
        settle()

    return settled


def _map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Call `DataFrame.mapInArrow`, for any column names: Spark itself fails on a dot or a backtick in a name."""
    names = frame.columns
    renamed = frame.toDF(*(f"c{number}" for number in range(len(names))))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            yield from function(batch.rename_columns(names) for batch in batches)

    return renamed.mapInArrow(work, schema)


class _Sums(AccumulatorParam[_Counts]):
    def zero(self, value: _Counts) -> _Counts:
        return (0,) * len(value)

    def addInPlace(self, value1: _Counts, value2: _Counts) -> _Counts:
        return tuple(map(int.__add__, value1, value2))


@dataclass(frozen=True)
class TaskCounts:
    """Executor side: adds a task's counts to a Spark accumulator.

    Spark adds a task's counts when the task ends, once per partition, however many retries or copies it has.

    Args:
        sources: The number of sources whose rows the tasks read.
        sinks: The number of the job's sinks; the results after theirs are those of dead letters.
        nodes: The number of nodes in the job's graph.
    """

    sums: Accumulator[_Counts]
    sources: int
    sinks: int
    nodes: int

    def add(self, results: Sequence[WriteResult], counted: Counted) -> None:
        """Add what a task wrote, one result per sink, and the rows that it has counted itself."""
        written = results[: self.sinks]
        files, size = sum(result.files for result in written), sum(result.bytes for result in written)
        read, rows = counted.read or (0,) * self.sources, (result.rows for result in written)
        self.sums.add((1, files, size, *read, *rows, *counted.rows, *counted.bad))

    def add_executor_task(self, result: WriteResult) -> None:
        """Add what an ExecutorTask wrote. Its rows are counted already, by the tasks that read them."""
        rows = self.sources + self.sinks + 2 * self.nodes
        self.sums.add((0, result.files, result.bytes, *(0 for _ in range(rows))))


class EpochCounters:
    """Driver side: the counts of the running epoch.

    Args:
        sources: The number of sources whose rows the tasks read.
        groups: The group of each sink, see `grouped`; sinks of one group get the same rows.
        nodes: The number of nodes in the job's graph.
    """

    def __init__(self, context: SparkContext, sources: int, groups: Sequence[int], nodes: int) -> None:
        self._sources = sources
        self._groups = groups
        self._nodes = nodes
        self._zero = (0,) * (3 + sources + len(groups) + 2 * nodes)
        self.task_counts = TaskCounts(context.accumulator(self._zero, _Sums()), sources, len(groups), nodes)
        self._epoch: tuple[int, float] | None = None

    def begin(self, epoch: int) -> None:
        """Reset the counts for a new epoch."""
        self.task_counts.sums.value = self._zero
        self._epoch = epoch, time.monotonic()

    def end(self) -> None:
        """Note that no epoch is running."""
        self._epoch = None

    def rows(self, written: Sequence[int]) -> int:
        """Return the number of rows written, where rows that go to several sinks of one group count once.

        Args:
            written: The rows written per sink.
        """
        most: dict[int, int] = {}
        for group, rows in zip(self._groups, written, strict=True):
            most[group] = max(most.get(group, 0), rows)
        return sum(most.values())

    @property
    def epoch(self) -> int:
        """The running epoch's number; -1 between epochs."""
        return -1 if self._epoch is None else self._epoch[0]

    @property
    def progress(self) -> EpochProgress | None:
        """The progress of the running epoch; None between epochs."""
        if self._epoch is None:
            return None
        number, began = self._epoch
        tasks, files, size, *rows = self.task_counts.sums.value
        written = self.rows(rows[self._sources : self._sources + len(self._groups)])
        return EpochProgress(number, tasks, written, files, size, time.monotonic() - began)

    @property
    def rows_read(self) -> Sequence[int]:
        """The rows that the finished tasks of the epoch have read, per source."""
        return self.task_counts.sums.value[3 : 3 + self._sources]

    @property
    def of_nodes(self) -> tuple[Sequence[int], Sequence[int]]:
        """The rows that the finished tasks have passed on behind each node of the job's graph, and the bad ones."""
        counts = self.task_counts.sums.value[3 + self._sources + len(self._groups) :]
        return counts[: self._nodes], counts[self._nodes :]

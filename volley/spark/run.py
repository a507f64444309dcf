"""Runs the tasks of an epoch on Spark's executors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from volley.epoch import WriteResult
from volley.sink import ExecutorTask
from volley.spark.errors import translate
from volley.spark.nodes import map_in_arrow
from volley.spark.progress import EpochCounters
from volley.task.context import task_and_attempt
from volley.task.errors import carried
from volley.task.failpoints import EXECUTOR_TASK_POINT, reach
from volley.task.memory import settle
from volley.task.task import InputSplit, Record, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["evaluate", "run_beside", "run_on_executors", "run_rows", "run_splits", "run_tasks"]

T = TypeVar("T")


def run_splits(spark: SparkSession, task: Task, splits: Sequence[InputSplit]) -> list[tuple[WriteResult, ...]]:
    """Run one Spark task per split. Return one entry per split, with one result per sink.

    Rows that other tasks write go to them through Spark's shuffle; their entries follow.
    """
    tasks = task.plan.exchanges
    if not tasks or not splits:
        return _in_tasks(spark, task, splits)
    taking = replace(task, first=task.first + len(splits))

    def take(records: Iterable[tuple[int, Record]]) -> Iterator[Any]:
        yield from taking.take(record for _, record in records)

    divided = spark.sparkContext.parallelize(splits, len(splits)).mapPartitions(_settled(task.divide))
    results = divided.partitionBy(tasks, int).mapPartitions(_settled(take)).collect()
    return [result for _, result in sorted(results, key=lambda each: each[0])]


def run_rows(frame: DataFrame, task: Task) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's frame. Return one entry per Spark task, with one result per sink."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results in task(batches):
            yield pa.record_batch({"result": pa.array([pickle.dumps(results)], pa.binary())})
        settle()

    return [pickle.loads(row.result) for row in map_in_arrow(frame, work, "result binary").collect()]


def evaluate(frame: DataFrame) -> None:
    """Compute an epoch's rows and discard them, so that Spark commits the state of its stateful operators."""
    frame.write.format("noop").mode("overwrite").save()


def run_on_executors(
    spark: SparkSession, job: str, counters: EpochCounters, tasks: Sequence[ExecutorTask]
) -> list[WriteResult]:
    """Run each ExecutorTask in its own Spark task, and return the results in the same order.

    Args:
        spark: The session.
        job: The job's name.
        counters: Count what each one wrote while others still run.
        tasks: What to run.

    Raises:
        VolleyError: If one fails after Spark's retries.
    """

    epoch, counts, last = counters.epoch, counters.task_counts, len(tasks) - 1

    def work(items: Iterable[ExecutorTask]) -> Iterator[WriteResult]:
        for task in items:
            number, attempt = task_and_attempt()
            result = replace(task(), attempt=attempt)
            if (number, attempt) == (last, 0):
                reach(EXECUTOR_TASK_POINT, epoch)
            counts.add_executor_task(result)
            yield result

    try:
        return _in_tasks(spark, work, tasks)
    except Exception as error:
        translated = translate(error, job)
        raise translated from translated.__cause__


def run_tasks(spark: SparkSession, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    """Run each ExecutorTask in its own Spark task, outside of a job, and return the results in the same order.

    Args:
        spark: The session.
        tasks: What to run.

    Raises:
        VolleyError: If one fails after Spark's retries.
    """

    def work(items: Iterable[ExecutorTask]) -> Iterator[WriteResult]:
        for task in items:
            result = task()
            yield replace(result, attempt=task_and_attempt()[1])

    try:
        return _in_tasks(spark, work, tasks)
    except Exception as error:
        translated = translate(error, "maintenance")
        raise translated from translated.__cause__


def run_beside(spark: SparkSession, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    """Run ExecutorTasks one at a time, so that they never hold more than one core that an epoch may need.

    Args:
        spark: The session.
        tasks: What to run.

    Raises:
        VolleyError: If one fails after Spark's retries.
    """
    return [result for task in tasks for result in run_tasks(spark, [task])]


def _in_tasks(spark: SparkSession, work: Callable[[Iterable[Any]], Iterator[T]], items: Sequence[Any]) -> list[T]:
    """Run the work for each item in its own Spark task, and return what it yields.

    Uses an RDD: Spark would analyze, optimize and compile a DataFrame of these items again each time, which costs more
    than the whole job, and `repartition` may put two items into one task.
    """
    if not items:
        return []
    results: list[T] = spark.sparkContext.parallelize(items, len(items)).mapPartitions(_settled(work)).collect()
    return results


def _settled(work: Callable[[Iterable[Any]], Iterator[T]]) -> Callable[[Iterable[Any]], Iterator[T]]:
    def settled(partition: Iterable[Any]) -> Iterator[T]:
        with carried():
            yield from work(partition)
        settle()

    return settled

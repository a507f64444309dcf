"""Runs the tasks of an epoch on Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from volley.epoch import WriteResult
from volley.sink import ExecutorTask
from volley.spark.errors import translate
from volley.spark.nodes import map_in_arrow
from volley.spark.progress import EpochCounters
from volley.task.errors import carried
from volley.task.failpoints import EXECUTOR_TASK_POINT, reach
from volley.task.memory import settle
from volley.task.task import InputSplit, Task, task_and_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["evaluate", "run_on_executors", "run_rows", "run_splits"]

T = TypeVar("T")


def run_splits(spark: SparkSession, task: Task, splits: Sequence[InputSplit]) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's splits, each by a Spark task of its own; one entry for each, one result a sink."""
    return _in_tasks(spark, task, splits)


def run_rows(frame: DataFrame, task: Task) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's rows; one entry a Spark task, one result a sink."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results in task(batches):
            yield pa.record_batch({"result": pa.array([pickle.dumps(results)], pa.binary())})
        settle()

    return [pickle.loads(row.result) for row in map_in_arrow(frame, work, "result binary").collect()]


def evaluate(frame: DataFrame) -> None:
    """Compute an epoch's rows and drop them, so that Spark commits the state of its stateful operators."""
    frame.write.format("noop").mode("overwrite").save()


def run_on_executors(
    spark: SparkSession, job: str, counters: EpochCounters, tasks: Sequence[ExecutorTask]
) -> list[WriteResult]:
    """Have each chore done by a Spark task of its own; the results in their order.

    Args:
        spark: The session.
        job: The job's name.
        counters: Where each tells what it wrote before all are done.
        tasks: What to do.

    Raises:
        VolleyError: If one fails for good.
    """

    epoch, counts, last = counters.epoch, counters.task_counts, len(tasks) - 1

    def work(given: Iterable[ExecutorTask]) -> Iterator[WriteResult]:
        for task in given:
            done = task()
            if task_and_attempt() == (last, 0):
                reach(EXECUTOR_TASK_POINT, epoch)
            counts.add_executor_task(done)
            yield done

    try:
        return _in_tasks(spark, work, tasks)
    except Exception as error:
        made = translate(error, job)
        raise made from made.__cause__


def _in_tasks(spark: SparkSession, work: Callable[[Iterable[Any]], Iterator[T]], items: Sequence[Any]) -> list[T]:
    """What the work yields for each item, by a Spark task of its own.

    An RDD: a DataFrame of as many rows would be analyzed, optimized and compiled anew each time, which costs more
    than the whole job, and `repartition` may put two rows into one task.
    """

    def settled(given: Iterable[Any]) -> Iterator[T]:
        with carried():
            yield from work(given)
        settle()

    if not items:
        return []
    done: list[T] = spark.sparkContext.parallelize(items, len(items)).mapPartitions(settled).collect()
    return done

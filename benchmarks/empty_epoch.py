"""The cost of an epoch apart from its rows, over many epochs of ten rows in warm workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.benchmark import Limit, Run, benchmark, within
from benchmarks.files_to_iceberg import copy
from benchmarks.measure import measured
from benchmarks.rows import NATIVE, RUNTIME
from volley import MemorySource, SourceContext
from volley.spark.run import run_splits
from volley.spark.session import open_session
from volley.task.task import InputSplit, Task, TaskPlan
from volley.task.tree import Tree

_ROWS, _JOBS = 10, 100
_JOB = "Volley, an empty job"


@benchmark(
    repeat=5,
    peers={
        **{"volley": NATIVE, "runtime": RUNTIME},
        **{"volley_job": _JOB, "pyspark_job": "PySpark's mapInArrow, an empty job"},
    },
    options={"epochs": (10, 60)},
    figures=("wall_ms", "cpu_ms"),
    bounds=within(Limit("wall_ms", "ms", most=60, of=_JOB)),
)
def empty_epoch(run: Run) -> None:
    """Wall and CPU time of an epoch with ten rows, beside Iceberg's Spark runtime."""
    match run.peer:
        case "volley_job":
            _jobs(run, _splits)
        case "pyspark_job":
            _jobs(run, _map_in_arrow)
        case _:
            # The difference of a long and a short run leaves out the query's start and end.
            short, long = run.options["epochs"]
            less, more = (run.apart(epochs, rows=number * _ROWS)[0].figures for number in (short, long))
            _record(run, long - short, *(more[name] - less[name] for name in ("seconds", "cpu_seconds")))


def epochs(run: Run) -> None:
    """One query, ten rows an epoch."""
    copy(run, _ROWS, _ROWS)


def _jobs(run: Run, job: Callable[[SparkSession], object]) -> None:
    """Measure a job of one task that has nothing to do, in a warm session; the mean of many."""
    session = open_session("local[2]")

    def jobs() -> None:
        for _ in range(_JOBS):
            job(session)

    jobs()
    figures = measured(jobs)
    _record(run, _JOBS, figures["seconds"], figures["cpu_seconds"])


def _record(run: Run, number: int, seconds: float, cpu_seconds: float) -> None:
    run.record(wall_ms=1e3 * seconds / number, cpu_ms=1e3 * cpu_seconds / number)


def _splits(session: SparkSession) -> object:
    reader = MemorySource([], schema="id long").open(SourceContext(""))
    plan = TaskPlan((reader,), (Tree(reader.schema, False, ()),), ())
    return run_splits(session, Task(0, plan, ()), [InputSplit(0, (0, 0, False))])


def _map_in_arrow(session: SparkSession) -> object:
    return session.range(1, numPartitions=1).mapInArrow(_same, "id long").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches

"""What an epoch costs beside its rows: many epochs of next to none, through workers that are warm."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.comparison import compared
from benchmarks.files_to_iceberg import Sizes, one_run
from benchmarks.measure import Result, measured
from benchmarks.peers.runtime import missing
from benchmarks.report import Figure, Report
from volley import MemorySource, SourceContext
from volley.spark.run import run_splits
from volley.spark.session import open_session
from volley.task.task import InputSplit, Task, TaskPlan
from volley.task.tree import Tree

SUMMARY = "wall and CPU time of an epoch with ten rows, beside Iceberg's Spark runtime"

_ROWS = 10
_BOUND_MS = 60
_JOBS = 100


@dataclass(frozen=True)
class Cost:
    """What one more epoch costs, by the difference of a long and a short run (medians), or one more job (a mean).

    Args:
        peer: Whose.
        wall_ms: Time.
        cpu_ms: Of the whole process tree.
    """

    peer: str
    wall_ms: float
    cpu_ms: float


def run(arguments: list[str]) -> None:
    """A short and a long run of each peer in turn: their difference has no start of a query in it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks empty_epoch", description=SUMMARY)
    parser.add_argument("--epochs", type=int, nargs=2, default=[10, 60], help="of the short and the long run")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args(arguments)
    peers = ["volley", *([] if missing() else ["runtime"])]
    turns = [(peer, epochs) for _ in range(asked.repeat) for peer in peers for epochs in asked.epochs]
    results = [one_run(peer, Sizes(epochs * _ROWS, _ROWS, _ROWS)) for peer, epochs in turns]
    report = Report("empty_epoch", "peer", "wall ms", "CPU ms")
    # Of each peer the short runs, then the long ones.
    rows = [row.runs for row in compared(results)]
    for short, long in zip(rows[::2], rows[1::2], strict=True):
        cost = _cost(short, long)
        report.add(cost, cost.peer, f"{cost.wall_ms:.0f}", f"{cost.cpu_ms:.0f}")
    jobs = [
        _empty_job("Volley, an empty job", _splits),
        _empty_job("PySpark's mapInArrow, an empty job", _map_in_arrow),
    ]
    for job in jobs:
        report.add(job, job.peer, f"{job.wall_ms:.0f}", f"{job.cpu_ms:.0f}")
    report.figure(Figure.below("an empty job through a warm Python worker", jobs[0].wall_ms, _BOUND_MS, "ms"))
    report.print()


def _empty_job(name: str, job: Callable[[SparkSession], object]) -> Cost:
    """What a job of one task with nothing to do costs, when all it needs is warm; the mean of many."""
    session = open_session("local[2]")

    def jobs() -> dict[str, Any]:
        for _ in range(_JOBS):
            job(session)
        return {}

    jobs()
    ran = measured(name, _JOBS, jobs)
    return Cost(name, 1e3 * ran.seconds / _JOBS, 1e3 * ran.cpu_seconds / _JOBS)


def _splits(session: SparkSession) -> object:
    reader = MemorySource([], schema="id long").open(SourceContext(""))
    plan = TaskPlan((reader,), (Tree(reader.schema, False, ()),), ())
    return run_splits(session, Task(0, plan, ()), [InputSplit(0, (0, 0, False))])


def _map_in_arrow(session: SparkSession) -> object:
    return session.range(1, numPartitions=1).mapInArrow(_same, "id long").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _cost(short: list[Result], long: list[Result]) -> Cost:
    pairs = list(zip(short, long, strict=True))
    epochs = (long[0].rows - short[0].rows) / _ROWS / 1e3
    wall = statistics.median(more.seconds - less.seconds for less, more in pairs) / epochs
    cpu = statistics.median(more.cpu_seconds - less.cpu_seconds for less, more in pairs) / epochs
    return Cost(short[0].name, wall, cpu)

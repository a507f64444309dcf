"""What the tasks of the running epoch report to the driver while others still run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator, AccumulatorParam

from volley.epoch import WriteResult
from volley.metrics import EpochProgress

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["EpochCounters", "TaskCounts"]

_Counts = tuple[int, ...]
"""Tasks, files and bytes, then the rows of each sink."""


class _Sums(AccumulatorParam[_Counts]):
    def zero(self, value: _Counts) -> _Counts:
        return (0,) * len(value)

    def addInPlace(self, value1: _Counts, value2: _Counts) -> _Counts:
        return tuple(map(int.__add__, value1, value2))


@dataclass(frozen=True)
class TaskCounts:
    """The end that travels to the executors.

    Spark delivers a task's report when the task ends, once for each partition, whatever is tried again or twice.

    Args:
        sums: Spark's accumulator that adds them up.
        sinks: How many sinks the job has; results behind them are those of dead letters.
    """

    sums: Accumulator[_Counts]
    sinks: int

    def add(self, results: Sequence[WriteResult]) -> None:
        """A task has written this, one result a sink."""
        written = results[: self.sinks]
        size = sum(each.bytes for each in written)
        self.sums.add((1, sum(each.files for each in written), size, *(each.rows for each in written)))

    def add_executor_task(self, result: WriteResult) -> None:
        """A chore has written this, of rows that were counted when a task took them."""
        self.sums.add((0, result.files, result.bytes, *(0 for _ in range(self.sinks))))


class EpochCounters:
    """The driver's end: how far the running epoch has come.

    Args:
        context: Spark's.
        groups: For each sink of the job the number of its group; sinks of one group get the same rows.
    """

    def __init__(self, context: SparkContext, groups: Sequence[int]) -> None:
        self._groups = groups
        self._none = (0,) * (3 + len(groups))
        self.task_counts = TaskCounts(context.accumulator(self._none, _Sums()), len(groups))
        self._epoch: tuple[int, float] | None = None

    def begin(self, epoch: int) -> None:
        """The epoch of this number begins."""
        self.task_counts.sums.value = self._none
        self._epoch = epoch, time.monotonic()

    def end(self) -> None:
        """No epoch runs."""
        self._epoch = None

    def rows(self, written: Sequence[int]) -> int:
        """How many rows the sinks have got, if those that go to several sinks of one group count once.

        Args:
            written: The rows that each sink has got.
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
        """Where the running epoch stands; None between epochs."""
        if self._epoch is None:
            return None
        number, began = self._epoch
        tasks, files, size, *rows = self.task_counts.sums.value
        return EpochProgress(number, tasks, self.rows(rows), files, size, time.monotonic() - began)

"""Counts what the finished tasks of the running epoch wrote, in a Spark accumulator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator, AccumulatorParam

from volley.contracts.epoch import WriteResult
from volley.metrics.figures import EpochProgress

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["EpochCounters", "TaskCounts"]

_Counts = tuple[int, ...]
"""Tasks, files and bytes, then the rows read per source, then the rows written per sink."""


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
        sums: The accumulator.
        sources: The number of sources whose rows the tasks read.
        sinks: The number of the job's sinks; the results after theirs are those of dead letters.
    """

    sums: Accumulator[_Counts]
    sources: int
    sinks: int

    def add(self, results: Sequence[WriteResult], read: Sequence[int]) -> None:
        """Add what a task wrote, one result per sink, and the rows that it read per source, if it reads sources."""
        written = results[: self.sinks]
        files, size = sum(result.files for result in written), sum(result.bytes for result in written)
        self.sums.add((1, files, size, *(read or self._none_read), *(result.rows for result in written)))

    def add_executor_task(self, result: WriteResult) -> None:
        """Add what an ExecutorTask wrote. Its rows are counted already, by the tasks that read them."""
        self.sums.add((0, result.files, result.bytes, *self._none_read, *(0 for _ in range(self.sinks))))

    @property
    def _none_read(self) -> tuple[int, ...]:
        return (0,) * self.sources


class EpochCounters:
    """Driver side: the counts of the running epoch.

    Args:
        context: Spark's context.
        sources: The number of sources whose rows the tasks read.
        groups: The group of each sink, see `grouped`; sinks of one group get the same rows.
    """

    def __init__(self, context: SparkContext, sources: int, groups: Sequence[int]) -> None:
        self._sources = sources
        self._groups = groups
        self._zero = (0,) * (3 + sources + len(groups))
        self.task_counts = TaskCounts(context.accumulator(self._zero, _Sums()), sources, len(groups))
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
        written = self.rows(rows[self._sources :])
        return EpochProgress(number, tasks, written, files, size, time.monotonic() - began)

    @property
    def rows_read(self) -> Sequence[int]:
        """The rows that the finished tasks of the epoch have read, per source."""
        return self.task_counts.sums.value[3 : 3 + self._sources]

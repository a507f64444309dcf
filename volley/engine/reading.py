"""Counts the rows that a job reads of its sources."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from volley.metrics import Metrics
from volley.spark.compile import CompiledPlan
from volley.spark.progress import EpochCounters, rows_read_by_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Reading"]


_log = logging.getLogger(__name__)


class Reading:
    """Counts the rows that a job reads of each source.

    Args:
        job: The job's name.
        plan: The job's plan.
        counters: The counts of the running epoch: on the Arrow-native path the tasks count what they read.
        metrics: The job's counters.
    """

    def __init__(self, job: str, plan: CompiledPlan, counters: EpochCounters, metrics: Metrics) -> None:
        self._job = job
        self._names = [source.identity for source in plan.sources]
        self._by_spark = not plan.tasks.readers
        self._counters = counters
        self._metrics = metrics
        self._counted = -1

    def count(self, query: StreamingQuery | None, epoch: int) -> None:
        """Count the rows of an epoch at its end; those that Spark reads one epoch later, when it reports them."""
        if not self._by_spark:
            self._add(self._counters.rows_read)
        elif query is not None:
            self._count_by_spark(query, epoch - 1)

    def finish(self, query: StreamingQuery) -> None:
        """Count the rows of the last epoch, when the query has ended."""
        if self._by_spark:
            self._count_by_spark(query, None)

    def _count_by_spark(self, query: StreamingQuery, last: int | None) -> None:
        try:
            read = rows_read_by_spark(query, self._counted)
        except Exception as error:
            # A count is not worth the job; a signal may have killed the JVM already.
            _log.warning("%s: the rows that it has read are not counted: %s", self._job, error)
            return
        for epoch, rows in read.items():
            if last is None or epoch <= last:
                self._add(rows)
        if last is not None:
            self._counted = last

    def _add(self, rows: Sequence[int]) -> None:
        for name, count in zip(self._names, rows, strict=True):
            self._metrics.record_read(name, count)

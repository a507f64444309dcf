"""The Spark task that this process runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import TaskContext

__all__ = ["task_and_attempt", "task_context"]


def task_context() -> TaskContext | None:
    """Return the context of the task; None outside of Spark.

    Each of Spark's workers has imported PySpark. Another process need not: that takes a fifth of the time in which it
    could show the first rows of a stream.
    """
    pyspark: Any = sys.modules.get("pyspark")
    context: TaskContext | None = pyspark.TaskContext.get() if pyspark else None
    return context


def task_and_attempt() -> tuple[int, int]:
    """Return the numbers of the task and of its attempt; outside of Spark both are 0."""
    context = task_context()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)

"""A kind of job that chaos kills: what it reads, does, and has to leave in its tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.recovery.rows import SCHEMA, Row
from volley import DataStream
from volley.iceberg import Append
from volley.iceberg.modes import CommitMode, KeyedMode
from volley.task.failpoints import EXECUTOR_TASK_POINT, TASK_POINTS

__all__ = ["Kind"]


@dataclass(frozen=True)
class Kind:
    """One kind of job. Its epochs are files.

    Args:
        rows: The rows of the file of this number.
        steps: What the stream does before its sink.
        expected: The rows of the table, from those of all files in order.
        columns: The table's columns.
        mode: How an epoch changes the table.
        bad: The rows that go to the dead letters, each with the number of its file, from those of all files in order.
        more: Columns of the input beside those of `SCHEMA`.
        points: Failpoints of its driver that other kinds do not have.
        rival: The rows of an epoch of a second job, which writes to the table too: by the number of the first one's
            files, and by the epoch's number. None = there is no such job.
    """

    rows: Callable[[random.Random, int], list[Row]]
    steps: Callable[[DataStream], DataStream]
    expected: Callable[[Sequence[list[Row]]], Iterable[Row]]
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    mode: CommitMode = Append()  # noqa: RUF009 (it is frozen)
    bad: Callable[[Sequence[list[Row]]], Iterable[tuple[int, Row]]] | None = None
    more: tuple[tuple[str, pa.DataType], ...] = ()
    points: tuple[str, ...] = ()
    rival: Callable[[random.Random, int, int], list[Row]] | None = None

    @property
    def task_points(self) -> tuple[str, ...]:
        """The failpoints that its executors reach."""
        return (*TASK_POINTS, *([EXECUTOR_TASK_POINT] if isinstance(self.mode, KeyedMode) else []))

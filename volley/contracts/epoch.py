"""Epoch, the unit of commit, and WriteResult, what one task wrote in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from volley.contracts.reports import DeadLetter
from volley.contracts.rows import Note, SeenColumns, Tallies

__all__ = ["Epoch", "WriteResult"]


@dataclass(frozen=True)
class Epoch:
    """One pass of a job, from planned offsets to commits: the unit that is committed as a whole or not at all.

    Args:
        query_id: Spark's id of the streaming query, stored in the checkpoint; a new checkpoint has a new one.
        number: 0 for a checkpoint's first epoch, then 1, 2, …
        offsets: A short digest of the source offsets at which the epoch ends; empty = unknown. Not compared.
        run: The first epoch of the run over bounded sources that the epoch belongs to; None = the sources have no end,
            or the sink does not ask (`Sink.overwrites`). Not compared.

    Example:
        >>> Epoch("5f0c", 1, offsets="a1b2") == Epoch("5f0c", 1)
        True
    """

    query_id: str
    number: int
    offsets: str = field(default="", compare=False)
    run: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class WriteResult:
    """What one task wrote; small and picklable, as Spark sends it from the executor to the driver.

    Args:
        rows: Rows written.
        bytes: Encoded bytes written.
        seconds: Time spent writing, in seconds.
        batches: Arrow batches passed to the writer.
        batch_size_min: Rows of the smallest batch.
        batch_size_max: Rows of the largest batch.
        files: Files written.
        committables: What the sink's own committer needs to commit: data files, paths or Arrow streams.
        attempt: The number of earlier, failed attempts of this task.
        worker_memory: Peak memory of the worker process so far, in bytes.
        notes: What the driver should warn of, such as a field in no column; with a task's first result.
        tallies: What the task has counted of its rows; with its first result.
        letters: The last few rows that it sent to dead letters; with its first result.
        seen: What it has seen of columns that its sources lack; with its first result, whose rows don't count then.

    Example:
        >>> result = WriteResult().with_batch(rows=10).with_batch(rows=30)
        >>> result.rows, result.batches, result.batch_size_max
        (40, 2, 30)
    """

    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    batches: int = 0
    batch_size_min: int = 0
    batch_size_max: int = 0
    files: int = 0
    committables: tuple[Any, ...] = ()
    attempt: int = 0
    worker_memory: int = 0
    notes: tuple[Note, ...] = ()
    tallies: Tallies = field(default_factory=dict, hash=False)
    letters: tuple[DeadLetter, ...] = ()
    seen: tuple[SeenColumns, ...] = ()

    def with_batch(self, rows: int) -> WriteResult:
        """Return the result with one more batch of this many rows."""
        return replace(
            self,
            rows=self.rows + rows,
            batches=self.batches + 1,
            batch_size_min=min(self.batch_size_min, rows) if self.batches else rows,
            batch_size_max=max(self.batch_size_max, rows),
        )

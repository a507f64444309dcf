"""Epoch and WriteResult: the unit of commit, and what one task wrote in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Epoch", "WriteResult"]


@dataclass(frozen=True)
class Epoch:
    """One step of a job: the unit that is committed whole or not at all.

    Args:
        query_id: Spark's id of the streaming query, kept in its checkpoint; a new checkpoint has a new one.
        number: 0 for a checkpoint's first epoch, then 1, 2, …
        offsets: A short text that tells the offsets at which its rows end from others; empty = not known.
    """

    query_id: str
    number: int
    offsets: str = field(default="", compare=False)


@dataclass(frozen=True)
class WriteResult:
    """What one task wrote: small and picklable, it travels back to the driver.

    Args:
        rows: Rows written.
        bytes: Encoded bytes written.
        seconds: Time spent writing.
        batches: Arrow batches handed to the writer.
        batch_size_min: Rows of the smallest of them.
        batch_size_max: Rows of the largest of them.
        files: Files written.
        committables: What the committer needs to commit: data files, paths, or Arrow batches; its own kind of value.
        attempt: How many attempts of this task have failed before.
        worker_memory: The most bytes of memory that the worker's process has had so far.
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

    def with_batch(self, rows: int) -> WriteResult:
        """The same with one batch more."""
        return replace(
            self,
            rows=self.rows + rows,
            batches=self.batches + 1,
            batch_size_min=min(self.batch_size_min, rows) if self.batches else rows,
            batch_size_max=max(self.batch_size_max, rows),
        )

"""The checkpoints in use in this process: one job at a time runs on each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from volley.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["claim", "note_hanging", "release", "reserve"]

_lock = threading.Lock()
_running: set[str] = set()
_hanging: dict[str, threading.Thread] = {}


def reserve(checkpoint: str, job: str) -> None:
    """Reserve a checkpoint for one job, until `release`.

    Args:
        checkpoint: The checkpoint's folder.
        job: The job's name.

    Raises:
        PlanError: If a job of this process already runs on it, or was stopped and its query has not ended.
    """
    with _lock:
        if (query := _hanging.get(_resolved(checkpoint))) and query.is_alive():
            raise PlanError(
                f"job {job!r} was stopped, but its query on checkpoint {checkpoint} has not ended: a source hangs",
                hint="it ends once the source answers; or start the job in another process, after the end of this one",
            )
        if _resolved(checkpoint) in _running:
            raise PlanError(
                f"job {job!r} runs in this process already, on checkpoint {checkpoint}",
                hint="stop it first (Job.stop), or give the other one another name",
            )
        _running.add(_resolved(checkpoint))


def release(checkpoint: str) -> None:
    """Release a checkpoint for the next job."""
    with _lock:
        _running.discard(_resolved(checkpoint))


def note_hanging(checkpoint: str, query: StreamingQuery) -> None:
    """Note that a query on a checkpoint has not ended though it was stopped: until it has, no job can run on it."""
    waiting = threading.Thread(target=_await, args=[query], name="volley-hanging", daemon=True)
    waiting.start()
    with _lock:
        _hanging[_resolved(checkpoint)] = waiting


def _await(query: StreamingQuery) -> None:
    # The stop has reported the query's error; or the JVM has ended.
    with suppress(Exception):
        query.awaitTermination()


def _resolved(checkpoint: str) -> str:
    """Return the folder's path with symbolic links resolved."""
    folder = checkpoint.removeprefix("file://")
    return folder if "://" in folder else os.path.realpath(folder)


@contextmanager
def claim(checkpoint: str, job: str) -> Iterator[None]:
    """Reserve a checkpoint while the block runs."""
    reserve(checkpoint, job)
    try:
        yield
    finally:
        release(checkpoint)

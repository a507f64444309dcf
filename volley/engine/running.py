"""The checkpoints in use in this process: one job at a time runs on each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from volley.errors import PlanError

__all__ = ["claim", "release", "reserve"]

_lock = threading.Lock()
_running: set[str] = set()


def reserve(checkpoint: str, job: str) -> None:
    """Reserve a checkpoint for one job, until `release`.

    Args:
        checkpoint: The checkpoint's folder.
        job: The job's name.

    Raises:
        PlanError: If a job of this process already runs on it.
    """
    with _lock:
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

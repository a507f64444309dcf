"""The checkpoints that jobs of this process run on: each takes one job at a time."""

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
        PlanError: If a job of this process runs on it.
    """
    with _lock:
        if _place(checkpoint) in _running:
            raise PlanError(
                f"job {job!r} runs in this process already, on checkpoint {checkpoint}",
                hint="stop it first (Job.stop), or give the other one another name",
            )
        _running.add(_place(checkpoint))


def release(checkpoint: str) -> None:
    """Let the next job have the checkpoint."""
    with _lock:
        _running.discard(_place(checkpoint))


def _place(checkpoint: str) -> str:
    """The folder itself, whatever links lead to it."""
    folder = checkpoint.removeprefix("file://")
    return folder if "://" in folder else os.path.realpath(folder)


@contextmanager
def claim(checkpoint: str, job: str) -> Iterator[None]:
    """Reserve a checkpoint for as long as the block runs."""
    reserve(checkpoint, job)
    try:
        yield
    finally:
        release(checkpoint)

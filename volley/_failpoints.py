"""Named places where a test lets the process die, so that crashes are gated by what happens and not by the clock."""

from __future__ import annotations

import os
import signal

__all__ = ["POINTS", "VARIABLE", "reach"]

VARIABLE = "VOLLEY_FAILPOINT"
"""The environment variable that arms one point in one epoch, as ``point@epoch``."""

POINTS = ("before-files", "after-files", "between-commits", "before-commit", "after-commit", "before-checkpoint")
"""In the order in which an epoch passes them, on the driver. ``between-commits`` lies behind the dead letters' commits,
which pass ``before-commit`` and ``after-commit`` as well, and first; ``before-checkpoint`` is Spark's commit log."""


def reach(point: str, epoch: int) -> None:
    """Die here, as by ``kill -9``, if this point is armed for this epoch."""
    if os.environ.get(VARIABLE) == f"{point}@{epoch}":
        os.kill(os.getpid(), signal.SIGKILL)

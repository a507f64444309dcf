"""Named places where a test lets a process die, so that crashes are gated by what happens and not by the clock."""

from __future__ import annotations

import os
import signal

__all__ = ["POINTS", "TASK_POINTS", "VARIABLE", "VICTIM", "reach"]

VARIABLE = "VOLLEY_FAILPOINT"
"""The environment variable that arms points, each in one epoch: ``point@epoch``, several with commas between them."""

VICTIM = "VOLLEY_FAILPOINT_VICTIM"
"""The environment variable with the process to kill; without it, the one that reaches the point."""

POINTS = ("before-planning", "before-files", "after-files", "before-commit", "after-commit", "before-checkpoint")
"""In the order in which an epoch passes them on the driver; ``before-checkpoint`` is Spark's own commit log. An epoch
that is there already passes ``in-recovery`` in place of all but the first."""

TASK_POINTS = ("in-task", "after-task")
"""On an executor: a task has written rows, and has closed its files; only the first attempt of a task dies there."""


def reach(point: str, epoch: int) -> None:
    """Die here, as by ``kill -9``, if this point is armed for this epoch."""
    if f"{point}@{epoch}" in os.environ.get(VARIABLE, "").split(","):
        os.kill(int(os.environ.get(VICTIM, os.getpid())), signal.SIGKILL)
        signal.pause()

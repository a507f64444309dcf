"""Named places where a test lets a process die, so that crashes are gated by what happens and not by the clock."""

from __future__ import annotations

import os
import signal

__all__ = ["EXECUTOR_TASK_POINT", "LOG", "POINTS", "TASK_POINTS", "VARIABLE", "VICTIM", "reach"]

VARIABLE = "VOLLEY_FAILPOINT"
"""The environment variable that arms points, each in one epoch: ``point@epoch``, several with commas between them."""

VICTIM = "VOLLEY_FAILPOINT_VICTIM"
"""The environment variable with the process to kill; without it, the one that reaches the point."""

LOG = "VOLLEY_FAILPOINT_LOG"
"""The environment variable with a file that gets a line for each death: the process and the point."""

POINTS = (
    *("before-planning", "before-files", "after-files", "between-commits"),
    *("before-commit", "after-commit", "before-checkpoint"),
)
"""In the order in which an epoch passes them on the driver. ``between-commits`` lies behind the dead letters' commits,
which pass ``before-commit`` and ``after-commit`` as well, and first; ``before-checkpoint`` is Spark's commit log. An
epoch that is there already passes ``in-recovery`` in place of all but the first."""

TASK_POINTS = ("in-task", "after-task")
"""On an executor: a task has written rows, and has closed its files; only the first attempt of a task dies there."""

EXECUTOR_TASK_POINT = "after-chore"
"""On an executor: the last chore of a commit is done and has closed its files; only its first attempt dies there."""


def reach(point: str, epoch: int) -> None:
    """Die here, as by ``kill -9``, if this point is armed for this epoch."""
    if f"{point}@{epoch}" not in os.environ.get(VARIABLE, "").split(","):
        return
    victim = int(os.environ.get(VICTIM, os.getpid()))
    if log := os.environ.get(LOG):
        with open(log, "a") as deaths:
            deaths.write(f"{victim} {point}\n")
    os.kill(victim, signal.SIGKILL)
    signal.pause()

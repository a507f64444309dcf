"""Waits that end: a test whose condition never comes fails, and says which."""

from __future__ import annotations

import time
from collections.abc import Callable

from volley import Job

__all__ = ["wait_until", "wait_while_it_runs"]


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Ask until the condition is true.

    Args:
        condition: What is asked.
        seconds: The longest to wait on a quiet machine; one that is busy gets four times as long.
        what: The condition in words, for the error.

    Raises:
        TimeoutError: It did not come true.
    """
    asked = time.monotonic()
    deadline = asked + 4 * seconds
    while not condition():
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"waited {4 * seconds} s for {what}")
        # A question that takes long, such as the load of a table, leaves the CPU to those who work on the answer.
        time.sleep(min(max(0.01, 4 * (now - asked)), 0.1))
        asked = time.monotonic()


def wait_while_it_runs(job: Job, condition: Callable[[], object], what: str) -> None:
    """Ask until the condition is true, for at most four minutes, of a job that goes on meanwhile."""

    def reached() -> bool:
        if condition():
            return True
        assert not job.wait(0.05), job.exception
        return False

    wait_until(reached, 60, what)

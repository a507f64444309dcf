"""Measures work: wall time, CPU-seconds of the whole process tree, peak memory of its processes."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

__all__ = ["adopt_orphans", "after", "measured"]

_POLL_SECONDS = 0.005
_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends.

    Otherwise they would leave the tree for init, and take their CPU along. As this process never waits for them, those
    that end stay as zombies, whose CPU can still be read.
    """
    # Linux alone has it.
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def measured(work: Callable[[], dict[str, Any] | None], start: Path | None = None) -> dict[str, Any]:
    """Run `work`, and measure it to its last line.

    Args:
        work: What runs; it may return figures of its own.
        start: A file; the measurement begins when it appears. None = it begins at once.

    Returns:
        The work's own figures; `seconds`; `cpu_seconds` of the process, the JVM and all Python workers; the peaks of
        memory: `worker_mb` of the largest Python process below this one, `jvm_mb`, `driver_mb` of this process; None
        without such a process.
    """
    _forget_peaks()
    clock = _Clock(start)
    own = work() or {}
    seconds, cpu_seconds = clock.read()
    below = psutil.Process().children(recursive=True)
    workers, jvms = (max(map(_peak_mb, _named(below, name)), default=None) for name in ("python", "java"))
    memory = {"worker_mb": workers, "jvm_mb": jvms, "driver_mb": _peak_mb(psutil.Process())}
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, **memory, **own}


def after(checkpoints: Path, epochs: int) -> Path | None:
    """The file that Spark writes when so many epochs of the job ``benchmark`` are done; None for no epochs.

    Args:
        checkpoints: The folder with the checkpoints of jobs.
        epochs: How many.
    """
    return checkpoints / "benchmark" / "commits" / str(epochs - 1) if epochs else None


class _Clock:
    """Wall and CPU time since a file appeared, or since now.

    Args:
        start: The file.
    """

    def __init__(self, start: Path | None) -> None:
        self._start = _times() if start is None else None
        if start is not None:
            threading.Thread(target=self._wait, args=[start], daemon=True).start()

    def read(self) -> tuple[float, float]:
        """Seconds, and CPU-seconds of the process tree."""
        now, by_now = _times()
        assert self._start is not None, "the work ended before its measurement began"
        began, used = self._start
        return now - began, by_now - used

    def _wait(self, file: Path) -> None:
        while not file.exists():
            time.sleep(_POLL_SECONDS)
        self._start = _times()


def _times() -> tuple[float, float]:
    return time.perf_counter(), _cpu_seconds()


def _cpu_seconds() -> float:
    """CPU of this process and all below it, including those that have ended."""
    while True:
        found = psutil.Process().children(recursive=True)
        # A process can measure itself more finely than by the clock ticks in /proc.
        this = psutil.Process().cpu_times()
        total = time.process_time() + this.children_user + this.children_system
        with suppress(psutil.NoSuchProcess):
            total += sum(map(_with_children, found))
            # If the tree has changed meanwhile, a process may be missing, or counted twice.
            if psutil.Process().children(recursive=True) == found:
                return total


def _with_children(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _forget_peaks() -> None:
    """Forget the peaks of what went before: a warm-up, the making of a table."""
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def _named(processes: list[psutil.Process], part: str) -> list[psutil.Process]:
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if part in process.name():
                found.append(process)
    return found


def _peak_mb(process: psutil.Process) -> float:
    """The high-water mark of resident memory; Spark's workers live on while the JVM does."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0

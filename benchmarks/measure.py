"""Measures work: wall time, CPU-seconds of the whole process tree, peak memory of its processes."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

__all__ = ["adopt_orphans", "after", "measured", "medians", "timed"]

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


def measured(work: Callable[[], object], start: Path | None = None) -> dict[str, Any]:
    """Run `work`, and measure it to its last line.

    Args:
        work: What runs; a dictionary that it returns has figures of its own.
        start: A file; the measurement begins when it appears. None = it begins at once.

    Returns:
        The work's own figures; `seconds`; `cpu_seconds` of the process, the JVM and all Python workers; the peaks of
        memory: `worker_mb` of the largest Python process below this one, `jvm_mb`, `driver_mb` of this process; None
        without such a process.
    """
    began: list[tuple[float, float]] = []

    def begin() -> None:
        while start is not None and not start.exists():
            time.sleep(_POLL_SECONDS)
        began.append(_times())

    _forget_peaks()
    if start is None:
        begin()
    else:
        threading.Thread(target=begin, daemon=True).start()
    own = work()
    now, cpu_now = _times()
    assert began, "the work ended before its measurement began"
    ((then, cpu_then),) = began
    below = psutil.Process().children(recursive=True)
    memory = {"worker_mb": _largest(below, "python"), "jvm_mb": _largest(below, "java")}
    driver_mb = _peak_mb(psutil.Process())
    figures = {"seconds": now - then, "cpu_seconds": cpu_now - cpu_then, **memory, "driver_mb": driver_mb}
    return figures | own if isinstance(own, dict) else figures


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Run `work` in this process; return the milliseconds of wall time and of CPU, of all its threads."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return {"wall_ms": (time.perf_counter() - wall) * 1e3, "cpu_ms": (time.process_time() - cpu) * 1e3}


def medians(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    figures = list(runs)
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}


def after(checkpoints: Path, epochs: int) -> Path | None:
    """The file that Spark writes when so many epochs of the job ``benchmark`` are done; None for no epochs."""
    return checkpoints / "benchmark" / "commits" / str(epochs - 1) if epochs else None


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
            total += sum(sum(process.cpu_times()[:4]) for process in found)
            # If the tree has changed meanwhile, a process may be missing, or counted twice.
            if psutil.Process().children(recursive=True) == found:
                return total


def _forget_peaks() -> None:
    """Forget the peaks of what went before: a warm-up, the making of a table."""
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def _largest(processes: list[psutil.Process], part: str) -> float | None:
    """The peak of the largest process that has such a name."""
    peaks = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if part in process.name():
                peaks.append(_peak_mb(process))
    return max(peaks, default=None)


def _peak_mb(process: psutil.Process) -> float:
    """The high-water mark of resident memory; Spark's workers live on while the JVM does."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0

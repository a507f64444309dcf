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
    """Run `work`, and measure it to its last line, from when the file `start` is there; None = at once.

    The figures are those that it returns, if a dictionary; `seconds`; `cpu_seconds` of this process and all below it;
    the peaks of memory: `worker_mb` of the largest Python process below this one, `jvm_mb`, `driver_mb` of this
    process; None without such a process.
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
    figures = {"seconds": now - then, "cpu_seconds": cpu_now - cpu_then, "driver_mb": _peak_mb([psutil.Process()])}
    figures |= {"worker_mb": _peak_mb(below, "python"), "jvm_mb": _peak_mb(below, "java")}
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


def _peak_mb(processes: list[psutil.Process], name: str = "") -> float | None:
    """The largest high-water mark of resident memory of those with such a name; Spark's workers outlive their tasks."""
    peaks = []
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            status = dict(line.split(":\t", 1) for line in lines)
            if name in status["Name"]:
                # A zombie has none.
                peaks.append(int(status.get("VmHWM", "0 kB").split()[0]) / 1024)
    return max(peaks, default=None)

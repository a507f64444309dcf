"""Measures one run in a process of its own: wall time, CPU-seconds of the whole process tree, peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

__all__ = ["Result", "in_own_process", "measured"]


@dataclass(frozen=True)
class Result:
    """One run.

    Args:
        name: What ran.
        rows: Rows it handled.
        seconds: Wall time.
        cpu_seconds: CPU time of the process, the JVM and all Python workers.
        worker_mb: The largest peak memory of one Python process below the JVM; 0 without a JVM.
        extra: Figures of this benchmark alone.
    """

    name: str
    rows: int
    seconds: float
    cpu_seconds: float
    worker_mb: float
    extra: dict[str, Any]

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / self.cpu_seconds


def measured(name: str, rows: int, work: Callable[[], dict[str, Any]]) -> Result:
    """Run `work`, which returns its own figures, and measure it from its first line to its last."""
    before, began = _cpu_seconds(), time.perf_counter()
    extra = work()
    seconds = time.perf_counter() - began
    return Result(name, rows, seconds, _cpu_seconds() - before, _worker_peak_mb(), extra)


def in_own_process(module: str, *arguments: str) -> Result:
    """Run ``python -m module arguments``, whose last line of output is a Result as JSON."""
    command = [sys.executable, "-m", module, *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Result(**json.loads(output.splitlines()[-1]))


def print_result(result: Result) -> None:
    """One line of JSON, what `in_own_process` reads."""
    print(json.dumps(asdict(result)))


def _tree() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def _cpu_seconds() -> float:
    total = 0.0
    for process in _tree():
        # One that has ended since is in its parent's figures.
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _worker_peak_mb() -> float:
    """The highest water mark of resident memory among Spark's Python workers; they live on while the JVM does."""
    peak = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            if "python" in process.name():
                with open(f"/proc/{process.pid}/status") as status:
                    lines = [line for line in status if line.startswith("VmHWM")]
                peak = max([peak, *(int(line.split()[1]) / 1024 for line in lines)])
    return peak

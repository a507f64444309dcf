"""Measures one run in a process of its own: wall time, CPU-seconds of the whole process tree, peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Result", "after", "in_own_process", "measured", "print_result"]

_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Result:
    """One run.

    Args:
        name: What ran.
        rows: Rows it handled.
        seconds: Wall time.
        cpu_seconds: CPU time of the process, the JVM and all Python workers.
        worker_mb: The largest peak memory of one Python process below the JVM; 0 without a JVM.
        jvm_mb: The peak memory of the JVM; 0 without one.
        driver_mb: The peak memory of the Python process that drives.
        extra: Figures of this benchmark alone.
        case: What it can be compared with: runs of the same case.
    """

    name: str
    rows: int
    seconds: float
    cpu_seconds: float
    worker_mb: float
    jvm_mb: float
    driver_mb: float
    extra: dict[str, Any]
    case: str = ""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / self.cpu_seconds


def measured(
    name: str, rows: int, work: Callable[[], dict[str, Any]], case: str = "", start: Path | None = None
) -> Result:
    """Run `work`, which returns its own figures, and measure it to its last line.

    Args:
        name: What runs.
        rows: Rows it handles while it is measured.
        work: What runs.
        case: With what it can be compared.
        start: A file: what goes before it is there is not measured. None = from the first line on.
    """
    _forget_peaks()
    clock = _Clock(start)
    extra = work()
    seconds, cpu_seconds = clock.read()
    below = psutil.Process().children(recursive=True)
    workers, jvms = (max(map(_peak_mb, _named(below, name)), default=0.0) for name in ("python", "java"))
    return Result(name, rows, seconds, cpu_seconds, workers, jvms, _peak_mb(psutil.Process()), extra, case)


def in_own_process(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run ``python -m module arguments``, whose last line of output is a Result as JSON."""
    command = [sys.executable, "-m", module, *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return Result(**json.loads(output.splitlines()[-1]))


def print_result(result: Result) -> None:
    """One line of JSON, what `in_own_process` reads."""
    print(json.dumps(asdict(result)))


def after(checkpoints: Path, epochs: int) -> Path | None:
    """The file that Spark writes when so many epochs of the job ``benchmark`` are done; None = it has none to wait for.

    Args:
        checkpoints: The folder with the checkpoints of jobs.
        epochs: How many.
    """
    return checkpoints / "benchmark" / "commits" / str(epochs - 1) if epochs else None


class _Clock:
    """Wall and CPU time since there is a file, or since now.

    Args:
        start: The file.
    """

    def __init__(self, start: Path | None) -> None:
        self._start = _times() if start is None else None
        if start is not None:
            threading.Thread(target=self._wait, args=[start], daemon=True).start()

    def read(self) -> tuple[float, float]:
        """Seconds, and CPU-seconds of the process tree."""
        assert self._start is not None, "the work ended before it began to be measured"
        (began, used), (now, by_now) = self._start, _times()
        return now - began, by_now - used

    def _wait(self, file: Path) -> None:
        while not file.exists():
            time.sleep(_POLL_SECONDS)
        self._start = _times()


def _times() -> tuple[float, float]:
    return time.perf_counter(), _cpu_seconds()


def _tree() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def _cpu_seconds() -> float:
    # The system's own clock ticks a hundred times a second: too rarely for short work in this process.
    total, this = time.process_time(), psutil.Process().cpu_times()
    total += this.children_user + this.children_system
    for process in psutil.Process().children(recursive=True):
        # One that has ended since is in its parent's figures.
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _forget_peaks() -> None:
    """What went before, a warm-up or the making of a table, is not the work's."""
    for process in _tree():
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

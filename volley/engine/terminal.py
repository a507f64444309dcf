"""Shows a job's progress while `execute` waits: a live line on a terminal, else a line every 30 seconds."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from volley.engine import notebook
from volley.engine.job import Job
from volley.engine.progress import Progress, State
from volley.metrics.figures import EpochProgress

__all__ = ["follow", "progress_line"]

_log = logging.getLogger("volley.progress")
_QUIET_SECONDS = 30.0


def follow(job: Job, progress: bool = True) -> None:
    """Show the job's progress until it ends; Ctrl-C and SIGTERM stop it after the running epoch.

    A second Ctrl-C raises KeyboardInterrupt at once; the next start repeats the epoch.

    Args:
        job: The job.
        progress: False shows nothing.
    """
    with _graceful_stop(job):
        if not progress or notebook.is_running():
            job.wait()
        elif sys.stderr.isatty():
            _live(job)
        else:
            _quiet(job)


def _live(job: Job) -> None:
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(progress_line(job.name, job.progress)) as status:
        while not job.wait(0.2):
            status.update(progress_line(job.name, job.progress))
    console.print(progress_line(job.name, job.progress))


def _quiet(job: Job) -> None:
    while not job.wait(_QUIET_SECONDS):
        _tell(progress_line(job.name, job.progress))
    _tell(progress_line(job.name, job.progress))


def _tell(line: str) -> None:
    """Log a line where the program has set up logging, else print it to stderr."""
    if _log.hasHandlers():
        _log.info(line)
    else:
        print(line, file=sys.stderr)


def progress_line(name: str, progress: Progress) -> str:
    """Return a job's progress in a line, for people."""
    waits = progress.state is State.RUNNING and not (progress.running and progress.running.tasks)
    none_yet = "waiting for rows" if waits else "no epoch yet"
    epoch = none_yet if progress.epoch is None else f"epoch {progress.epoch}"
    rejected = f"{progress.rejected:,} rejected · " if progress.rejected else ""
    now = progress.running
    running = f" · epoch {now.number} so far: {_written(now)}" if now and now.tasks else ""
    return (
        f"{name}: {progress.state.value} · {epoch} · {progress.rows:,} rows · {rejected}{progress.files:,} files · "
        f"{progress.bytes / 1e6:,.1f} MB · {progress.seconds:.1f} s · {progress.rows_per_second:,.0f} rows/s{running}"
    )


def _written(now: EpochProgress) -> str:
    return f"{now.rows:,} rows · {now.files:,} files · {now.bytes / 1e6:,.1f} MB"


@contextmanager
def _graceful_stop(job: Job) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into `job.stop()`; only on the main thread, the only one that can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print(f"{job.name}: stopping after the running epoch (Ctrl-C again to give up)", file=sys.stderr)
        threading.Thread(target=job.stop, name=f"volley-{job.name}-stop", daemon=True).start()

    try:
        for number in previous:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, _handler(handler))


def _handler(handler: Any) -> Callable[[int, FrameType | None], Any] | int:
    # None = a handler that C code has set, which Python can't restore: set the default instead.
    return signal.SIG_DFL if handler is None else handler

"""Shows a job: what its start is busy with, then its progress, on a terminal or in a notebook."""

from __future__ import annotations

import html
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from volley.engine.progress import Progress, State, told_to
from volley.metrics.figures import EpochProgress

if TYPE_CHECKING:
    from volley.engine.job import Job

__all__ = ["follow", "in_notebook", "progress_line", "shown", "watch"]

_log = logging.getLogger("volley.progress")
_QUIET_SECONDS = 30.0
_SECONDS = 0.5
_SLOW_SECONDS = 10.0


def follow(job: Job, progress: bool = True) -> None:
    """Show the job's progress until it ends; Ctrl-C and SIGTERM stop it after the running epoch.

    A second Ctrl-C raises KeyboardInterrupt at once; the next start repeats the epoch.

    Args:
        progress: False shows nothing.
    """
    with _graceful_stop(job):
        if not progress or in_notebook():
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
    last = f" (last epoch {progress.last_rows_per_second:,.0f})" if progress.epochs > 1 else ""
    return (
        f"{name}: {progress.state.value} · {epoch} · {progress.rows:,} rows · {rejected}{progress.files:,} files · "
        f"{progress.bytes / 1e6:,.1f} MB · {progress.seconds:.1f} s · "
        f"{progress.rows_per_second:,.0f} rows/s{last}{running}"
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


@contextmanager
def shown(name: str) -> Iterator[None]:
    """Show the phases of a job's start in the block; where they can't change in place, in lines if it takes long."""
    if in_notebook():
        with told_to(_line(f"{name}: starting"), name):
            yield
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(f"{name}: starting") as status, told_to(status.update, name):
            yield
    else:
        with _told_if_slow(name):
            yield


@contextmanager
def _told_if_slow(name: str) -> Iterator[None]:
    """Tell what a start is busy with, if the block takes long: after ten seconds, twenty, forty, …."""
    phases, began, is_done = [f"{name}: starting"], time.monotonic(), threading.Event()

    def tell() -> None:
        due = _SLOW_SECONDS
        while not is_done.wait(max(0.0, began + due - time.monotonic())):
            _tell(f"{phases[-1]}, {time.monotonic() - began:.0f} s so far")
            due *= 2

    thread = threading.Thread(target=tell, name=f"volley-{name}-start", daemon=True)
    thread.start()
    try:
        with told_to(phases.append, name):
            yield
    finally:
        is_done.set()
        thread.join()


def in_notebook() -> bool:
    """Return True if this process runs a notebook's cells."""
    interactive: Any = sys.modules.get("IPython")
    shell = interactive and interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _line(text: str) -> Callable[[str], None]:
    """Show a line of text in the cell, and return the function that replaces it by another one."""
    from IPython.display import HTML, display

    handle = display(HTML(html.escape(text)), display_id=True)
    return lambda other: handle.update(HTML(html.escape(other)))


def watch(job: Job) -> threading.Thread:
    """Show the job in the cell until it ends; return the thread that does."""
    from IPython.display import HTML, display

    handle = display(HTML(job._repr_html_()), display_id=True)

    def follow() -> None:
        while not job.wait(_SECONDS):
            handle.update(HTML(job._repr_html_()))
        handle.update(HTML(job._repr_html_()))

    thread = threading.Thread(target=follow, name=f"volley-{job.name}-notebook", daemon=True)
    thread.start()
    return thread

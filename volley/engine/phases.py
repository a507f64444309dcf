"""What a start is busy with, shown while it takes its seconds: on a terminal and in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from volley.engine import notebook

__all__ = ["enter", "shown"]

_listener: ContextVar[Callable[[str], object] | None] = ContextVar("volley-phase", default=None)


def enter(phase: str) -> None:
    """Tell whoever shows it what comes next: ``"starting Spark"``, ``"planning"``."""
    if listener := _listener.get():
        listener(phase)


@contextmanager
def shown(name: str) -> Iterator[None]:
    """Show the phases of a job's start in the block, if someone can see them change in place.

    Args:
        name: The job's name.
    """
    if notebook.is_running():
        with _told_to(notebook.line(f"{name}: starting"), name):
            yield
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(f"{name}: starting") as status, _told_to(status.update, name):
            yield
    else:
        yield


@contextmanager
def _told_to(listener: Callable[[str], object], name: str) -> Iterator[None]:
    token = _listener.set(lambda phase: listener(f"{name}: {phase}"))
    try:
        yield
    finally:
        _listener.reset(token)

"""Shows a job in a notebook: what it is busy with, then its progress, updated in place in the cell that started it."""

from __future__ import annotations

import html
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from volley import checks

__all__ = ["is_running", "line", "watch"]

_SECONDS = 0.5


class _Shown(Protocol):
    """The part of a job that is shown."""

    name: str

    def wait(self, timeout: checks.Duration | None = None) -> bool: ...

    def _repr_html_(self) -> str: ...


def is_running() -> bool:
    """Return True if this process runs a notebook's cells."""
    interactive: Any = sys.modules.get("IPython")
    shell = interactive and interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


def line(text: str) -> Callable[[str], None]:
    """Show a line of text in the cell, and return the function that replaces it by another one."""
    from IPython.display import HTML, display

    handle = display(HTML(html.escape(text)), display_id=True)
    return lambda other: handle.update(HTML(html.escape(other)))


def watch(job: _Shown) -> threading.Thread:
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

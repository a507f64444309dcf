"""The runs of jobs in this process: what they do beside their epochs names them as its parent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volley.lineage.events import LineageRun

__all__ = ["current_parent", "register", "unregister", "within"]

_runs: dict[str, LineageRun] = {}
_job: ContextVar[str | None] = ContextVar("volley-job", default=None)


def register(run: LineageRun) -> None:
    """Note that a job runs."""
    _runs[run.job] = run


def unregister(run: LineageRun) -> None:
    """Note that it has ended."""
    _runs.pop(run.job, None)


@contextmanager
def within(job: str) -> Iterator[None]:
    """Let what the block does be a part of the job of this name."""
    token = _job.set(job)
    try:
        yield
    finally:
        _job.reset(token)


def current_parent() -> LineageRun | None:
    """Return the run of the job that this is a part of; None if it is none."""
    return _runs.get(_job.get() or "")

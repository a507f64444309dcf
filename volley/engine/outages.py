"""Tries an epoch, or the begin of a job's next run, again while a catalog can't be reached."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential,
)

from volley.errors import CatalogUnreachableError, CommitStateUnknownError

__all__ = ["through_outages"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_LONGEST_WAIT = 15.0
# An attempt begins by asking whether the one before has landed.
_OUTAGES = (CatalogUnreachableError, CommitStateUnknownError)


def through_outages(attempt: Callable[[], _T], longest: float | None, stopping: threading.Event, job: str) -> _T:
    """Return what an attempt returns; make another one while a catalog can't be reached.

    Args:
        attempt: Writes and commits an epoch, if the sinks lack it; or begins a run.
        longest: For how many seconds to try; None = once.
        stopping: Set when the job is to stop: no further attempt is made.
        job: The job's name.

    Raises:
        VolleyError: What the last attempt raised.
    """
    if longest is None:
        return attempt()

    def warn(state: RetryCallState) -> None:
        assert state.outcome is not None
        _log.warning("%s: waiting for the catalog: %s", job, state.outcome.exception())

    return Retrying(
        retry=retry_if_exception_type(_OUTAGES),
        wait=wait_exponential(max=_LONGEST_WAIT),
        stop=stop_after_delay(longest) | stop_when_event_set(stopping),
        sleep=sleep_using_event(stopping),
        before_sleep=warn,
        reraise=True,
    )(attempt)

"""Retry policy for catalog calls: four attempts, 100, 200 and 400 ms apart, or as far as the catalog asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from volley.errors import CatalogUnreachableError
from volley.iceberg.catalogs.answers import retry_after

__all__ = ["ATTEMPTS", "commit_retry", "retry_reads"]

_T = TypeVar("_T")

ATTEMPTS = 4
# An epoch waits at most a minute and a half for a catalog that says when it can be asked again.
_LONGEST_WAIT = 30.0
_backoff = wait_exponential(multiplier=0.1, max=0.4)


def _wait(state: RetryCallState) -> float:
    """Return the seconds to wait: those that the catalog's ``Retry-After`` names, up to a limit, or the backoff."""
    error = state.outcome.exception() if state.outcome else None
    asked = retry_after(error) if error else None
    return _backoff(state) if asked is None else max(_backoff(state), min(asked, _LONGEST_WAIT))


commit_retry = partial(Retrying, wait=_wait, stop=stop_after_attempt(ATTEMPTS))


def retry_reads(read: Callable[[], _T]) -> _T:
    """Return the result of a call that is safe to repeat; retry while the catalog can't be reached."""
    return commit_retry(retry=retry_if_exception_type(CatalogUnreachableError), reraise=True)(read)

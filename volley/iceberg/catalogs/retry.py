"""Retry policy for catalog calls: four attempts, 100, 200 and 400 ms apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from volley.errors import CatalogUnreachableError

__all__ = ["ATTEMPTS", "commit_retry", "retry_reads"]

_T = TypeVar("_T")

ATTEMPTS = 4

commit_retry = partial(Retrying, wait=wait_exponential(multiplier=0.1, max=0.4), stop=stop_after_attempt(ATTEMPTS))


def retry_reads(read: Callable[[], _T]) -> _T:
    """Return the result of a call that is safe to repeat; retry while the catalog can't be reached."""
    return commit_retry(retry=retry_if_exception_type(CatalogUnreachableError), reraise=True)(read)

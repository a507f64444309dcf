"""Trying again what a catalog could not do just then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from volley.errors import CatalogUnreachableError

__all__ = ["ATTEMPTS", "patient", "patiently"]

_T = TypeVar("_T")

ATTEMPTS = 4

# 100, 200, 400 ms between the attempts.
patient = partial(Retrying, wait=wait_exponential(multiplier=0.1, max=0.4), stop=stop_after_attempt(ATTEMPTS))


def patiently(ask: Callable[[], _T]) -> _T:
    """The answer to something that changes nothing, asked again while the catalog can't be reached."""
    return patient(retry=retry_if_exception_type(CatalogUnreachableError), reraise=True)(ask)

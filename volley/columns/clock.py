"""The processing time of an epoch: one reading of the clock, which all its tasks have, and those that repeat it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["epoch_clock", "epoch_of"]

_now: ContextVar[int] = ContextVar("_now")


@contextmanager
def epoch_of(now: int) -> Iterator[None]:
    """Let what is computed here have the processing time of an epoch, in microseconds since 1970."""
    token = _now.set(now)
    try:
        yield
    finally:
        _now.reset(token)


def epoch_clock() -> int:
    """Return the processing time of the epoch whose rows are computed, in microseconds since 1970."""
    return _now.get()

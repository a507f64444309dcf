"""The processing time of an epoch: one reading of the clock, which all its tasks have, and those that repeat it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pyarrow as pa

from volley.errors import ExpressionError

__all__ = ["PROCESSING_TIME", "epoch_clock", "epoch_of", "one_reading"]

PROCESSING_TIME = pa.timestamp("us", "UTC")
"""The type of processing times."""

_now: ContextVar[int] = ContextVar("_now")


@contextmanager
def epoch_of(now: int) -> Iterator[None]:
    """Let what is computed here have the processing time of an epoch, in microseconds since 1970."""
    token = _now.set(now)
    try:
        yield
    finally:
        _now.reset(token)


@contextmanager
def one_reading() -> Iterator[None]:
    """Let what is computed here have one processing time: that of the reading around it, or of the clock now."""
    with epoch_of(_now.get(time.time_ns() // 1_000)):
        yield


def epoch_clock() -> int:
    """Return the processing time of the epoch whose rows are computed, in microseconds since 1970.

    Raises:
        ExpressionError: If no epoch's rows are computed here.
    """
    try:
        return _now.get()
    except LookupError as error:
        raise ExpressionError(
            "now() is the time at which a job, or a reading, computes rows, and here are none of either",
            hint="compute it by with_column() before, or give a constant time",
        ) from error

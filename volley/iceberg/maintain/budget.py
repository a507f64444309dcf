"""Limits how much of the time maintenance takes."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """Limits work to a share of the time, on average over a window: a token bucket.

    Short turns follow one another without a rest after a long one, as long as the window has time left.

    Args:
        share: The largest share of the time, above 0 and at most 1.
        window: The window in seconds.
        clock: Returns the time in seconds.
    """

    def __init__(self, share: float, window: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._most = self._left = share * window
        self._clock = clock
        self._at = clock()

    def spend(self, seconds: float) -> None:
        """Count work that has just ended."""
        now = self._clock()
        earned = (now - self._at) * self._share
        self._left = min(self._left + earned, self._most) - seconds
        self._at = now

    @property
    def rest(self) -> float:
        """The seconds without work that are due after the last `spend`."""
        return max(-self._left / self._share, 0.0)

"""Limits of clients: how often they may send, how long they may take, how often they are written about."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import takewhile
from typing import Generic, TypeVar

__all__ = ["LOOK_SECONDS", "Deadlines", "RateLimit", "Seldom"]

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""The time between two looks at deadlines."""

_MOST_CLIENTS = 10_000
_MOST_LINES = 100


class RateLimit:
    """Limits each client to a number of requests a second, with a second's worth at once.

    It keeps one time a client, that at which all of its requests so far would be due at this rate (the generic cell
    rate algorithm of ATM networks).

    Example:
        >>> limit = RateLimit(2)
        >>> [limit.wait("10.0.0.1", now=100.0) for _ in range(4)]
        [0.0, 0.0, 0.5, 0.5]
    """

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._due: dict[str, float] = {}

    def wait(self, client: str, now: float) -> float:
        """Return after how many seconds a client may send; 0 = now, and the request counts."""
        due = max(now, self._due.get(client, 0.0)) + self._interval
        if due - now > max(1.0, self._interval):
            return due - now - max(1.0, self._interval)
        if len(self._due) >= _MOST_CLIENTS:
            self._due = {name: time for name, time in self._due.items() if time > now}
        self._due[client] = due
        return 0.0


class Deadlines(Generic[T]):
    """Ends what has waited for a client too long.

    Time is counted in looks of the event loop, `LOOK_SECONDS` apart, not by a clock: between two of them the loop reads
    all that has come. While it is held up, by a machine under load say, nobody's time passes.

    Example:
        >>> ended = []
        >>> deadlines = Deadlines(1.0, ended.append)
        >>> deadlines.begin("slow")
        >>> for _ in range(3):
        ...     deadlines.look()
        >>> ended
        ['slow']
    """

    def __init__(self, seconds: float, end: Callable[[T], object]) -> None:
        # The first look may come at once, and a request that has been read begins in the loop's next turn.
        self._most = max(2, math.ceil(seconds / LOOK_SECONDS)) + 1
        self._end = end
        self._looks = 0
        # In the order in which they began to wait.
        self._waiting: dict[T, int] = {}

    def begin(self, waiting: T) -> None:
        """Note that something waits from now on; it does not wait yet."""
        self._waiting[waiting] = self._looks

    def stop(self, waiting: T) -> None:
        """Note that something does not wait any more."""
        self._waiting.pop(waiting, None)

    def look(self) -> None:
        """Count a look, and end what has waited too long."""
        self._looks += 1
        last = self._looks - self._most
        for waiting, _ in list(takewhile(lambda item: item[1] <= last, self._waiting.items())):
            del self._waiting[waiting]
            self._end(waiting)


class Seldom:
    """Says whether a line of the log is due: the first of its subject in a minute, and a hundred subjects at most.

    Example:
        >>> seldom = Seldom(now=lambda: 60.0)
        >>> [seldom.is_due("10.0.0.1"), seldom.is_due("10.0.0.1"), seldom.is_due("10.0.0.2")]
        [True, False, True]
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._minute = 0
        self._subjects: set[str] = set()

    def is_due(self, subject: str) -> bool:
        """Return True if a line about a subject, such as a client's address, is due."""
        minute = int(self._now() // 60)
        if minute != self._minute:
            self._minute = minute
            self._subjects.clear()
        if subject in self._subjects or len(self._subjects) >= _MOST_LINES:
            return False
        self._subjects.add(subject)
        return True

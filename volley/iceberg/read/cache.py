"""A cache that is bounded in bytes; threads share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Cache"]

T = TypeVar("T")


class Cache(Generic[T]):
    """Keeps the values that were used last, up to a number of bytes.

    Args:
        size: The number of bytes.

    Example:
        >>> cache = Cache(100)
        >>> for key in "abc":
        ...     cache.put(key, key.upper(), 40)
        >>> cache.get("a"), cache.get("c")
        (None, 'C')
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """Return a key's value; None if there is none, or no longer."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Set a key's value, and drop those that were not used for the longest time; a too large one is not kept.

        Args:
            key: The key.
            value: The value.
            size: Its size in bytes.
        """
        with self._lock:
            _, old = self._values.pop(key, (None, 0))
            self._used -= old
            if size > self._size:
                return
            self._values[key] = value, size
            self._used += size
            while self._used > self._size:
                _, (_, dropped) = self._values.popitem(last=False)
                self._used -= dropped

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self._used = 0

"""Finds the bad ones among many by halving: what is good costs one try, and keeps its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["first_failing", "halved"]

T = TypeVar("T")


def halved(
    count: int,
    attempt: Callable[[int, int], T],
    single: Callable[[int, Exception], T],
    errors: tuple[type[Exception], ...],
) -> Iterator[T]:
    """Try all at once; where that fails, the halves, down to single ones; the results in order.

    Args:
        count: How many there are.
        attempt: What those from the first number up to, not including, the second give.
        single: What one gives that fails by itself, told its number and its error; may raise.
        errors: The errors that tell that one of those tried is bad; any other is raised.

    Example:
        >>> list(halved(4, lambda i, j: 6 // (0 if i <= 2 < j else j - i), lambda i, error: -i, (ZeroDivisionError,)))
        [3, -2, 6]
    """
    ranges = [(0, count)]
    while ranges:
        start, end = ranges.pop()
        try:
            found = attempt(start, end)
        except errors as error:
            if end - start > 1:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
                continue
            found = single(start, error)
        yield found


def first_failing(count: int, fails: Callable[[int, int], bool]) -> int:
    """The first of `count` things that fails, if the whole of them does: found by halving.

    Args:
        count: How many there are.
        fails: Whether those from the first number up to, not including, the second fail.

    Example:
        >>> first_failing(100, lambda start, end: start <= 42 < end)
        42
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (start, middle) if fails(start, middle) else (middle, end)
    return start

"""Finds the bad ones among many by halving: what is good costs one try, and keeps its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["first_failing", "process_or_bisect"]

T = TypeVar("T")


def process_or_bisect(
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
        >>> def total(start, end):
        ...     return sum(map(int, ["1", "2", "x", "4"][start:end]))
        >>> list(process_or_bisect(4, total, lambda index, error: 0, (ValueError,)))
        [3, 0, 4]
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

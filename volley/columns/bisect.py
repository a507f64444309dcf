"""Binary search for failing items; good items keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["first_failing", "process_or_bisect", "sort_failing"]

T = TypeVar("T")

_PIECES = 16
_FEW = 512


def process_or_bisect(
    count: int,
    attempt: Callable[[int, int], T],
    single: Callable[[int, Exception], T],
    errors: tuple[type[Exception], ...],
) -> Iterator[T]:
    """Process all items at once; split a failing range in half, down to single items. Yield the results in order.

    Args:
        count: How many items there are.
        attempt: Processes items start (inclusive) to end (exclusive).
        single: Called with the index and error of an item that fails alone; returns its result or raises.
        errors: The errors that mean that an item of the range is bad; any other is raised.

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
            result = attempt(start, end)
        except errors as error:
            if end - start > 1:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
                continue
            result = single(start, error)
        yield result


def sort_failing(
    count: int,
    attempt: Callable[[int, int], T],
    few: Callable[[int, int], tuple[T, bool]],
    errors: tuple[type[Exception], ...],
) -> Iterator[T]:
    """Process items that have failed all at once; yield the results in order.

    Pieces are attempted where few items seem to be bad. What is close to a bad item is sorted without an attempt.

    Args:
        count: How many items there are.
        attempt: Processes items start (inclusive) to end (exclusive) if all are good.
        few: Sorts at most 512 items; returns the result, and whether one is bad.
        errors: The errors that mean that an item of a piece is bad; any other is raised.
    """
    ranges, is_near = _pieces(0, count), True
    while ranges:
        start, end = ranges.pop()
        if not is_near:
            try:
                yield attempt(start, end)
                continue
            except errors:
                is_near = True
        if end - start > _FEW:
            ranges += _pieces(start, end)
            continue
        result, is_near = few(start, end)
        yield result


def _pieces(start: int, end: int) -> list[tuple[int, int]]:
    """Return the pieces of a range, the first one last."""
    step = max(_FEW, (end - start) // _PIECES)
    return [(at, min(at + step, end)) for at in range(start, end, step)][::-1]


def first_failing(count: int, fails: Callable[[int, int], bool]) -> int:
    """Return the index of the first failing item by binary search; at least one must fail.

    Args:
        count: How many items there are.
        fails: Whether an item from start (inclusive) to end (exclusive) fails.

    Example:
        >>> first_failing(100, lambda start, end: start <= 42 < end)
        42
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (start, middle) if fails(start, middle) else (middle, end)
    return start

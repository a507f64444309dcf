"""Halving: every bad one is told once, every good one is kept, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.columns.bisect import process_or_bisect, sort_failing


@given(st.lists(st.booleans(), max_size=200))
def test_good_ones_come_whole_and_bad_ones_single_in_order(bad: list[bool]) -> None:
    def attempt(start: int, end: int) -> list[tuple[int, bool]]:
        if any(bad[start:end]):
            raise ValueError
        return [(number, False) for number in range(start, end)]

    found = list(process_or_bisect(len(bad), attempt, lambda number, error: [(number, True)], (ValueError,)))
    assert [each for part in found for each in part] == list(enumerate(bad))


def test_an_error_of_another_kind_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(process_or_bisect(4, lambda start, end: 1 // 0, lambda number, error: 0, (ValueError,)))


@given(bad=st.sets(st.integers(0, 9_999)), count=st.integers(1, 10_000))
def test_failing_items_are_sorted_in_order_with_few_looks_at_each(bad: set[int], count: int) -> None:
    looks = 0

    def attempt(start: int, end: int) -> list[int]:
        nonlocal looks
        looks += end - start
        if any(start <= item < end for item in bad):
            raise ValueError
        return list(range(start, end))

    def few(start: int, end: int) -> tuple[list[int], bool]:
        nonlocal looks
        assert end - start <= 512
        looks += end - start
        return list(range(start, end)), any(start <= item < end for item in bad)

    found = [item for piece in sort_failing(count, attempt, few, (ValueError,)) for item in piece]
    assert found == list(range(count))
    assert looks <= 3 * count

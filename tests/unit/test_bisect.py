"""Halving: every bad one is told once, every good one is kept, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.arrow.bisect import process_or_bisect


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

"""The share of the time that maintenance takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.iceberg.maintain.maintainer import Budget


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_short_turns_need_no_rest_until_the_window_has_no_time_left() -> None:
    clock = Clock()
    budget = Budget(0.2, 100, clock)
    rests = []
    for _ in range(3):
        clock.now += 8
        budget.spend(8)
        rests.append(budget.rest)
    # The bucket holds 20 seconds. A turn takes 8 of them, and adds 1.6 unless the bucket is full.
    assert rests == pytest.approx([0, 0, 4])


@given(st.floats(0.01, 1.0), st.floats(0, 1000), st.lists(st.floats(0.001, 500), min_size=1))
def test_a_long_run_of_turns_keeps_to_the_share(share: float, window: float, turns: list[float]) -> None:
    clock = Clock()
    budget = Budget(share, window, clock)
    for seconds in turns:
        clock.now += seconds
        budget.spend(seconds)
        clock.now += budget.rest
    assert sum(turns) <= share * (clock.now + window) * (1 + 1e-9) + 1e-9

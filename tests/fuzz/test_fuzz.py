"""A few mutations of each kind of file: all are refused, or read right. ``make fuzz`` tries more, and other ones."""

from __future__ import annotations

import pytest

from tests.fuzz.child import run_cases
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_mutated_files_are_refused_or_read_right(target: Target) -> None:
    outcomes = run_cases(target, seed=0, count=20)
    assert set(outcomes) <= {"refused", "read"}
    assert outcomes["refused"]
    assert outcomes.total() == 20

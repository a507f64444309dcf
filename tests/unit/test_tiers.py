"""The tests' own tools: what a tier leaves out, and which test has become slow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.durations import Cost, slower
from tests.tiers import deaths, in_turn, nightly, some


def of_tier(parameters: list[Any]) -> tuple[list[Any], list[Any]]:
    """The values that each run has, and those that the night adds."""
    marked = [{mark.name for mark in parameter.marks} for parameter in parameters]
    values = [parameter.values[0] for parameter in parameters]
    pairs = [*zip(values, marked, strict=True)]
    return [value for value, marks in pairs if not marks], [value for value, marks in pairs if marks == {"nightly"}]


def test_each_run_has_the_first_case_of_each_kind() -> None:
    assert of_tier(some(["a", "b"])) == (["a"], ["b"])
    assert of_tier(some([1, 3, 2, 4], by=lambda number: number % 2)) == ([1, 2], [3, 4])
    assert of_tier([*some([]), nightly("c", id="d")]) == ([], ["c"])


def test_each_run_has_each_case_with_the_others_in_turn() -> None:
    pairs = in_turn("abc", (1, 2))
    assert [pair.values for pair in pairs if not pair.marks] == [("a", 1), ("b", 2), ("c", 1)]
    assert {pair.values for pair in pairs} == {(case, other) for case in "abc" for other in (1, 2)}


def test_each_property_has_a_share_of_the_examples() -> None:
    """A fixed number would be too many for each run, or too few for the night."""
    files = Path(__file__).parents[1].rglob("test_*.py")
    assert [file.name for file in files if re.search(r"max_examples=\d", file.read_text())] == []


def test_each_run_has_one_death_and_the_night_has_all() -> None:
    assert of_tier(deaths(["a", "b", "c"], 1)) == ([["b"]], [["a", "b", "c"]])


def test_a_test_that_has_become_much_slower_is_told() -> None:
    before = {"a.py": Cost(tests=2, seconds=3, longest={"one": 2.0})}
    now = {"a.py": Cost(tests=3, seconds=14, longest={"one": 3.9, "two": 9.0, "three": 1.5}), "new.py": before["a.py"]}
    assert slower(before, now) == ["slower: a.py::two, 9.0 s of CPU time instead of 1.0"]
    assert slower(before, {"a.py": Cost(tests=1, seconds=7, longest={"one": 7.0})}) == [
        "slower: a.py::one, 7.0 s of CPU time instead of 2.0"
    ]

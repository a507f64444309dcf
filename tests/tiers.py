"""Decides which cases of a product every run proves, and which only the night does: the marker `nightly`.

What is marked proves the same again: another death of a mode that has one, another catalog or storage of a suite.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import cycle
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["deaths", "examples", "in_turn", "nightly", "some"]


def nightly(*values: object, id: str | None = None) -> Any:
    """Return values of a test's parameters that only `make nightly` runs; arguments as for `pytest.param`."""
    return pytest.param(*values, id=id, marks=pytest.mark.nightly)


def some(cases: Iterable[Any], by: Callable[[Any], Hashable] = lambda case: None) -> list[Any]:
    """Return all values of one parameter, of which the first of each kind is in each run, and the night has the rest.

    Args:
        cases: The values; a mapping's keys.
        by: Returns the kind of a case. By default all are of one.

    Example:
        >>> [len(case.marks) for case in some(["append", "append partitioned", "upsert"], by=lambda case: case[:6])]
        [0, 1, 0]
    """
    kinds = set[Hashable]()
    parameters = []
    for case in cases:
        parameters.append(nightly(case) if by(case) in kinds else pytest.param(case))
        kinds.add(by(case))
    return parameters


def in_turn(cases: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Return the pairs of two parameters' values: each run has each case once, with the other values in turn.

    Example:
        >>> [pair.values for pair in in_turn("ab", (1, 2)) if not pair.marks]
        [('a', 1), ('b', 2)]
    """
    values = [*others]
    pairs = ((case, [*values[first:], *values[:first]]) for first, case in zip(cycle(range(len(values))), cases))
    return [
        pair
        for case, (first, *rest) in pairs
        for pair in [pytest.param(case, first), *(nightly(case, other) for other in rest)]
    ]


def deaths(kills: Sequence[Any], one: int) -> list[Any]:
    """Return two values of the parameter that says where a job is killed, time and again: one death, or all at night.

    Args:
        kills: All.
        one: The place of the one among them.
    """
    return [pytest.param(kills[one : one + 1], id="one"), nightly(kills, id="all")]


def examples(share: float) -> int:
    """Return how many examples a costly property has, as a share of those of the others."""
    return max(2, round(settings().max_examples * share))

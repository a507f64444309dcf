"""Random texts, read as each type in a child process: none ends it, and no decimal is wrong."""

from __future__ import annotations

from tests.fuzz import conversions


def test_that_texts_become_values_or_bad_rows() -> None:
    assert conversions.run(seed=7, cases=80) == []
